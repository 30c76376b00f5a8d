"""The convention search and the controls: which runs they ask for, and which they share with the paper's table."""

from dataclasses import replace

import pytest

from highways.experiments import configuration
from highways.experiments.ablations import arms, control_runs
from highways.experiments.readings import reading_runs, readings, settings_of
from highways.experiments.runs import cell_runs, cell_spec, table_runs
from highways.specs.fields import SpecError
from mappings import changed


def search(**stage):
    return [
        {
            "name": "s",
            "cells": [{"dataset": "mnist", "depth": 8}],
            "methods": ["pc", "hep", "backprop"],
            "seeds": [0],
            "epochs": 2,
            **stage,
        }
    ]


def with_search(paper, **stage):
    return changed(paper, convention_search=search(**stage))


def test_lists_stand_for_all_their_combinations(paper):
    given = {"activation": ["post", "both"], "bias": [True, False], "sigma_v": 0.01}
    found = readings(with_search(paper, readings=[given, {"activation": "pre_norm"}]))
    assert [reading.given for reading in found] == [
        {"activation": "post", "bias": True, "sigma_v": 0.01},
        {"activation": "post", "bias": False, "sigma_v": 0.01},
        {"activation": "both", "bias": True, "sigma_v": 0.01},
        {"activation": "both", "bias": False, "sigma_v": 0.01},
        {"activation": "pre_norm"},
    ]


def test_the_place_of_a_run_does_not_depend_on_the_order_of_the_keys(paper):
    given = {"activation": "post", "bias": True, "sigma_v": 0.01}
    orders = (given, dict(reversed(given.items())))
    paths = [[run.path for run in reading_runs(with_search(paper, readings=[order]))] for order in orders]
    assert paths[0] == paths[1]


def test_a_reading_sets_conventions_strength_and_epochs_and_nothing_else(paper):
    given = {"activation": "post", "bias": True, "sigma_v": 0.01}
    (run,) = reading_runs(with_search(paper, methods=["hep"], readings=[given]))
    assert run.path == "conventions/s/post-bias-sigma_v0.01/mnist/L008/hep/alpha1.8_k1/seed0"
    plain = next(r for r in table_runs(paper) if r.path == "paper/mnist/L008/hep/alpha1.8_k1/seed0").spec.to_dict()
    plain["epochs"] = 2
    plain["highway"]["sigma_v"] = 0.01
    plain["conventions"] |= {"activation": "post", "bias": True}
    assert run.spec.to_dict() == plain


def test_methods_share_the_runs_of_readings_that_mean_the_same_to_them(paper):
    given = {"activation": "post", "state_gradient": ["mean", "sum"], "sigma_v": [1e-3, 1e-2]}
    runs = [run.path.split("/") for run in reading_runs(with_search(paper, readings=[given]))]
    names = {method: {path[2] for path in runs if path[5] == method} for method in ("pc", "hep", "backprop")}
    assert len(names["hep"]) == 4
    assert names["pc"] == {"post-mean", "post-sum"}
    assert names["backprop"] == {"post"}


def test_the_reading_of_the_configuration_is_the_papers_table(paper):
    own = {"activation": paper["conventions"]["activation"], "sigma_v": paper["highway"]["sigma_v"]}
    config = with_search(paper, seeds=paper["seeds"], epochs=paper["training"]["epochs"], readings=[own])
    (reading,) = readings(config)
    assert reading.settings == settings_of(config)
    table = {run.path: run for run in table_runs(config)}
    runs = list(reading_runs(config))
    assert len(runs) == 3 + 3 + 6 + 2
    assert all(table[run.path] == run for run in runs)


def test_a_wrong_value_in_a_reading_is_refused_where_it_stands(paper):
    with pytest.raises(SpecError, match=r"mnist, depth 8, pc, seed 0: conventions.activation: 'never'"):
        configuration.validate(with_search(paper, readings=[{"activation": "never"}]))
    with pytest.raises(SpecError, match=r"convention_search.*colour"):
        configuration.validate(with_search(paper, readings=[{"colour": "blue"}]))


def test_controls_change_what_their_arm_says_and_nothing_else(paper):
    by_path = {run.path: run.spec for run in control_runs(paper)}
    hep = by_path["paper/mnist/L016/hep/alpha1.8_k1/seed0"]
    cut = by_path["controls/no_chain/mnist/L016/hep/alpha1.8_k1_nochain/seed0"].to_dict()
    redraw = by_path["controls/redraw/mnist/L016/hep/alpha1.8_k1_redraw/seed0"].to_dict()
    assert (cut["highway"].pop("chain"), redraw["highway"].pop("redraw")) == (False, True)
    for control in (cut, redraw):
        expected = hep.to_dict()
        for key in ("chain", "redraw"):
            expected["highway"].pop(key), control["highway"].pop(key, None)
        assert control == expected

    pc = by_path["paper/mnist/L016/pc/lr8e-05/seed0"]
    longer = by_path["controls/pc_4T/mnist/L016/pc/lr8e-05/seed0"]
    assert (longer.inference.steps, pc.inference.steps) == (384, 96)

    rates = next(arm for arm in arms(paper) if arm.name == "pc_rates")
    swept = [path for path in by_path if path.startswith("controls/pc_rates/mnist/L016")]
    assert len(swept) == len(rates.config["learning_rate_sweep"]["learning_rates"]) + 2
    dfa = by_path["controls/dfa/mnist/L016/dfa/alpha1.8_k1/seed2"]
    assert (dfa.inference, dfa.highway) == (None, hep.highway)
    assert dfa.endpoints == tuple(range(1, 16))  # it has no other signal, whatever S is for HEP


