"""`highways.records`: every record in one frame, with a role for runs that must not be averaged together."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest

import highways
from highways.analysis.data.records import records
from highways.cli import main
from highways.experiments.configuration import all_runs
from highways.experiments.results import Results

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def every() -> pd.DataFrame:
    """The frame of the records that come with the project."""
    return highways.records(ROOT / "config.yaml", "nowhere", ROOT / "results/reference")


@pytest.fixture
def swept(config, record, find):
    """Files of backprop runs: two rates on seed 0, the second one better, and seeds 1 and 2 at that rate."""
    runs = {
        "0.0001": record(find("L004/backprop/lr0.0001/seed0"), test=0.5, validation=0.5),
        "0.001": record(find("L004/backprop/lr0.001/seed0"), test=0.8, validation=0.8),
        "seed1": record(find("L004/backprop/selected/seed1"), test=0.7, lr=1e-3),
        "seed2": record(find("L004/backprop/selected/seed2"), test=0.6, lr=1e-3),
    }
    return {name: str(path) for name, path in runs.items()}


def test_a_candidate_that_is_reported_counts_once_and_the_others_never(config, folder, swept):
    found = records(config, folder).query("experiment == 'depth'").set_index("file")
    assert found["role"].to_dict() == {
        swept["0.0001"]: "candidate",
        swept["0.001"]: "reported",
        swept["seed1"]: "reported",
        swept["seed2"]: "reported",
    }
    reported = found[found["role"] == "reported"]
    assert sorted(reported["test_accuracy"]) == [0.6, 0.7, 0.8]
    assert sorted(reported["seed"]) == [0, 1, 2]
    assert set(reported["learning.lr"]) == {1e-3}


def test_a_row_has_what_the_record_and_its_specification_say(config, folder, record, find):
    run = find("L008/hep/seed1")
    path = record(run, 0.95, 0.96, curve=[0.9, 0.96])
    row = records(config, folder).query("experiment == 'depth'").iloc[0]
    expected = {
        "row": "hep",
        "role": "reported",
        "dataset": "mnist",
        "depth": 8,
        "method": "hep",
        "seed": 1,
        "test_accuracy": 0.95,
        "validation_accuracy": 0.96,
        "best_epoch": 2,
        "status": "ok",
        "kernel": "reference",
        "source": "own",
        "file": str(path),
        "highway.alpha": 1.8,
        "inference.steps": 96,
        "learning.lr": 8e-5,
        "network.width": 128,
        "epochs": 12,
    }
    assert {key: row[key] for key in expected} == expected


def test_a_shared_record_has_a_row_in_each_experiment(config, folder, record, find):
    """One run is a cell of `depth`, the ablation that changes nothing, and the printed rate times 1."""
    record(find("L008/hep/seed1"))
    found = records(config, folder)
    assert {"depth", "ablations", "rates"} <= set(found["experiment"])
    assert found["file"].nunique() == 1
    assert set(found["role"]) == {"reported"}


def test_your_own_record_stands_before_that_of_the_reference(config, tmp_path, record, find):
    run = find("L008/hep/seed1")
    kept = record(run, 0.5)
    reference = {path: kept for path in all_runs(config) if path == run.path}
    behind = records(config, Results(tmp_path / "empty", reference))
    assert (set(behind["source"]), set(behind["test_accuracy"])) == ({"reference"}, {0.5})
    assert set(records(config, Results(tmp_path / "runs", reference))["source"]) == {"own"}


def test_a_configuration_without_records_has_the_columns(config, folder):
    found = records(config, folder)
    assert found.empty
    assert {"experiment", "role", "test_accuracy", "file"} <= set(found.columns)


def test_what_is_reported_gives_the_numbers_of_the_committed_table(every):
    """Cell by cell: mean, sample standard deviation and number of seeds."""
    table = pd.read_csv(ROOT / "results/reference/tables/depth.csv")
    table = table[table["n"] > 0].set_index(["dataset", "depth", "method"])
    chosen = every[(every["experiment"] == "depth") & (every["role"] == "reported")]
    cells = chosen.groupby(["dataset", "depth", "method"])["test_accuracy"]
    assert len(cells) == len(table) > 20
    for place, accuracies in cells:
        assert accuracies.count() == table.loc[place, "n"], place
        assert 100 * accuracies.mean() == pytest.approx(table.loc[place, "mean"], abs=1e-6), place
        if len(accuracies) > 1:
            assert 100 * accuracies.std() == pytest.approx(table.loc[place, "std"], abs=1e-6), place


def test_every_record_of_the_reference_is_in_it(every):
    files = {Path(file).relative_to(ROOT / "results/reference").as_posix() for file in every["file"]}
    index = json.loads((ROOT / "results/reference/index.json").read_text(encoding="utf-8"))
    assert files <= index["records"].keys()
    assert len(index["records"].keys() - files) < 0.05 * len(files)  # of equal specifications one is read


def test_the_command_prints_it(config, folder, swept, tmp_path, capsys):
    words = ["records", "--config", json.dumps(config), "--runs", str(folder), "--reference", str(tmp_path)]
    assert main([*words, "--csv"]) == 0
    printed = pd.read_csv(io.StringIO(capsys.readouterr().out))
    expected = records(config, folder)
    assert list(printed.columns) == list(expected.columns)
    assert list(printed["test_accuracy"]) == list(expected["test_accuracy"])
    assert main(words) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["experiment", "row", "role"]
    assert len(lines) == len(expected)
    assert lines[0].split()[-1] == expected["file"][0]
