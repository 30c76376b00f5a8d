"""The grammar of `experiments`: what a block asks for, what blocks share, and what is refused."""

from typing import Any

import pytest

from highways.analysis.sections import OWN, items, sections
from highways.experiments import configuration
from highways.experiments.plan import plan
from highways.experiments.runs import Run, cell_spec
from highways.experiments.variants import Variant
from highways.specs.fields import SpecError

CELL = {"dataset": "mnist", "depth": 8, "seeds": [0, 1]}
AT_6 = {"dataset": "mnist", "depth": 6, "seeds": 0}  # a depth without settings
BLOCK: dict[str, Any] = {"name": "mine", "cells": CELL, "methods": "hep"}
OF_DEPTH_6 = {
    "learning.lr": 1e-3,
    "highway.alpha": 0.5,
    "inference.optimizer": "euler",
    "inference.step_size": 0.5,
    "inference.steps": 7,
}


def rates(*values: float, seeds: Any = 0, **keys: Any) -> dict[str, Any]:
    return {"among": {"learning.lr": list(values)}, "seeds": seeds, **keys}


@pytest.fixture
def asking(paper):
    """A function: the configuration with these experiments only; each is BLOCK with some keys replaced."""

    def make(*blocks: dict[str, Any]) -> dict[str, Any]:
        return configuration.validate(
            {**paper, "propagation": None, "experiments": [{**BLOCK, **block} for block in blocks]}
        )

    return make


@pytest.fixture
def ask(asking):
    """A function: the variants of one experiment, BLOCK with these keys replaced."""

    def make(**keys: Any) -> list[Variant]:
        return plan(asking(keys)).of("mine")

    return make


def paths(variants: list[Variant]) -> list[str]:
    return [run.path for variant in variants for run in variant.runs]


# What a row has


def test_a_block_without_rows_is_a_row(ask):
    (alone,), (row,) = ask(title="T"), ask(title="T", rows=[{}])
    assert alone.runs == row.runs
    assert (alone.name, alone.title) == ("hep", "HEP")  # the title of a block is that of its table


def test_a_row_has_what_its_block_says_but_for_what_it_says_itself(ask):
    block = {
        "methods": ["pc", "hep"],
        "set": {"epochs": 3, "batch_size": 64},
        "vary": {"learning.eps": [1e-8, 1e-7]},
        "kernel": "batched",
    }
    own = {"dataset": "fashion_mnist", "depth": 4, "seeds": 5}
    inherits, overrides = (
        ask(**block, rows=[{"name": "r"}]),
        ask(
            **block,
            rows=[
                {
                    "name": "r",
                    "cells": own,
                    "methods": "hep",
                    "set": {"epochs": 4},
                    "vary": {"highway.alpha": 2.0},
                    "times": {"learning.lr": 2},
                    "kernel": "native",
                }
            ],
        ),
    )
    assert [(one.name, one.cell, one.varied) for one in inherits] == [
        ("r", ("mnist", 8, method), {"learning.eps": eps}) for eps in (1e-8, 1e-7) for method in ("pc", "hep")
    ]
    assert {(run.spec.epochs, run.spec.batch_size) for one in inherits for run in one.runs} == {(3, 64)}
    assert {run.kernel for one in inherits for run in one.runs} == {"batched"}
    (variant,) = overrides
    ((run,),) = [variant.runs]
    assert (variant.cell, run.spec.seed, run.kernel) == (("fashion_mnist", 4, "hep"), 5, "native")
    # `set` and `select.among` are merged with those of the block key by key; any other key replaces.
    assert (run.spec.epochs, run.spec.batch_size, run.spec.learning.eps) == (4, 64, 1e-8)
    assert (run.spec.highway.alpha, run.spec.learning.lr) == (2.0, 2e-3)


def test_a_row_adds_to_the_candidates_of_its_block(ask):
    block = {"methods": "dkp", "select": rates(0.1, 0.2, seeds=3, epochs=2)}
    (same,) = ask(**block)
    (more,) = ask(**block, rows=[{"select": {"among": {"learning.weight_decay": [0.0, 0.1]}}}])
    (other,) = ask(**block, rows=[{"select": {"among": {"learning.lr": [0.3]}, "epochs": 1}}])
    assert same.choice.candidates == ({"learning.lr": 0.1}, {"learning.lr": 0.2})
    assert more.choice.candidates == tuple(
        {"learning.lr": lr, "learning.weight_decay": decay} for lr in (0.1, 0.2) for decay in (0.0, 0.1)
    )
    assert (more.choice.seeds, more.choice.epochs) == ((3,), 2)
    assert (other.choice.candidates, other.choice.seeds, other.choice.epochs) == (({"learning.lr": 0.3},), (3,), 1)


