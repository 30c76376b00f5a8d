"""The convention search and the ablations: the runs they ask for, and those they share with `depth`."""

from dataclasses import replace

import pytest

from highways.experiments import configuration
from highways.experiments.plan import plan
from highways.experiments.readings import readings, settings_of
from highways.experiments.runs import Run, cell_spec
from highways.experiments.variants import Variant
from highways.specs.fields import SpecError
from mappings import experiment, row

RATES = {"learning.lr": [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]}


def with_search(paper: dict, *, epochs: int = 2, **stage) -> dict:
    """The configuration whose convention search has one stage, on MNIST at depth 8."""
    entry = {
        "name": "s",
        "cells": {"dataset": "mnist", "depth": 8, "seeds": [0]},
        "methods": ["pc", "hep", "backprop"],
        "select": {"methods": "backprop", "among": RATES, "seeds": [0]},
        "set": {"epochs": epochs},
        **stage,
    }
    return experiment(paper, "conventions", rows=[entry])


def runs_of(config: dict, name: str) -> list[Run]:
    return [run for variant in plan(config).of(name) for run in variant.runs]


def arm(paper: dict, name: str) -> list[Variant]:
    """The variants of the ablation of that name, one per data set and depth."""
    return [variant for variant in plan(paper).of("ablations") if variant.name == name]


def spec_at(config: dict, path: str):
    return configuration.all_runs(config)[path].spec


def test_lists_stand_for_all_their_combinations(paper):
    given = {
        "conventions.activation": ["post", "both"],
        "conventions.bias": [True, False],
        "highway.sigma_v": 0.01,
    }
    config = with_search(paper, methods=["pc", "hep"], select=None, vary=given)
    config["experiments"][3]["rows"].append(
        {**config["experiments"][3]["rows"][0], "vary": {"conventions.activation": "pre_norm"}}
    )
    found = readings(config)
    assert [next(iter(one.variants.values())).given for one in found] == [
        {"conventions.activation": "post", "conventions.bias": True, "highway.sigma_v": 0.01},
        {"conventions.activation": "post", "conventions.bias": False, "highway.sigma_v": 0.01},
        {"conventions.activation": "both", "conventions.bias": True, "highway.sigma_v": 0.01},
        {"conventions.activation": "both", "conventions.bias": False, "highway.sigma_v": 0.01},
        {"conventions.activation": "pre_norm"},
    ]


def test_the_place_of_a_run_does_not_depend_on_the_order_of_the_keys(paper):
    given = {"conventions.activation": "post", "conventions.bias": True, "highway.sigma_v": 0.001}
    orders = (given, dict(reversed(given.items())))
    paths = [[run.path for run in runs_of(with_search(paper, vary=order), "conventions")] for order in orders]
    assert paths[0] == paths[1]


def test_a_reading_sets_conventions_strength_and_epochs_and_nothing_else(paper):
    given = {"conventions.activation": "post", "conventions.bias": True, "highway.sigma_v": 0.001}
    config = with_search(paper, methods="hep", select=None, vary=given)
    (run,) = runs_of(config, "conventions")
    assert run.path == "conventions/s/mnist/L008/hep/post-bias-sigma_v0.001/seed0"
    plain = spec_at(paper, "depth/mnist/L008/hep/seed0").to_dict()
    plain["epochs"] = 2
    plain["highway"]["sigma_v"] = 0.001
    plain["conventions"] |= {"activation": "post", "bias": True}
    assert run.spec.to_dict() == plain


