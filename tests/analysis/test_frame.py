import json

import pytest

from highways.analysis.data.frame import curves, layers, load
from highways.experiments.configuration import all_runs


def only(frame, path):
    (row,) = frame[frame["path"] == path].to_dict("records")
    return row


def test_every_run_asked_for_is_a_row_and_what_has_no_record_is_not_run(config, folder):
    runs = all_runs(config)
    frame = load(runs, folder)
    assert list(frame["path"]) == list(runs)
    assert set(frame["status"]) == {"not run"}
    assert frame["test_accuracy"].isna().all()


def test_a_record_becomes_a_row(config, folder, record, find):
    run = find("L008/hep/seed1")
    record(run, 0.95, 0.96, curve=[0.96, 0.94])
    row = only(load(all_runs(config), folder), run.path)
    expected = {
        "dataset": "mnist",
        "depth": 8,
        "method": "hep",
        "alpha": 1.8,
        "every": 1,
        "lr": 8e-5,
        "seed": 1,
        "selected": False,
        "status": "ok",
        "problem": "",
        "test_accuracy": 0.95,
        "validation_accuracy": 0.96,
        "best_epoch": 1,
        "epochs": 12,
        "n_train": 50000,
        "n_validation": 10000,
        "n_test": 10000,
        "wall_seconds": 1.5,
        "cpu_seconds": 1.4,
        "spec_hash": run.spec.hash,
        "kernel": "reference",
        "device": "cpu",
    }
    assert {key: row[key] for key in expected} == expected


def test_a_selected_run_takes_its_rate_from_its_record(config, folder, record, find):
    run = find("L004/backprop/selected/seed1")
    assert load({run.path: run}, folder)["lr"].isna().all()
    record(run, lr=1e-3)
    row = only(load({run.path: run}, folder), run.path)
    assert (row["status"], row["lr"], row["selected"]) == ("ok", 1e-3, True)


def test_another_rate_is_another_setting_where_the_rate_is_not_selected(config, folder, record, find):
    run = find("L004/backprop/lr0.0001/seed0")
    record(run, lr=3e-3)
    row = only(load({run.path: run}, folder), run.path)
    assert (row["status"], row["problem"]) == ("invalid", "made with another setting: learning.lr")


def test_a_record_of_other_settings_is_invalid_and_names_them(config, folder, record, find):
    run = find("L008/hep/seed0")

    def change(spec):
        spec["epochs"] = 3
        spec["conventions"]["activation"] = "post"

    record(run, change=change)
    row = only(load({run.path: run}, folder), run.path)
    assert row["status"] == "invalid"
    assert row["problem"] == "made with another setting: conventions.activation, epochs"
    assert row["test_accuracy"] != row["test_accuracy"]
    assert curves({run.path: run}, folder).empty


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"text"', "{}", "\x00", '{"version": 1}', json.dumps({"spec": 1})]
)
def test_a_broken_record_is_invalid_in_one_line_without_its_folder(config, folder, find, text):
    run = find("L004/pc", "seed0")
    path = folder / f"{run.path}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    row = only(load({run.path: run}, folder), run.path)
    assert row["status"] == "invalid"
    assert row["problem"]
    assert "\n" not in row["problem"]
    assert str(folder) not in row["problem"]


def test_a_folder_in_the_place_of_a_record_is_invalid(config, folder, find):
    run = find("L004/pc", "seed0")
    (folder / f"{run.path}.json").mkdir(parents=True)
    assert only(load({run.path: run}, folder), run.path)["status"] == "invalid"


def test_curves_have_one_row_per_epoch_of_the_runs_that_ran(config, folder, record, find):
    run = find("L004/pc", "seed2")
    record(run, diverged=3, curve=[0.2, 0.4, None])
    frame = curves(all_runs(config), folder)
    assert list(frame["epoch"]) == [1, 2, 3]
    assert list(frame["validation_accuracy"])[:2] == [0.2, 0.4]
    assert frame["validation_accuracy"].isna().tolist() == [False, False, True]
    assert set(frame["path"]) == {run.path}
    assert set(frame["seed"]) == {2}


def test_layers_have_one_row_per_value_and_what_only_some_rules_have(config, folder, record, find):
    path = record(find("L004/pc", "seed0"), curve=[0.2])
    document = json.loads(path.read_text(encoding="utf-8"))
    document["diagnostics"][1]["first_cosine"] = [-0.5, None, None, None]
    path.write_text(json.dumps(document), encoding="utf-8")
    frame = layers(all_runs(config), folder)
    assert list(frame["epoch"].value_counts().sort_index()) == [15, 19, *[15] * 11]
    found = frame[frame["quantity"] == "first_cosine"]
    assert list(found["layer"]) == [0, 1, 2, 3]
    assert found["value"].tolist()[0] == -0.5
    assert set(frame[frame["quantity"] == "rms_state"]["layer"]) == {1, 2, 3}


def test_a_record_that_changes_is_read_again(config, folder, record, find):
    run = find("L008/hep/seed1")
    for accuracy in (0.95, 0.25):
        record(run, accuracy, 0.96)
        assert only(load(all_runs(config), folder), run.path)["test_accuracy"] == accuracy