def test_the_exception_of_a_place_has_its_own_epochs_rates_and_folder(paper):
    """The paper's 24k updates of BP at depth 128; the records of the 12 epochs are where they were."""
    runs = [run for run in table_runs(paper) if (run.spec.network.depth, run.spec.method) == (128, "backprop")]
    assert {run.path.rpartition("/mnist/")[0] or run.path.rpartition("/fashion_mnist/")[0] for run in runs} == {
        "controls/long_schedule"
    }
    swept = [run for run in runs if run.selection is None and run.spec.dataset == "mnist"]
    assert [run.spec.learning.lr for run in swept] == [1e-5, 3e-5, 1e-4]
    for spec in (run.spec for run in runs):
        assert (spec.epochs, spec.learning.horizon, spec.learning.schedule) == (62, 24000, "warmup_cosine")
        assert 61 * 391 < spec.learning.horizon <= 62 * 391
    (arm,) = [arm for arm in arms(paper) if arm.name == "short_schedule"]
    short = list(cell_runs(arm.config, *arm.cell))
    assert {run.path.rpartition("/mnist/")[0] for run in short} == {"paper"}
    assert len(short) == 6 + 2
    for spec in (run.spec for run in short):
        assert (spec.epochs, spec.learning.horizon, spec.network.initialisation) == (12, None, "orthogonal")


def test_controls_of_the_e_step_and_of_the_normalisation_change_that_alone(paper):
    by_path = {run.path: run.spec for run in [*control_runs(paper), *table_runs(paper)]}
    for depth in (8, 16):
        hep = by_path[f"paper/mnist/L{depth:03d}/hep/alpha1.8_k1/seed2"]
        euler = by_path[f"controls/euler/mnist/L{depth:03d}/hep/alpha1.8_k1/seed2"]
        assert euler == hep.changed({"inference.optimizer": "euler", "inference.step_size": 0.5})
        on_sum = by_path[f"controls/euler_sum/mnist/L{depth:03d}/hep/alpha1.8_k1/seed2"]
        assert on_sum == euler.changed({"conventions.state_gradient": "sum"})
        plain = by_path[f"controls/hep_plain/mnist/L{depth:03d}/hep/alpha1.8_k1/seed2"]
        assert plain == hep.changed({"conventions.normalisation": "none"})
        pc = by_path[f"paper/mnist/L{depth:03d}/pc/lr8e-05/seed2"]
        plain = by_path[f"controls/pc_plain/mnist/L{depth:03d}/pc/lr8e-05/seed2"]
        assert plain == pc.changed({"conventions.normalisation": "none"})


def test_seeds_of_a_sweep_without_rates_are_refused(paper):
    arm = {"name": "a", "title": "A", "method": "pc", "sweep_seeds": [3]}
    controls = {**paper["controls"], "arms": [arm]}
    with pytest.raises(SpecError, match="learning_rates"):
        configuration.validate(changed(paper, controls=controls))


@pytest.mark.parametrize(("name", "number"), [("backprop_fresh", 9), ("pc_rates_fresh", 2)])
def test_a_control_chooses_the_rate_on_a_seed_that_is_not_reported(paper, name, number):
    fresh = [arm for arm in arms(paper) if arm.name == name]
    assert len(fresh) == number
    for arm in fresh:
        runs = list(cell_runs(arm.config, *arm.cell))
        swept = [run for run in runs if run.selection is None]
        reported = [run.spec.seed for run in runs if run.selection is not None]
        assert {run.spec.seed for run in swept} == {3}
        assert len(swept) == len(arm.config["learning_rate_sweep"]["learning_rates"])
        assert reported == arm.config["seeds"]


def test_a_control_can_do_without_the_exception_of_its_method(paper):
    runs = [run for run in control_runs(paper) if run.path.startswith("controls/no_exception/")]
    others = cell_spec(paper, "mnist", 64, "backprop", 0)  # a depth that has no exception
    for run in runs:
        spec = run.spec
        assert spec.network == replace(others.network, depth=128)
        assert spec.learning == replace(others.learning, lr=spec.learning.lr)
    assert len(runs) == 3


def test_a_control_of_the_batch_size_changes_that_alone(paper):
    (run,) = [run for run in control_runs(paper) if run.path.startswith("controls/small_batches/")]
    of_table = {run.path: run.spec for run in table_runs(paper)}["paper/mnist/L008/hep/alpha1.8_k1/seed0"]
    assert run.spec == replace(of_table, batch_size=32)


def test_controls_that_change_nothing_are_cells_of_the_table(paper):
    table = {run.path for run in table_runs(paper)}
    shared = [run.path for run in control_runs(paper) if run.path.startswith("paper/")]
    of_table = [path for path in shared if "/L128/" not in path]  # BP in 12 epochs is of the same folder
    assert len(of_table) == 2 * (3 + 1)
    assert set(of_table) <= table
    assert {path.split("/")[3] for path in set(shared) - set(of_table)} == {"backprop"}