def test_methods_share_the_runs_of_readings_that_mean_the_same_to_them(paper):
    given = {
        "conventions.activation": "post",
        "conventions.state_gradient": ["mean", "sum"],
        "highway.sigma_v": [1e-3, 1e-2],
    }
    config = with_search(paper, vary=given)
    found = [run.path.split("/") for run in configuration.all_runs(config).values()]
    found = [path for path in found if path[:2] == ["conventions", "s"]]
    names = {method: {path[5] for path in found if path[4] == method} for method in ("pc", "hep", "backprop")}
    assert len(names["hep"]) == 4
    assert names["pc"] == {"post-mean", "post-sum"}
    assert names["backprop"] == {"post"}
    assert len(readings(config)) == 4
    assert all({variant.method for variant in one.variants.values()} == set(names) for one in readings(config))


def test_the_reading_of_the_configuration_is_the_papers_table(paper):
    own = {
        "conventions.activation": paper["conventions"]["activation"],
        "highway.sigma_v": paper["highway"]["sigma_v"],
    }
    cells = {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]}
    config = with_search(paper, cells=cells, epochs=paper["training"]["epochs"], vary=own)
    (reading,) = readings(config)
    assert reading.settings == settings_of(config)
    assert reading.default
    table = {run.path: run for run in runs_of(config, "depth")}
    runs = runs_of(config, "conventions")
    assert len(runs) == 3 + 3 + 6 + 2
    assert all(table[run.path] == run for run in runs)


def test_a_wrong_value_in_a_reading_is_refused_where_it_stands(paper):
    with pytest.raises(SpecError, match=r"conventions: .*mnist, depth 8, pc, .*conventions.activation: 'never'"):
        configuration.validate(with_search(paper, vary={"conventions.activation": "never"}))
    with pytest.raises(SpecError, match=r"conventions: .*colour"):
        configuration.validate(with_search(paper, vary={"conventions.colour": "blue"}))


def test_ablations_change_what_their_row_says_and_nothing_else(paper):
    hep = spec_at(paper, "depth/mnist/L016/hep/seed0")
    assert arm(paper, "hep")[0].runs[0].path == "depth/mnist/L016/hep/seed0"
    cut = spec_at(paper, "ablations/no_chain/mnist/L016/hep/seed0").to_dict()
    redraw = spec_at(paper, "ablations/redraw/mnist/L016/hep/seed0").to_dict()
    assert (cut["highway"].pop("chain"), redraw["highway"].pop("redraw")) == (False, True)
    for changed in (cut, redraw):
        expected = hep.to_dict()
        for key in ("chain", "redraw"):
            expected["highway"].pop(key), changed["highway"].pop(key, None)
        assert changed == expected

    pc = spec_at(paper, "depth/mnist/L016/pc/seed0")
    (longer, _) = arm(paper, "pc_4T")
    assert (longer.runs[0].spec.inference.steps, pc.inference.steps) == (384, 96)
    assert longer.runs[0].spec == pc.changed({"inference.steps": 384})

    (rates, _) = arm(paper, "pc_rates")
    assert rates.place == ("mnist", 16)
    assert len(rates.runs) == len(rates.choice.candidates) + 2 == 5 + 2
    dfa = spec_at(paper, "ablations/mnist/L016/dfa/seed2")
    assert (dfa.inference, dfa.highway) == (None, hep.highway)
    assert dfa.endpoints == tuple(range(1, 16))  # DFA feeds every hidden layer, whatever S is for HEP


def test_a_row_has_its_own_epochs_and_rates(paper):
    """BP at depth 128 has the paper's 24k updates; with 12 epochs it is the ablation `short_schedule`."""
    variants = [one for one in plan(paper).of("depth") if (one.depth, one.method) == (128, "backprop")]
    assert [one.dataset for one in variants] == ["mnist", "fashion_mnist"]
    for variant in variants:
        swept = [run for run in variant.runs if run.selection is None]
        assert [run.spec.learning.lr for run in swept] == [1e-5, 3e-5, 1e-4]
        for spec in (run.spec for run in variant.runs):
            assert (spec.epochs, spec.learning.horizon, spec.learning.schedule) == (62, 24000, "warmup_cosine")
            assert 61 * 391 < spec.learning.horizon <= 62 * 391
    (short,) = arm(paper, "short_schedule")
    assert len(short.runs) == 6 + 2
    for spec in (run.spec for run in short.runs):
        assert (spec.epochs, spec.learning.horizon, spec.network.initialisation) == (12, None, "orthogonal")
    # BP among the baselines has the same 12 epochs at that depth, so it shares these runs.
    shared = [one for one in plan(paper).of("baselines") if (one.depth, one.method) == (128, "backprop")]
    assert {run.path for one in shared for run in one.runs} <= {run.path for run in short.runs}


