"""Of two processes for one record only one trains; the next run removes what a killed one has left."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highways import record
from highways.cli import main
from highways.record import RecordError
from highways.specs.run import Inference, Network
from highways.training import loop as training
from highways.training.claim import InUseError, checkpoint_path, only_one
from highways.training.interruption import Interrupted
from highways.training.machine import Machine
from highways.training.progress import heartbeat_path

QUIET = Machine(quiet=True)
HOLD = (
    "import sys, time; from pathlib import Path; from highways.training.claim import only_one\n"
    "with only_one(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
)


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "seed0.json"


@pytest.fixture
def holder(out):
    """Another process that holds the claim."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_second_training_of_one_record_is_refused_in_one_line(tiny, out, holder, capsys):
    for spec in (tiny("backprop"), tiny("backprop", seed=1)):
        for renew in ([], ["--renew"]):
            assert main(["train", "--spec", spec.to_json(), "--out", str(out), "--quiet", *renew]) == 1
            assert capsys.readouterr().err == (
                f"highways: error: {out}: another process is training it; wait for it, or give another name\n"
            )
    assert not out.exists()


def test_a_claim_dies_with_its_process(out, holder):
    with pytest.raises(InUseError), only_one(out):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert names(out.parent) == [".seed0.json.lock"]
    with only_one(out):
        pass
    assert names(out.parent) == []


def test_records_beside_each_other_are_trained_at_a_time(tmp_path):
    with only_one(tmp_path / "a.json"), only_one(tmp_path / "b.json"):
        pass
    assert names(tmp_path) == []