def test_a_row_can_do_without_the_choice_of_its_block(ask):
    chosen, fixed = ask(methods=["pc"], select=rates(0.1, 0.2), rows=[{}, {"name": "fixed", "select": None}])
    assert chosen.choice is not None
    assert fixed.choice is None
    assert [run.spec.learning.lr for run in fixed.runs] == [8e-5, 8e-5]


def test_a_choice_may_be_for_some_methods_alone(ask):
    pc, backprop = ask(methods=["pc", "backprop"], select=rates(0.1, 0.2, methods="backprop"))
    assert (pc.choice, backprop.choice.swept) == (None, ("learning.lr",))


def test_lists_in_cells_stand_for_all_combinations(ask):
    cells = {"dataset": ["mnist", "fashion_mnist"], "depth": [4, 8], "seeds": [0, 1]}
    found = ask(cells=[cells, {"dataset": "mnist", "depth": 16, "seeds": 2}])
    assert [(one.place, one.seeds) for one in found] == [
        (("mnist", 4), (0, 1)),
        (("mnist", 8), (0, 1)),
        (("fashion_mnist", 4), (0, 1)),
        (("fashion_mnist", 8), (0, 1)),
        (("mnist", 16), (2,)),
    ]
    assert paths(found)[:2] == ["mine/mnist/L004/hep/seed0", "mine/mnist/L004/hep/seed1"]
    assert paths(found)[-1] == "mine/mnist/L016/hep/seed2"


def test_a_row_of_a_name_has_a_folder_of_its_own(ask):
    rows = [{}, {"name": "cut", "title": "Cut", "set": {"highway.chain": False}}]
    plain, cut = ask(rows=rows)
    assert (plain.folder, plain.title) == ("mine/mnist/L008/hep", "HEP")
    assert (cut.folder, cut.title) == ("mine/cut/mnist/L008/hep", "Cut")


# Keys of the specification


def test_a_key_is_left_out_for_a_method_that_does_not_take_it(ask, paper):
    found = ask(
        methods=["pc", "hep", "dkp"],
        set={"highway.every": 2},
        vary={"conventions.state_gradient": ["mean", "sum"]},
        times={"inference.steps": 2},
    )
    by_method: dict[str, list[Variant]] = {}
    for variant in found:
        by_method.setdefault(variant.method, []).append(variant)
    assert {method: len({run.path for one in own for run in one.runs}) for method, own in by_method.items()} == {
        "pc": 2 * 2,
        "hep": 2 * 2,
        "dkp": 2,  # state_gradient changes nothing in it
    }
    assert by_method["dkp"][0].example == cell_spec(paper, "mnist", 8, "dkp", 0)
    assert by_method["pc"][0].example.inference.steps == 2 * 96
    assert {one.example.highway.every for one in by_method["hep"]} == {2}


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"methods": "pc", "set": {"highway.chain": False}}, "set: highway.chain changes nothing in a run of pc"),
        ({"methods": ["pc", "dfa"], "set": {"rule.beta": 0.1}}, "rule.beta changes nothing in a run of pc or dfa"),
        (
            {"methods": "dfa", "times": {"inference.steps": 2}},
            "times: inference.steps changes nothing in a run of",
        ),
        (
            {"methods": "dkp", "vary": {"conventions.state_gradient": ["sum"]}},
            "vary: conventions.state_gradient changes nothing in a run of dkp; leave it out",
        ),
        ({"set": {"colour.hue": 1}}, "set: colour.hue changes nothing"),
        ({"set": {"a.b.c": 1}}, "set: a.b.c changes nothing"),
        ({"set": {"learning.lrr": 1}}, "learning.lrr is no key of a specification; did you mean learning.lr?"),
        ({"vary": {"learning.lrr": [1]}}, "learning.lrr is no key of a specification; did you mean learning.lr?"),
        ({"times": {"highway.evry": 2}}, "highway.evry is no key of a specification; did you mean highway.every?"),
        ({"times": {"inference.optimizer": 2}}, "times: inference.optimizer is no number"),
        ({"times": {"highway.chain": 2}}, "times: highway.chain is no number"),
        ({"times": {"inference.steps": 0.3}}, "inference.steps: 28.8 is not allowed; it takes a whole number"),
        ({"methods": "pc", "select": {"among": {"highway.alpha": [1.0]}, "seeds": 0}}, "highway.alpha"),
        ({"select": {"among": {"epochs": [1, 2]}, "seeds": 0}}, "select.among: epochs cannot be chosen"),
        ({"methods": "dfa", "set": {"highway.every": 2}}, "dfa needs feedback to every hidden layer"),
    ],
)
def test_a_key_that_changes_nothing_is_refused(ask, keys, says):
    with pytest.raises(SpecError, match=r"^experiments: mine: ") as error:
        ask(**keys)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("keys", "first", "second"),
    [
        ({"set": {"highway.alpha": 1.0}, "vary": {"highway.alpha": [1.0, 2.0]}}, "set", "vary"),
        ({"set": {"learning.lr": 1.0}, "times": {"learning.lr": 2}}, "set", "times"),
        ({"vary": {"learning.lr": [1.0]}, "times": {"learning.lr": 2}}, "vary", "times"),
        ({"set": {"learning.lr": 1.0}, "select": rates(0.1)}, "set", "select.among"),
        ({"vary": {"learning.lr": [1.0]}, "select": rates(0.1)}, "vary", "select.among"),
        ({"times": {"learning.lr": 2}, "select": rates(0.1)}, "times", "select.among"),
        ({"set": {"learning.lr": 1.0}, "rows": [{}, {"vary": {"learning.lr": [0.1]}}]}, "set", "vary"),
    ],
)
def test_a_key_stands_in_one_place(ask, keys, first, second):
    with pytest.raises(SpecError, match=f"stands under {first} and under {second}; keep one"):
        ask(**keys)


