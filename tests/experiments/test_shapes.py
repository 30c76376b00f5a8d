"""An experiment that its own table cannot show is refused; runs differ by their kernel and their choice."""

import json

import pytest

from highways.cli import main
from highways.experiments.configuration import all_runs, validate
from highways.experiments.plan import plan
from highways.experiments.results import Reference, sweeps
from highways.experiments.runs import Run
from highways.experiments.status import differences
from highways.specs.fields import SpecError
from mappings import changed, only

AT_8 = {"dataset": "mnist", "depth": 8, "seeds": [0, 1]}


def asking(paper, *blocks, **changes):
    return validate({**changed(only(paper), propagation=None, **changes), "experiments": list(blocks)})


@pytest.mark.parametrize(
    ("name", "block", "says"),
    [
        ("depth", {"methods": "hep", "times": {"learning.lr": [1, 8]}}, "HEP stands twice at mnist, depth 8"),
        (
            "depth",
            {"rows": [{"methods": "hep"}, {"name": "a", "methods": "hep", "set": {"epochs": 1}}]},
            "stands twice",
        ),
        ("ablations", {"methods": "pc", "times": {"learning.lr": [1, 2]}}, "Vanilla PC stands twice"),
        ("baselines", {"methods": "dkp", "vary": {"epochs": [1, 2]}}, "DKP stands twice"),
        ("strength", {"methods": ["pc", "hep"], "vary": {"highway.alpha": [1.0]}}, "hep alone"),
        ("strength", {"methods": "hep"}, "it needs highway.alpha under vary"),
        (
            "density",
            {"methods": "hep", "cells": {**AT_8, "depth": [8, 16]}, "vary": {"highway.every": 1}},
            "at one data set and depth",
        ),
        ("rates", {"methods": "pc"}, "it needs learning.lr under times"),
        ("readings", {"methods": "hep", "vary": {"conventions.bias": [True]}}, "it needs pc and hep"),
        ("readings", {"methods": ["pc", "hep"], "times": {"learning.lr": 2}}, "it takes no times"),
    ],
)
def test_a_block_that_its_own_table_cannot_show_is_refused_and_runs_under_another_name(paper, name, block, says):
    with pytest.raises(SpecError) as error:
        asking(paper, {"name": name, "cells": AT_8, **block})
    assert str(error.value).startswith(f"experiments: {name}: ")
    assert says in str(error.value)
    assert "Under another name" in str(error.value)
    if says != "stands twice":
        assert all_runs(asking(paper, {"name": "mine", "cells": AT_8, **block}))


def test_a_kernel_is_asked_for_where_states_relax_and_nowhere_else(paper):
    rows = [{**row, "kernel": "mixed"} if row["depth"] == 16 else row for row in paper["settings"]]
    cells = {**AT_8, "depth": 16}
    config = asking(paper, {"name": "mine", "cells": cells, "methods": ["pc", "dfa", "backprop"]}, settings=rows)
    asked = {run.spec.method: run.kernel for run in all_runs(config).values()}
    assert asked == {"pc": "mixed", "dfa": "auto", "backprop": "auto"}


def test_a_choice_in_float32_is_none_for_candidates_by_mixed(paper):
    select = {"among": {"learning.lr": [1e-4, 1e-3]}, "seeds": 3}
    block = {"cells": AT_8, "methods": "pc", "select": select}
    config = asking(paper, {"name": "plain", **block}, {"name": "other", **block, "kernel": "mixed"})
    runs = all_runs(config)
    assert set(sweeps(runs.values())) == {"plain/mnist/L008/pc", "other/mnist/L008/pc"}
    keys = {name: [run.key for run in own] for name, own in sweeps(runs.values()).items()}
    assert not {*keys["plain/mnist/L008/pc"]} & {*keys["other/mnist/L008/pc"]}


def test_candidates_in_another_order_make_no_other_choice(paper):
    def block(name, rates, seeds):
        select = {"among": {"learning.lr": rates}, "seeds": 3}
        return {"name": name, "cells": {**AT_8, "seeds": seeds}, "methods": "pc", "select": select}

    config = asking(paper, block("a", [1e-5, 3e-5, 1e-4], [0]), block("b", [1e-4, 1e-5, 3e-5], [0, 1]))
    assert set(sweeps(all_runs(config).values())) == {"a/mnist/L008/pc"}
    assert [run.path for run in plan(config).of("b")[0].runs[-2:]] == [
        f"a/mnist/L008/pc/selected/seed{seed}" for seed in (0, 1)
    ]