def test_ablations_of_the_e_step_and_of_the_normalisation_change_that_alone(paper):
    by_path = {path: run.spec for path, run in configuration.all_runs(paper).items()}
    for depth in (8, 16):
        hep = by_path[f"depth/mnist/L{depth:03d}/hep/seed2"]
        euler = by_path[f"ablations/euler/mnist/L{depth:03d}/hep/seed2"]
        assert euler == hep.changed({"inference.optimizer": "euler", "inference.step_size": 0.5})
        on_sum = by_path[f"ablations/euler_sum/mnist/L{depth:03d}/hep/seed2"]
        assert on_sum == euler.changed({"conventions.state_gradient": "sum"})
        plain = by_path[f"ablations/hep_plain/mnist/L{depth:03d}/hep/seed2"]
        assert plain == hep.changed({"conventions.normalisation": "none"})
        pc = by_path[f"depth/mnist/L{depth:03d}/pc/seed2"]
        plain = by_path[f"ablations/pc_plain/mnist/L{depth:03d}/pc/seed2"]
        assert plain == pc.changed({"conventions.normalisation": "none"})


def test_seeds_of_a_sweep_without_rates_are_refused(paper):
    with pytest.raises(SpecError, match=r"experiments: ablations: pc_rates: select: among is missing"):
        configuration.validate(row(paper, "ablations", 5, select={"seeds": [3]}))


@pytest.mark.parametrize(("name", "number"), [("backprop_fresh", 9), ("pc_rates_fresh", 2)])
def test_an_ablation_chooses_the_rate_on_a_seed_that_is_not_reported(paper, name, number):
    fresh = arm(paper, name)
    assert len(fresh) == number
    for variant in fresh:
        swept = [run for run in variant.runs if run.selection is None]
        reported = [run.spec.seed for run in variant.runs if run.selection is not None]
        assert {run.spec.seed for run in swept} == {3}
        assert len(swept) == len(variant.choice.candidates)
        assert tuple(reported) == variant.seeds


def test_an_ablation_can_do_without_the_settings_of_another_row(paper):
    (variant,) = arm(paper, "no_exception")
    others = cell_spec(paper, "mnist", 64, "backprop", 0)  # initialisation and schedule of all other methods
    for run in variant.runs:
        spec = run.spec
        assert spec.network == replace(others.network, depth=128)
        assert spec.learning == replace(others.learning, lr=spec.learning.lr)
    assert len(variant.runs) == 3


def test_an_ablation_of_the_batch_size_changes_that_alone(paper):
    ((run,),) = [variant.runs for variant in arm(paper, "small_batches")]
    assert run.spec == replace(spec_at(paper, "depth/mnist/L008/hep/seed0"), batch_size=32)


def test_ablations_that_change_nothing_are_cells_of_the_table(paper):
    table = {run.path for run in runs_of(paper, "depth")}
    unchanged = [run for name in ("hep", "pc") for variant in arm(paper, name) for run in variant.runs]
    assert len(unchanged) == 2 * (3 + 1)
    assert {run.path for run in unchanged} <= table
    # Of the other ablations only the candidate with the printed rate is a cell of the table.
    others = [variant for variant in plan(paper).of("ablations") if variant.name not in ("hep", "pc")]
    assert {run.path for one in others for run in one.runs} & table == {"depth/mnist/L016/pc/seed0"}