@pytest.mark.parametrize("part", ["set", "vary", "times", "select"])
@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("dataset", "give it under cells"),
        ("method", "give it under methods"),
        ("network.depth", "give it under cells"),
        ("seed", "give it under cells, as seeds"),
    ],
)
def test_what_the_cells_say_is_not_set(ask, part, key, remedy):
    value = 5 if part == "times" else "mnist"
    given = {"among": {key: value}, "seeds": 0} if part == "select" else {key: value}
    with pytest.raises(SpecError) as error:
        ask(**{part: given})
    named = "select.among" if part == "select" else part
    assert str(error.value) == f"experiments: mine: {named}: {key}: {remedy}"


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ({"cells": None}, "cells is missing, in the row and in its block"),
        ({"methods": None}, "methods is missing, in the row and in its block"),
        ({"select": {"seeds": 0}}, "select: among is missing"),
        ({"select": {"among": {"learning.lr": [0.1]}}}, "select: seeds is missing"),
    ],
)
def test_what_is_missing_is_named_with_its_block_and_row(paper, missing, says):
    block = {key: value for key, value in {**BLOCK, **missing}.items() if value is not None}
    for config, where in ((block, "mine"), ({**block, "rows": [{"name": "r"}]}, "mine: r")):
        with pytest.raises(SpecError) as error:
            configuration.validate({**paper, "experiments": [config], "propagation": None})
        assert str(error.value) == f"experiments: {where}: {says}"
    # The block may lack a key that every row gives.
    given = {"cells": CELL, "methods": "hep", "select": rates(0.1)}
    rest = {key: value for key, value in block.items() if key != "select"}
    configuration.validate({**paper, "experiments": [{**rest, "rows": [given]}], "propagation": None})


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"cells": {**CELL, "depths": 8}}, "cells.depths: unknown key; did you mean depth?"),
        ({"cells": [CELL, {**CELL, "dept": 8}]}, "cells[1].dept: unknown key; did you mean depth?"),
        ({"cells": {"dataset": "mnist", "depth": 8}}, "cells: 'seeds' is a required property"),
        ({"cells": {**CELL, "depth": "8"}}, "cells.depth: '8' is not of type 'integer'"),
        ({"cells": {**CELL, "seeds": []}}, "cells.seeds: [] should be non-empty"),
        ({"methods": 3}, "methods: 3 is not of type 'string'"),
        ({"vary": {"highway.alpha": {"a": 1}}}, "vary['highway.alpha']: {'a': 1} is not of type"),
        ({"times": {"learning.lr": "2"}}, "times['learning.lr']: '2' is not of type 'number'"),
        ({"rows": [{"method": "hep"}]}, "rows[0].method: unknown key; did you mean methods?"),
    ],
)
def test_a_message_names_what_is_wrong_in_one_value_or_a_list(ask, keys, says):
    with pytest.raises(SpecError) as error:
        ask(**keys)
    assert str(error.value).startswith(f"experiments[0].{says}")


