"""`status` names broken records and selections, ignores broken progress files, and goes on."""

import json
import os
import socket
import time

import pytest

from highways.cli import main
from highways.experiments import status
from highways.experiments.bundle import choose
from highways.experiments.runs import Run
from highways.training import loop as training
from highways.training.machine import Machine
from highways.training.progress import heartbeat_path

DEEP = "[" * 200_000
BEAT = {"pid": os.getpid(), "epoch": 1, "epochs": 2, "batch": 3, "batches": 9}


@pytest.fixture
def folder(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    return runs


def beat(folder, run: Run, **changes) -> tuple[str, str]:
    text = json.dumps({**BEAT, "host": socket.gethostname(), "updated": time.time(), **changes})
    heartbeat_path(folder / f"{run.path}.json").write_text(text, encoding="utf-8")
    return status.state(run, folder)


TWICE = '{"settings": 1, "settings": {"learning.lr": 2}}'
NO_SETTINGS = ["", '{"settings"', "[]", "{}", '{"settings": {}}', DEEP, TWICE]
WRONG_SETTINGS = ['{"settings": {"no.such": 1}}', '{"settings": {"learning.lr": "x"}}']


@pytest.mark.parametrize("content", [*NO_SETTINGS, *WRONG_SETTINGS])
def test_a_broken_selection_is_named(tiny, folder, content, capsys):
    spec = tiny("backprop", epochs=1)
    run = Run("r", spec, selection="chosen/hep")
    training.train(spec, folder / "r.json", Machine(quiet=True))
    file = folder.parent / "selections" / "chosen" / "hep.json"
    file.parent.mkdir(parents=True)
    file.write_text(content, encoding="utf-8")
    state, remark = status.state(run, folder)
    assert state == "broken"
    assert remark.startswith(f"{file}: ")
    assert len(remark) < 600 + len(str(file))
    assert remark.isprintable()
    unfinished = Run("other", spec, selection="chosen/hep")
    if content in NO_SETTINGS:
        assert choose([unfinished], folder, folder.parent / "selections").waiting == ("other",)
    assert (
        main(["train", "--spec", spec.to_json(), "--selection", str(file), "--out", str(folder / "n.json")]) == 1
    )
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_sound_selection_counts(tiny, folder):
    spec = tiny("backprop", epochs=1)
    run = Run("r", spec, selection="chosen")
    training.train(spec, folder / "r.json", Machine(quiet=True))
    file = folder.parent / "selections" / "chosen.json"
    file.parent.mkdir(parents=True)
    for lr, state in ((spec.learning.lr, "done"), (0.5, "outdated"), (1, "outdated")):
        file.write_text(json.dumps({"settings": {"learning.lr": lr}}), encoding="utf-8")
        assert status.state(run, folder)[0] == state


def test_who_trains_is_asked_of_the_system(tiny, folder):
    run = Run("r", tiny())
    assert beat(folder, run) == ("running", "epoch 1/2, batch 3/9")
    for pid in (0, -1, 10**30, -(10**30)):  # os.kill takes 0 and -1 for groups of processes
        assert beat(folder, run, pid=pid)[0] == "interrupted"
    assert beat(folder, run, host="elsewhere")[0] == "running"
    assert beat(folder, run, host="elsewhere", updated=0.0)[0] == "interrupted"


@pytest.mark.parametrize(
    "changes", [{"pid": "1"}, {"pid": None}, {"pid": 1.5}, {"epoch": "1\n2"}, {"epoch": [1]}, {"updated": "now"}]
)
def test_a_progress_file_of_wrong_types_is_no_progress(tiny, folder, changes):
    assert beat(folder, Run("r", tiny()), **changes) == ("not run", "")


@pytest.mark.parametrize("content", ["", "[]", "{", DEEP, '{"pid": 1, "pid": 2}', "NaN"])
def test_a_broken_progress_file_is_no_progress(tiny, folder, content):
    heartbeat_path(folder / "r.json").write_text(content, encoding="utf-8")
    assert status.state(Run("r", tiny()), folder) == ("not run", "")


@pytest.mark.parametrize("content", ["", "[]", "{}", DEEP, '{"spec": {}, "spec": {}}', '{"test_accuracy": NaN}'])
def test_a_broken_record_is_named(tiny, folder, content):
    file = folder / "r.json"
    file.write_text(content, encoding="utf-8")
    state, remark = status.state(Run("r", tiny()), folder)
    assert state == "broken"
    assert remark.startswith(f"{file}: ")


def test_a_record_by_other_code_is_told(tiny, tmp_path):
    path = tmp_path / "r.json"
    assert not status.by_other_code(path)
    code = status.training_code("pc")
    for made_by, other in ((code, False), ("0", True)):
        document = {"spec": tiny("pc").to_dict(), "provenance": {"training_code": made_by}}
        path.write_text(json.dumps(document), encoding="utf-8")
        assert status.by_other_code(path) is other
