import json

import pytest
from benchmarked import asked_for

from highways.analysis import commands
from highways.analysis.data.frame import load
from highways.analysis.data.selection import SelectionError, select
from highways.experiments import status
from highways.experiments.plan import plan
from highways.experiments.results import sweep_hash
from highways.record import RecordError


@pytest.fixture
def name(config):
    config["experiments"][0]["select"] |= {"seeds": [0, 1], "among": {"learning.lr": [3e-3, 1e-4, 1e-3]}}
    return "depth/mnist/L004/backprop"


def sweep_of(config, name):
    return [run for run in plan(config).runs.values() if run.path.startswith(f"{name}/lr")]


@pytest.fixture
def sweep(config, folder, name, record):
    """Write the sweep's records: rate -> one (validation, test) per sweep seed; None leaves a run out."""

    def write(results):
        runs = sweep_of(config, name)
        assert len(runs) == 6
        for run in runs:
            pair = results[run.spec.learning.lr][run.spec.seed]
            if pair is not None:
                validation, test = pair
                record(run, test, validation, diverged=1 if validation is None else None)
        return load({run.path: run for run in runs}, folder)

    return write


def test_the_rate_is_chosen_on_validation_and_not_on_test_accuracy(sweep):
    frame = sweep(
        {
            1e-4: [(0.90, 0.99), (0.90, 0.99)],
            1e-3: [(0.92, 0.80), (0.94, 0.80)],
            3e-3: [(0.95, 0.90), (0.90, 0.90)],
        }
    )
    selection = select(frame)
    assert selection.settings == {"learning.lr": 1e-3}
    assert [tuple(one.values()) for one in selection.to_dict()["candidates"]] == [
        ({"learning.lr": 1e-4}, pytest.approx(0.90)),
        ({"learning.lr": 1e-3}, pytest.approx(0.93)),
        ({"learning.lr": 3e-3}, pytest.approx(0.925)),
    ]


def test_of_equal_rates_the_smaller_is_chosen(sweep):
    # In binary the two sums differ: 0.1 + 0.7 < 0.2 + 0.6.
    frame = sweep(
        {
            1e-4: [(0.1, 0.5), (0.7, 0.5)],
            1e-3: [(0.2, 0.9), (0.6, 0.9)],
            3e-3: [(0.1, 0.5), (0.1, 0.5)],
        }
    )
    assert select(frame).settings == {"learning.lr": 1e-4}


def test_a_rate_with_a_run_that_diverged_without_accuracy_is_excluded(sweep):
    frame = sweep(
        {
            1e-4: [(0.80, 0.8), (0.80, 0.8)],
            1e-3: [(0.99, 0.9), (None, None)],
            3e-3: [(0.70, 0.7), (0.70, 0.7)],
        }
    )
    selection = select(frame)
    assert selection.settings == {"learning.lr": 1e-4}
    assert list(selection.validation_accuracy.values()) == [0.8, None, 0.7]


def test_nothing_is_chosen_where_all_rates_diverged(sweep):
    assert select(sweep({rate: [(None, None)] * 2 for rate in (1e-4, 1e-3, 3e-3)})) is None


def test_nothing_is_chosen_from_an_unfinished_sweep(sweep):
    frame = sweep(
        {
            1e-4: [(0.9, 0.9), (0.9, 0.9)],
            1e-3: [(0.8, 0.8), None],
            3e-3: [(0.7, 0.7), (0.7, 0.7)],
        }
    )
    assert select(frame) is None


def test_nothing_is_chosen_from_nothing(sweep):
    assert select(sweep({rate: [None] * 2 for rate in (1e-4, 1e-3, 3e-3)})) is None


@pytest.fixture
def records(config, folder, name):
    return [folder / f"{run.path}.json" for run in sweep_of(config, name)]


def test_the_command_writes_the_selection(config, name, sweep, records, tmp_path):
    sweep({rate: [(rate, 0.5)] * 2 for rate in (1e-4, 1e-3, 3e-3)})
    out = tmp_path / "deep" / "selection.json"
    commands.select(records, out)
    assert json.loads(out.read_text(encoding="utf-8")) == {
        "sweep": sweep_hash(run.spec.hash for run in sweep_of(config, name)),
        "settings": {"learning.lr": 3e-3},
        "candidates": [
            {"settings": {"learning.lr": rate}, "validation_accuracy": rate} for rate in (1e-4, 1e-3, 3e-3)
        ],
    }