def test_a_method_that_does_not_exist_is_named(ask):
    for keys in ({"methods": ["hep", "magic"]}, {"select": rates(0.1, methods="magic")}):
        with pytest.raises(
            SpecError, match="experiments: mine: methods: 'magic' does not exist; it takes pc, hep, "
        ):
            ask(**keys)


# Multiples of the settings of the depth


def test_times_multiplies_the_settings_of_the_depth_and_1_is_the_table_s_own_run(asking, paper):
    cells = {"dataset": "mnist", "depth": [8, 32], "seeds": 0}
    table = {"name": "table", "cells": cells, "methods": ["pc", "backprop"]}
    config = asking(table, {"cells": cells, "methods": ["pc", "backprop"], "times": {"learning.lr": [1, 2, 3]}})
    found = plan(config).of("mine")
    assert [run.path for one in found for run in one.runs if one.scaled == {"learning.lr": 1}] == [
        run.path for one in plan(config).of("table") for run in one.runs
    ]
    for depth, printed in ((8, 8e-5), (32, 6e-5)):
        own = [one for one in found if (one.depth, one.method) == (depth, "pc")]
        assert [run.spec.learning.lr for one in own for run in one.runs] == pytest.approx(
            [printed, 2 * printed, 3 * printed], rel=1e-9
        )
    (third,) = (one for one in found if (one.depth, one.method, one.scaled["learning.lr"]) == (8, "pc", 3))
    assert third.runs[0].path == "mine/mnist/L008/pc/lr_x3/seed0"
    assert str(third.runs[0].spec.learning.lr) == "0.00024"  # and not 0.00024000000000000003


def test_a_multiple_of_a_whole_number_is_one(ask):
    (variant,) = ask(times={"inference.steps": 4})
    assert variant.example.inference.steps == 4 * 96
    assert isinstance(variant.example.inference.steps, int)


# What blocks share


def test_two_blocks_that_ask_for_the_same_training_share_its_record(asking):
    config = asking(
        {"name": "first", "vary": {"highway.alpha": [1.8, 3.0]}},
        {"name": "second"},  # alpha is 1.8 at depth 8
        {"name": "third", "rows": [{"name": "r", "vary": {"highway.alpha": 3.0}, "cells": {**CELL, "seeds": 1}}]},
    )
    first, other = plan(config).of("first")
    (second,), (third,) = plan(config).of("second"), plan(config).of("third")
    assert second.runs == first.runs
    assert third.runs == other.runs[1:]
    assert sorted(configuration.all_runs(config)) == [
        f"first/mnist/L008/hep/alpha{alpha}/seed{seed}" for alpha in ("1.8", "3") for seed in (0, 1)
    ]


def test_the_first_block_names_the_record(asking):
    first, second = {"name": "first"}, {"name": "second"}
    for blocks in ((first, second), (second, first)):
        assert {path.split("/")[0] for path in configuration.all_runs(asking(*blocks))} == {blocks[0]["name"]}


def test_two_blocks_that_ask_for_the_same_choice_share_it(asking):
    choosing = {"methods": "backprop", "select": rates(0.1, 0.2)}
    config = asking(
        {"name": "first", **choosing}, {"name": "second", "cells": {**CELL, "seeds": [0, 2]}, **choosing}
    )
    (first,), (second,) = plan(config).of("first"), plan(config).of("second")
    assert second.runs[:2] == first.runs[:2]
    assert [run.path for run in second.runs[2:]] == ["first/mnist/L008/backprop/selected/seed2"]
    assert second.runs[2].selection == first.runs[2].selection == "first/mnist/L008/backprop"
    assert len(configuration.all_runs(config)) == 2 + 2


@pytest.mark.parametrize("other", [rates(0.1, 0.2, 0.3), rates(0.1, 0.2, seeds=3), rates(0.1, 0.2, epochs=1)])
def test_a_choice_among_other_candidates_is_another(asking, other):
    config = asking(
        {"name": "first", "methods": "pc", "select": rates(0.1, 0.2)},
        {"name": "second", "methods": "pc", "select": other},
    )
    names = {run.selection for run in configuration.all_runs(config).values() if run.selection}
    assert names == {"first/mnist/L008/pc", "second/mnist/L008/pc"}