def test_a_claim_is_one_although_its_file_comes_and_goes(tmp_path):
    """Four processes take and release the claim in turn; two at a time would lose counts of their number."""
    count, out = tmp_path / "count", tmp_path / "r.json"
    count.write_text("0", encoding="utf-8")
    code = (
        "import sys, time; from pathlib import Path; from highways.training.claim import InUseError, only_one\n"
        "count, done = Path(sys.argv[2]), 0\n"
        "while done < 40:\n"
        "    try:\n"
        "        with only_one(Path(sys.argv[1])):\n"
        "            n = int(count.read_text()); time.sleep(0.0005); count.write_text(str(n + 1)); done += 1\n"
        "    except InUseError: time.sleep(0.0002)\n"
    )
    run = [sys.executable, "-c", code, str(out), str(count)]
    processes = [subprocess.Popen(run) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert count.read_text(encoding="utf-8") == "160"


def test_a_lock_that_is_a_link_is_not_followed(out, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("all of it", encoding="utf-8")
    (tmp_path / ".seed0.json.lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic"), only_one(out):
        pass
    assert precious.read_text(encoding="utf-8") == "all of it"


def test_a_run_that_cannot_begin_leaves_no_folders(tmp_path):
    with pytest.raises(ValueError, match="no"), only_one(tmp_path / "a" / "b" / "r.json"):
        raise ValueError("no")
    assert names(tmp_path) == []


def test_another_record_that_appears_while_a_run_trains_is_kept(tiny, out, monkeypatch):
    """Without file locks two runs may train at once: the first record and the second's checkpoint stay."""
    first, second = tiny("backprop", epochs=1, seed=1), tiny("backprop", epochs=1)
    training.train(first, out, QUIET)
    content = out.read_bytes()
    out.unlink()
    finish = training.Training.finish

    def late(self):
        result = finish(self)
        out.write_bytes(content)
        return result

    monkeypatch.setattr(training.Training, "finish", late)
    with pytest.raises(RecordError, match="the record of another run"):
        training.train(second, out, QUIET)
    assert out.read_bytes() == content
    monkeypatch.undo()
    assert checkpoint_path(out).exists()
    out.unlink()
    assert training.train(second, out, QUIET)["timing"]["attempts"] == 2


@pytest.mark.parametrize(
    "content", [b'{"name": "highways", "version": "1.0.0"}', b"[]", b"\x89PNG\x00\xff", b"{", b""]
)
@pytest.mark.parametrize("renew", [[], ["--renew"]])
def test_what_is_no_record_is_never_replaced(tiny, tmp_path, capsys, content, renew):
    out = tmp_path / "package.json"
    out.write_bytes(content)
    spec = tiny("backprop", epochs=1).to_json()
    assert main(["train", "--spec", spec, "--out", str(out), "--quiet", *renew]) == 1
    error = capsys.readouterr().err
    assert error == (
        f"highways: error: --out: {out} is there, and is no record that can be read; "
        "delete it, or give another name\n"
    )
    assert out.read_bytes() == content
    assert names(tmp_path) == [out.name]


def test_a_broken_record_of_the_same_run_is_not_called_done(tiny, out, capsys):
    spec = tiny("backprop", epochs=1)
    document = training.train(spec, out, QUIET)
    document["best_epoch"] = 77
    out.write_text(json.dumps(document), encoding="utf-8")
    assert main(["train", "--spec", spec.to_json(), "--out", str(out), "--quiet"]) == 1
    assert "best_epoch: 77" in capsys.readouterr().err


def test_what_killed_writers_left_is_removed(tiny, out):
    """A kill in a write leaves a temporary file; a kill after the record leaves checkpoint and progress."""
    spec = tiny("backprop", epochs=1)
    litter = [".seed0.checkpoint.pt.41.tmp", ".seed0.json.41.tmp", ".seed0.progress.json.41.tmp"]
    others = [".seed1.json.41.tmp", "seed1.checkpoint.pt"]
    for name in (*litter, *others):
        (out.parent / name).write_bytes(b"half")
    command = ["train", "--spec", spec.to_json(), "--out", str(out), "--quiet"]
    assert main(command) == 0
    assert names(out.parent) == sorted([*others, out.name])
    for path in (checkpoint_path(out), heartbeat_path(out), out.parent / litter[0]):
        path.write_bytes(b"left")
    assert main(command) == 0
    assert names(out.parent) == sorted([*others, out.name])


def test_a_run_that_is_killed_leaves_what_it_resumes_from_and_no_more(tiny, out):
    spec = tiny("hep", network=Network(6, width=32), inference=Inference("adam", 0.005, 400), epochs=4)
    run = [sys.executable, "-m", "highways", "train", "--spec", spec.to_json(), "--out", str(out)]
    with subprocess.Popen(run, stderr=subprocess.PIPE, encoding="utf-8") as process:
        process.stderr.readline()
        while not checkpoint_path(out).exists():
            time.sleep(0.05)
        process.kill()
    assert set(names(out.parent)) >= {".seed0.json.lock", checkpoint_path(out).name, heartbeat_path(out).name}
    assert subprocess.run(run, capture_output=True).returncode == 0
    assert names(out.parent) == [out.name]
    assert record.read(out)["timing"]["attempts"] == 2


def test_a_renewal_that_is_stopped_keeps_the_record_and_goes_on(tiny, out, monkeypatch):
    """The old record stays until the new one is whole; a run without --renew keeps the checkpoint, too."""
    spec = tiny("backprop", epochs=2)
    document = training.train(spec, out, QUIET)
    document["provenance"]["training_code"] = "0" * 16
    out.write_text(json.dumps(document), encoding="utf-8")
    content = out.read_bytes()

    def stop(self):
        raise Interrupted(signal.SIGTERM)

    command = ["train", "--spec", spec.to_json(), "--out", str(out), "--quiet"]
    with monkeypatch.context() as stopped:
        stopped.setattr(training.Training, "finish", stop)
        assert main([*command, "--renew"]) == 143
    assert out.read_bytes() == content
    assert main(command) == 0
    assert out.read_bytes() == content
    assert checkpoint_path(out).exists()
    assert main([*command, "--renew"]) == 0
    again = record.read(out)
    assert again["timing"]["attempts"] == 2
    assert again["epochs"] == document["epochs"]
    assert again["provenance"]["training_code"] != "0" * 16
    assert names(out.parent) == [out.name]


def test_a_renewal_keeps_the_record_that_another_has_made_meanwhile(tiny, out, monkeypatch):
    """Without file locks two renewals may train at once; the second keeps the record of the first."""
    old, spec = tiny("backprop", epochs=1, seed=1), tiny("backprop", epochs=1)
    training.train(spec, out, QUIET)
    new = out.read_bytes()
    out.unlink()
    training.train(old, out, QUIET)
    finish = training.Training.finish

    def late(self):
        result = finish(self)
        out.write_bytes(new)
        return result

    monkeypatch.setattr(training.Training, "finish", late)
    training.train(spec, out, QUIET, renew=True)
    assert out.read_bytes() == new
    assert names(out.parent) == [out.name]
