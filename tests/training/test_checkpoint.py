"""A checkpoint is used only if it is intact to the last bit and fits its run."""

import hashlib
import io
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from highways.specs.options import Dkp
from highways.specs.run import Learning
from highways.training import checkpoint
from highways.training import loop as training
from highways.training.claim import checkpoint_path
from highways.training.interruption import Interruptible
from highways.training.machine import Machine

QUIET = Machine(quiet=True)


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "seed0.json"


def begun(spec, out: Path, **machine) -> training.Training:
    return training.Training(spec, out, Machine(quiet=True, **machine).prepared(spec.dtype))


def stopped(spec, out: Path, batches: int = 30) -> training.Training:
    """A run that was stopped after `batches` updates and has saved a checkpoint."""

    class StopError(Exception):
        pass

    run, step = begun(spec, out), training.Training.step
    done = []

    def limited(gradient, lr):
        if len(done) == batches:
            raise StopError
        done.append(1)
        step(run, gradient, lr)

    run.step = limited
    with pytest.raises(StopError), Interruptible() as guard:
        run.run(guard)
    run.save()
    return run


@pytest.fixture
def saved(tiny, out):
    """Spec and content of a checkpoint in the second epoch."""
    spec = tiny("backprop", epochs=3)
    stopped(spec, out)
    return spec, checkpoint_path(out).read_bytes()


def set_aside(out: Path, capsys) -> str:
    """The warning about a checkpoint, after a check that it was renamed to .unusable."""
    path = checkpoint_path(out)
    aside = path.with_name(path.name + ".unusable")
    assert aside.exists()
    assert not path.exists()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"warning: {path} ")
    assert lines[0].endswith(f"; moved to {aside.name}, the run starts again")
    return lines[0]


def test_no_bit_of_a_checkpoint_may_change(saved, out, capsys):
    spec, content = saved
    draw = random.Random(0)
    places = [0, 7, 8 * len(content) - 1, *(draw.randrange(8 * len(content)) for _ in range(40))]
    for place in places:
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        checkpoint_path(out).write_bytes(flipped)
        run = begun(spec, out)
        assert (run.epoch, run.batch, run.attempts) == (1, 0, 1)
        assert "is damaged" in set_aside(out, capsys)
    checkpoint_path(out).write_bytes(content)
    assert begun(spec, out).batch == 30 - 24