@pytest.mark.parametrize(
    "rows",
    [
        [{}, {"set": {"epochs": 2}}],
        [{}, {"methods": "hep", "kernel": "mixed"}],
        [{"name": "r"}, {"name": "r", "set": {"highway.chain": False}}],
        [{"select": rates(0.1, 0.2)}, {"select": rates(0.1, 0.3)}],
        [{"select": rates(0.1, seeds=[0, 1])}, {"select": rates(0.1, epochs=1)}],
    ],
)
def test_two_different_runs_at_one_path_are_refused(ask, rows):
    with pytest.raises(SpecError, match=r"experiments: mine: .*: two different runs would share the record mine/"):
        ask(rows=rows)
    ask(rows=[{**row, "name": f"row{number}"} for number, row in enumerate(rows)])


# Choices


def test_a_candidate_of_full_length_whose_seed_is_reported_is_not_run_again(ask):
    (variant,) = ask(methods="pc", select=rates(0.1, 0.2))
    assert paths([variant]) == [
        "mine/mnist/L008/pc/lr0.1/seed0",
        "mine/mnist/L008/pc/lr0.2/seed0",
        "mine/mnist/L008/pc/selected/seed1",
    ]
    assert variant.shares_seeds
    waiting = variant.runs[-1]
    assert (waiting.selection, waiting.swept) == ("mine/mnist/L008/pc", ("learning.lr",))
    assert waiting.sweep == variant.runs[:2]
    (stated,) = ask(methods="pc", select=rates(0.1, 0.2, epochs=12))  # 12 is the length of the runs
    assert paths([stated]) == paths([variant])


def test_a_shorter_candidate_is_run_again_in_full(ask):
    (variant,) = ask(methods="pc", select=rates(0.1, 0.2, epochs=2))
    assert not variant.shares_seeds
    assert [(run.spec.epochs, run.spec.seed, run.selection is None) for run in variant.runs] == [
        (2, 0, True),
        (2, 0, True),
        (12, 0, False),
        (12, 1, False),
    ]


def test_a_seed_of_the_sweep_that_is_not_reported_is_run_for_the_choice_alone(ask):
    (variant,) = ask(methods="pc", select=rates(0.1, seeds=[3, 4]))
    assert [(run.spec.seed, run.selection is None) for run in variant.runs] == [
        (3, True),
        (4, True),
        (0, False),
        (1, False),
    ]


def test_seed_0_alone_may_decide(ask):
    assert ask(methods="pc", select=rates(0.1, seeds=0))[0].choice.seeds == (0,)


def test_a_candidate_that_a_block_runs_anyway_lies_there(asking):
    config = asking({"name": "table", "methods": "pc"}, {"methods": "pc", "select": rates(8e-5, 0.2)})
    (variant,) = plan(config).of("mine")
    assert paths([variant])[:2] == ["table/mnist/L008/pc/seed0", "mine/mnist/L008/pc/lr0.2/seed0"]


def test_candidates_beyond_the_grid_decide_nothing(ask):
    row = {"methods": "pc", "beyond": [{"dataset": "mnist", "depth": 8, "learning.lr": 0.4}]}
    cells = {**CELL, "depth": [4, 8]}
    shallow, deep = ask(cells=cells, rows=[{**row, "select": rates(0.1, 0.2, seeds=3, epochs=2)}])
    assert shallow.beyond == ()
    (run,) = deep.beyond
    assert run.path == "mine/mnist/L008/pc/beyond/lr0.4/seed3"
    assert (run.spec.learning.lr, run.spec.seed, run.spec.epochs) == (0.4, 3, 2)
    assert run not in deep.runs
    assert all(run not in waiting.sweep for waiting in deep.runs)


# Kernels


def test_a_kernel_is_that_of_the_row_else_that_of_the_depth(asking, paper):
    rows = [{**row, "kernel": "mixed"} if row["depth"] == 8 else row for row in paper["settings"]]
    config = {**asking({"cells": {**CELL, "depth": [4, 8]}}), "settings": rows}
    assert {(one.depth, run.kernel) for one in plan(config).of("mine") for run in one.runs} == {
        (4, "auto"),
        (8, "mixed"),
    }
    config["experiments"] = [{**config["experiments"][0], "kernel": "batched"}]
    assert {run.kernel for run in configuration.all_runs(config).values()} == {"batched"}
    config["experiments"][0]["rows"] = [{"kernel": "auto"}]
    assert {run.kernel for run in configuration.all_runs(config).values()} == {"auto"}