@pytest.mark.parametrize(("text", "problem"), [(None, "cannot be read"), ("{", "not valid JSON")])
def test_the_command_names_a_record_that_cannot_be_used(sweep, records, tmp_path, text, problem):
    sweep({rate: [(0.9, 0.5)] * 2 for rate in (1e-4, 1e-3, 3e-3)})
    records[0].unlink()
    if text is not None:
        records[0].write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=f"seed0.json: {problem}") as caught:
        commands.select(records, tmp_path / "out.json")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.json").exists()


def test_the_command_refuses_the_records_of_two_cells(sweep, records, record, find, tmp_path):
    sweep({rate: [(0.9, 0.5)] * 2 for rate in (1e-4, 1e-3, 3e-3)})
    other = record(find("L004/pc", "seed0"))
    with pytest.raises(SelectionError, match=r"differ in method; candidates are of one cell"):
        commands.select([*records, other], tmp_path / "out.json")


def test_the_command_refuses_rates_with_different_seeds(sweep, records, tmp_path):
    sweep({rate: [(0.9, 0.5)] * 2 for rate in (1e-4, 1e-3, 3e-3)})
    with pytest.raises(SelectionError, match=r"every candidate needs the same seeds, found .*: \[1\]"):
        commands.select(records[1:], tmp_path / "out.json")


def test_where_every_rate_diverged_the_smallest_is_taken_so_that_the_rest_goes_on(
    config, name, sweep, records, tmp_path
):
    sweep({rate: [(None, None)] * 2 for rate in (1e-4, 1e-3, 3e-3)})
    commands.select(records, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == {
        "sweep": sweep_hash(run.spec.hash for run in sweep_of(config, name)),
        "settings": {"learning.lr": 1e-4},
        "candidates": [
            {"settings": {"learning.lr": rate}, "validation_accuracy": None} for rate in (1e-4, 1e-3, 3e-3)
        ],
    }


def test_a_setting_of_the_rule_is_chosen_with_the_rate(config, folder, record, tmp_path):
    runs = [run for one in asked_for(config) if (one.name, one.depth) == ("lra", 8) for run in one.runs]
    tuned = [run for run in runs if run.selection is None]
    accuracies = {(1e-4, 0.1): 0.5, (1e-4, 0.3): 0.7, (1e-3, 0.1): 0.6, (1e-3, 0.3): 0.7}
    files = [record(run, validation=accuracies[run.spec.learning.lr, run.spec.rule.beta]) for run in tuned]
    commands.select(files, tmp_path / "out.json")
    chosen = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert chosen["settings"] == {"learning.lr": 1e-4, "rule.beta": 0.3}
    assert len(chosen["candidates"]) == 4
    assert select(load({run.path: run for run in runs}, folder)).settings == chosen["settings"]


def test_a_record_of_another_choice_or_other_settings_is_outdated(config, folder, name, record):
    config["experiments"][0]["select"]["seeds"] = [0]

    def asked() -> list:
        return [run for run in plan(config).runs.values() if run.path.startswith(name)]

    runs = asked()
    waiting = [run for run in runs if run.selection]
    for run in runs:
        record(run, lr=1e-3 if run.selection else None)
    assert {status.state(run, folder)[0] for run in runs} == {"done"}
    chosen = status.selections_folder(folder) / f"{name}.json"
    chosen.parent.mkdir(parents=True)
    candidates = [{"settings": {"learning.lr": rate}} for rate in (1e-4, 1e-3, 3e-3)]
    for rate, state in ((1e-3, "done"), (3e-3, "outdated")):
        chosen.write_text(
            json.dumps({"settings": {"learning.lr": rate}, "candidates": candidates}), encoding="utf-8"
        )
        assert {status.state(run, folder)[0] for run in waiting} == {state}
        assert all(("learning.lr" in status.state(run, folder)[1]) == (state == "outdated") for run in waiting)
    config["training"]["weight_decay"] = 0.5
    assert all("learning.weight_decay" in status.state(run, folder)[1] for run in asked())