def test_a_checkpoint_cut_anywhere_is_set_aside(saved, out, capsys):
    spec, content = saved
    for length in (0, 1, 90, 92, 93, 5_000, len(content) // 2, len(content) - 1):
        checkpoint_path(out).write_bytes(content[:length])
        assert begun(spec, out).attempts == 1
        assert "is damaged" in set_aside(out, capsys)


def rewritten(content: bytes, change) -> bytes:
    """The checkpoint with its document changed by `change`, and a digest that fits."""
    document = torch.load(io.BytesIO(content.partition(b"\n")[2]), weights_only=True)
    change(document)
    buffer = io.BytesIO()
    torch.save(document, buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest().encode()
    return b"highways checkpoint sha256 " + digest + b"\n" + buffer.getvalue()


def put(*keys, value):
    def change(document):
        target = document["state"]
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return change


def without(*keys):
    def change(document):
        target = document["state"]
        for key in keys[:-1]:
            target = target[key]
        del target[keys[-1]]

    return change


UNFIT = {
    "no epoch": without("epoch"),
    "one key too many": put("colour", value=1),
    "epoch beyond the run": put("epoch", value=10**6),
    "epoch 0": put("epoch", value=0),
    "epoch that is text": put("epoch", value="2"),
    "epoch that is a fraction": put("epoch", value=2.0),
    "batch beyond the epoch": put("batch", value=25),
    "another batch": put("batch", value=-1),
    "more correct than seen": put("correct", value=10**6),
    "loss that is not a number": put("loss_sum", value=float("nan")),
    "no epochs": put("epochs", value=[]),
    "epochs that are text": put("epochs", value="one"),
    "another best epoch": put("best_epoch", value=2),
    "another best accuracy": put("best_accuracy", value=0.99),
    "an accuracy of no images": put("epochs", 0, "train_accuracy", value=0.12345678),
    "diverged before": put("diverged_epoch", value=1),
    "no diagnostics": put("diagnostics", value=[]),
    "a layer short": put("diagnostics", 0, "rms_error", value=[1.0]),
    "negative time": put("wall_seconds", value=-1.0),
    "no attempts": put("attempts", value=0),
    "scalar weights": put("parameters", "w_in", value=torch.tensor(1.0)),
    "misshapen weights": put("parameters", "w_hidden", value=torch.zeros(2, 16, 17)),
    "weights of another type": put("parameters", "w_out", value=torch.zeros(10, 16, dtype=torch.float64)),
    "no weights": without("parameters", "w_in"),
    "weights that are numbers": put("parameters", value=3),
    "misshapen best": put("best", "w_in", value=torch.zeros(16)),
    "no averages": put("optimizer", "averages", value={}),
    "averages of some tensors": without("optimizer", "averages", "w_in"),
    "a scalar average": put("optimizer", "squares", "w_in", value=torch.tensor(1.0)),
    "no count of updates": without("optimizer", "updates"),
    "another count of updates": put("optimizer", "updates", value=29),
    "no optimizer": put("optimizer", value=None),
}


@pytest.mark.parametrize("change", UNFIT.values(), ids=UNFIT.keys())
def test_contents_that_cannot_be_of_the_run_are_set_aside(saved, out, capsys, change):
    spec, content = saved
    checkpoint_path(out).write_bytes(rewritten(content, change))
    run = begun(spec, out)
    assert "does not fit its run (" in set_aside(out, capsys)
    fresh = begun(spec, out)
    assert (run.epoch, run.batch, run.epochs, run.attempts, run.best_epoch) == (1, 0, [], 1, None)
    for ours, theirs in zip(run.parameters.named().values(), fresh.parameters.named().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert run.optimizer.updates == 0
    assert not any(average.any() for average in run.optimizer.averages.values())


@pytest.mark.parametrize("document", [[], {}, {"key": "k"}, {"key": 1, "state": {}}, {"key": "KEY", "state": 3}])
def test_what_is_no_checkpoint_is_set_aside(tiny, out, capsys, document):
    spec = tiny("backprop")
    key = begun(spec, out)._key()
    if isinstance(document, dict) and document.get("key") == "KEY":
        document["key"] = key
    checkpoint.save(checkpoint_path(out), key, {})
    buffer = io.BytesIO()
    torch.save(document, buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest().encode()
    checkpoint_path(out).write_bytes(b"highways checkpoint sha256 " + digest + b"\n" + buffer.getvalue())
    assert begun(spec, out).attempts == 1
    set_aside(out, capsys)


def test_what_a_rule_has_learnt_is_checked_too(tiny, out, capsys):
    spec = tiny("dkp", inference=None, rule=Dkp(), epochs=3)
    stopped(spec, out)
    content = checkpoint_path(out).read_bytes()
    assert begun(spec, out).attempts == 2
    for change in (
        put("learned", value=None),
        put("learned", "tensors", 0, value=torch.zeros(3)),
        put("learned", "optimizer", "squares", "0", value=torch.tensor(1.0)),
        without("learned", "optimizer"),
    ):
        checkpoint_path(out).write_bytes(rewritten(content, change))
        assert begun(spec, out).attempts == 1
        assert "does not fit" in set_aside(out, capsys)


@pytest.mark.parametrize("method", ["backprop", "pc", "hep"])
def test_every_state_of_a_run_fits_it(tiny, out, method):
    """Before the first update, within and between epochs, and at the end."""
    spec = tiny(method, epochs=2)
    for updates in (0, 1, 24, 47):
        run = stopped(spec, out, updates)
        assert begun(spec, out).attempts == run.attempts + 1
        checkpoint_path(out).unlink()
    begun(spec, out).save()
    assert begun(spec, out).attempts == 2
    checkpoint_path(out).unlink()
    done = begun(spec, out)
    with Interruptible() as guard:
        done.run(guard)
    assert begun(spec, out).epoch == 3


def test_the_state_of_a_run_that_diverged_fits_it(tiny, out):
    spec = tiny("backprop", learning=Learning(1e30))
    run = begun(spec, out)
    with Interruptible() as guard:
        run.run(guard)
    assert run.diverged_epoch == 1
    assert begun(spec, out).diverged_epoch == 1


def test_a_run_never_goes_on_with_another_number_of_threads(tiny, out, capsys):
    spec = tiny("backprop")
    begun(spec, out, threads=2).save()
    run = begun(spec, out)
    torch.set_num_threads(1)
    assert run.attempts == 1
    assert "number of threads" in set_aside(out, capsys)


def test_a_run_never_goes_on_with_another_kind_of_processor(tiny, out):
    """ATEN_CPU_CAPABILITY makes torch compute as an older processor does."""
    spec = tiny("backprop", epochs=1)
    first = begun(spec, out)
    if first.machine.processor().find("AVX") < 0:
        pytest.skip("one kind of processor only")
    first.save()
    other = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    run = [sys.executable, "-m", "highways", "train", "--spec", spec.to_json(), "--out", str(out)]
    result = subprocess.run(run, env=other, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0
    assert "kind of processor" in result.stderr
    made_by = training.record.read(out)
    assert made_by["timing"]["attempts"] == 1
    assert " DEFAULT " in made_by["provenance"]["processor"]
    assert first.machine.processor() != made_by["provenance"]["processor"]


def test_the_record_says_what_decides_its_bits(tiny, out):
    made_by = training.train(tiny("pc", epochs=1), out, QUIET)["provenance"]
    assert made_by["threads"] == 1
    assert torch.backends.cpu.get_cpu_capability() in made_by["processor"]