def test_the_same_specification_by_another_kernel_is_another_run(asking):
    config = asking({"name": "first"}, {"name": "second", "kernel": "mixed"}, {"name": "third", "kernel": "mixed"})
    (first,), (second,), (third,) = (plan(config).of(name) for name in ("first", "second", "third"))
    assert [run.spec for run in first.runs] == [run.spec for run in second.runs]
    assert not {run.path for run in first.runs} & {run.path for run in second.runs}
    assert third.runs == second.runs
    chosen = {"methods": "pc", "select": rates(0.1, 0.2)}
    config = asking({"name": "first", **chosen}, {"name": "second", **chosen, "kernel": "mixed"})
    assert {run.selection for run in configuration.all_runs(config).values() if run.selection} == {
        "first/mnist/L008/pc",
        "second/mnist/L008/pc",
    }


# Depths without settings


@pytest.mark.parametrize("part", ["set", "vary", "select"])
def test_a_depth_without_settings_needs_them_in_the_row(ask, part):
    last = {"inference.steps": 7}
    fixed = {key: value for key, value in OF_DEPTH_6.items() if part == "set" or key not in last}
    keys = {"set": fixed}
    if part == "vary":
        keys["vary"] = last
    elif part == "select":
        keys["select"] = {"among": last, "seeds": 0}
    (variant,) = ask(cells=AT_6, **keys)
    spec = variant.runs[0].spec
    assert {key: spec.setting(key) for key in OF_DEPTH_6} == OF_DEPTH_6
    (backprop,) = ask(cells=AT_6, methods="backprop", set={"learning.lr": 0.1})
    assert backprop.runs[0].spec.learning.lr == 0.1


def test_what_a_depth_without_settings_lacks_is_named(ask):
    lacking = {key: value for key, value in OF_DEPTH_6.items() if key not in ("inference.steps", "learning.lr")}
    with pytest.raises(SpecError) as error:
        ask(cells=AT_6, set=lacking)
    assert str(error.value) == (
        "experiments: mine: HEP: settings: no row for depth 6; add one beside those for 4, 8, 16, 32, 64, 128, "
        "or set learning.lr, inference.steps"
    )
    with pytest.raises(SpecError, match=r"no row for depth 6; .* or set learning\.lr$"):
        ask(cells=AT_6, methods="backprop")


# Without traces, and with experiments of one's own


def test_without_propagation_nothing_is_traced(asking, paper):
    config = asking({"name": "depth", "methods": ["pc", "hep"]})
    assert configuration.all_propagations(config) == {}
    assert set(configuration.all_runs(config)) == {
        f"depth/mnist/L008/{method}/seed{seed}" for method in ("pc", "hep") for seed in (0, 1)
    }
    assert not any(name.startswith("propagation") for _, name in items(config))
    traced = {key for key, item in items(paper).items() if list(item.traces(paper))}
    assert len(traced) > 10
    assert not traced & set(items(config))
    assert [item for item in items(config).values() if list(item.traces(config))] == []


def test_an_experiment_of_one_s_own_has_a_table_and_a_figure(asking):
    config = asking({"name": "widths", "title": "Wide", "vary": {"network.width": [32, 64]}}, {"name": "untitled"})
    own = sections(config)[OWN]
    assert [(item.kind, item.name, item.title) for item in own] == [
        ("table", "widths", "Wide"),
        ("figure", "widths", "Wide"),
        ("table", "untitled", "untitled"),
        ("figure", "untitled", "untitled"),
    ]
    runs = [run for variant in plan(config).of("widths") for run in variant.runs]
    assert own[0].runs_of(config) == runs
    assert list(sections(config)) == [OWN]


def test_an_experiment_that_is_not_asked_for_has_no_artefacts(asking, paper):
    config = asking({"name": "depth", "methods": ["pc", "hep"]})
    assert {name for kind, name in items(config) if kind == "table"} == {"depth", "settings"}
    shipped = {name for kind, name in items(paper) if kind == "table"}
    assert {block["name"] for block in paper["experiments"]} <= shipped


def test_a_run_of_an_item_is_there_once(asking):
    config = asking({"methods": ["hep"], "rows": [{"name": "a"}, {"name": "b"}]})
    found: list[Run] = items(config)["table", "mine"].runs_of(config)
    assert [run.path for run in found] == ["mine/a/mnist/L008/hep/seed0", "mine/a/mnist/L008/hep/seed1"]