@pytest.mark.parametrize(
    ("asked", "made_by", "counts"),
    [
        ("auto", "mixed", True),
        ("auto", "native", True),
        ("native", "batched", True),
        ("native", "mixed", False),
        ("mixed", "native", False),
        ("mixed", "mixed", True),
        ("mixed", None, True),
    ],
)
def test_a_record_counts_where_its_kernel_is_the_one_asked_for(tiny, asked, made_by, counts):
    spec = tiny("pc")
    document = {"spec": spec.to_dict(), "provenance": {"kernel": made_by}}
    assert differences(document, Run("", spec, kernel=asked)) == ([] if counts else ["kernel"])


@pytest.mark.parametrize("rows", [[{"methods": "pc", "select": {"methods": "backprop", "seeds": 3}}]])
def test_a_choice_for_no_method_of_its_row_is_refused(paper, rows):
    rows[0]["select"]["among"] = {"learning.lr": [1e-3]}
    with pytest.raises(SpecError, match=r"select.methods: backprop: none is a method of the row"):
        asking(paper, {"name": "mine", "cells": AT_8, "rows": rows})
    inherited = {"methods": "backprop", "seeds": 3, "among": {"learning.lr": [1e-3]}}
    asking(paper, {"name": "mine", "cells": AT_8, "select": inherited, "rows": [{"methods": "pc"}]})


def test_train_takes_the_kernel_of_the_configuration(paper, monkeypatch, tmp_path):
    """From the first experiment's row, else from the settings of the depth; --kernel comes before both."""
    asked = []
    monkeypatch.setattr("highways.training.machine.Machine", lambda *how: asked.append(how[3]) or stop())
    rows = [{**row, "kernel": "mixed"} if row["depth"] == 8 else row for row in paper["settings"]]
    text = json.dumps(asking(paper, {"name": "mine", "cells": AT_8, "methods": "pc"}, settings=rows))
    command = ["train", "--config", text, "--dataset", "mnist", "--depth", "8", "--out", str(tmp_path / "r.json")]
    for method, more in (("pc", []), ("hep", []), ("backprop", []), ("pc", ["--kernel", "native"])):
        assert main([*command, "--method", method, *more]) == 1
    assert asked == ["mixed", "mixed", "auto", "native"]


def stop():
    raise SpecError("enough")


def test_a_bundle_takes_the_choices_of_the_reference(paper, tmp_path, capsys, monkeypatch):
    select = {"among": {"learning.lr": [2e-5, 8e-5, 3e-4, 1e-3, 3e-3]}, "seeds": 0}
    cells = {"dataset": "mnist", "depth": 16, "seeds": [0, 7]}
    block = {"name": "mine", "cells": cells, "methods": "pc", "select": select}
    config = asking(paper, block, records="reference")
    reference = Reference.read(paper_reference())
    assert reference.chosen(all_runs(config))  # made by the ablation pc_rates
    packed = []
    monkeypatch.setattr("highways.experiments.bundle.pack", lambda found, *_: packed.append(found) or stop())
    assert main(["bundle", "--config", json.dumps(config), "--reference", str(paper_reference())]) == 1
    assert list(packed[0].runs) == ["mine/mnist/L016/pc/selected/seed7"]
    assert packed[0].waiting == ()


def paper_reference():
    from pathlib import Path

    return Path(__file__).parents[2] / "results/reference"


def test_what_only_some_rows_take_of_a_block_is_left_out_for_the_others(paper):
    """A block sets E-step keys, which LRA does not have, and chooses alpha, which only HEP has."""
    block = {
        "name": "mine",
        "cells": AT_8,
        "set": {"inference.steps": 7},
        "select": {"among": {"highway.alpha": [0.1, 1.0]}, "seeds": 3},
        "rows": [{"methods": ["pc", "hep"]}, {"methods": "lra"}],
    }
    pc, hep, lra = plan(asking(paper, block)).of("mine")
    assert (pc.example.inference.steps, hep.example.inference.steps, lra.example.inference) == (7, 7, None)
    assert [one.choice is None for one in (pc, hep, lra)] == [True, False, True]
    with pytest.raises(SpecError, match=r"set: inference.steps changes nothing in a run of lra or dfa"):
        asking(paper, {**block, "rows": [{"methods": "lra"}, {"methods": "dfa"}]})
