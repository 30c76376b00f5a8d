"""A run ends with one record, whatever happens to it on the way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from highways import record
from highways.cli import main
from highways.data import load
from highways.methods import rule
from highways.model.network import Architecture, feedforward, initialise
from highways.specs.options import Dkp, DkpPc, Lra
from highways.specs.run import Conventions, Highway, Inference, Learning, Network
from highways.training import checkpoint
from highways.training import loop as training
from highways.training.evaluation import evaluate
from highways.training.machine import Machine
from rules import explode_in_the_second_epoch

QUIET = Machine(quiet=True)
CHANCE = 0.1
BATCHES = 24  # of an epoch: 3,000 images in batches of 128


def numbers(result: dict) -> dict:
    return json.loads(json.dumps(record.comparable(result)))


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "seed0.json"


@pytest.mark.parametrize("method", ["pc", "hep", "backprop"])
def test_every_method_learns_and_leaves_a_valid_record(tiny, out, method):
    result = training.train(tiny(method, epochs=3), out, QUIET)
    assert record.read(out) == json.loads(json.dumps(result))
    assert result["status"] == "ok"
    assert result["images"] == {"train": 3000, "validation": 1000, "test": 1000}
    assert [row["epoch"] for row in result["epochs"]] == [1, 2, 3]
    assert result["epochs"][-1]["train_loss"] < result["epochs"][0]["train_loss"]
    assert result["test_accuracy"] > 3 * CHANCE
    best = max(row["validation_accuracy"] for row in result["epochs"])
    first_best = next(row["epoch"] for row in result["epochs"] if row["validation_accuracy"] == best)
    assert (result["validation_accuracy"], result["best_epoch"]) == (best, first_best)
    assert [row.pop("epoch") for row in result["diagnostics"]] == [0, 1, 2, 3]
    for row in result["diagnostics"]:
        assert {name: len(values) for name, values in row.items()} == {
            "rms_state": 3,
            "rms_error": 4,
            "weight_gradient_norm": 4,
            "backprop_cosine": 4,
        }
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_the_same_spec_gives_the_same_record(tiny, tmp_path):
    spec = tiny("hep", inference=Inference("adam", 0.005, 8))
    first, second = (training.train(spec, tmp_path / name, QUIET) for name in ("a.json", "b.json"))
    assert numbers(first) == numbers(second)
    other = training.train(tiny("hep", inference=Inference("adam", 0.005, 8), seed=1), tmp_path / "c.json", QUIET)
    assert other["test_accuracy"] != first["test_accuracy"]


def test_a_highway_of_strength_zero_is_vanilla_pc_bit_for_bit(tiny, tmp_path):
    inference = Inference("adam", 0.005, 8)
    pc = training.train(tiny("pc", inference=inference), tmp_path / "pc.json", QUIET)
    hep = training.train(tiny("hep", inference=inference, highway=Highway(0.0)), tmp_path / "hep.json", QUIET)
    for key in ("epochs", "test_accuracy", "diagnostics", "best_epoch"):
        assert pc[key] == hep[key]


def test_training_leaves_the_global_random_state_alone(tiny, out):
    before = torch.random.get_rng_state()
    training.train(tiny(epochs=1), out, QUIET)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_training_image_is_used_once_an_epoch(tiny, out, monkeypatch):
    """3,000 images in batches of 128 leave a last batch of 56, which is trained on too."""
    seen: list[torch.Tensor] = []
    learner = rule("backprop")
    gradient = learner.gradient

    def spy(self, parameters, x, y, update=0):
        seen.append(x)
        return gradient(self, parameters, x, y)

    monkeypatch.setattr(learner, "gradient", spy)
    training.train(tiny("backprop", epochs=1), out, QUIET)
    batches = list(seen[2:-2])  # the two diagnostics call backprop twice each
    assert [len(x) for x in batches] == [128] * 23 + [56]
    images = load("fashion_mnist_excerpt").train.images
    trained = torch.cat(batches)
    assert torch.equal(trained.sort(0).values, images.sort(0).values)


def test_the_reported_accuracy_is_that_of_the_best_validation_epoch(tiny, out, monkeypatch):
    """The test set is read once, with the weights that validated best, not with the last ones."""
    parts = []

    def spy(parameters, part, architecture):
        parts.append((len(parts), part, parameters.clone()))
        loss, accuracy = evaluate(parameters, part, architecture)
        return loss, accuracy if len(parts) != 1 else 0.999  # the first validation looks best

    monkeypatch.setattr(training, "evaluate", spy)
    spec = tiny("backprop", epochs=3)
    result = training.train(spec, out, QUIET)
    assert result["best_epoch"] == 1
    data = load(spec.dataset)
    assert [len(part.labels) for _, part, _ in parts] == [1000] * 4
    assert torch.equal(parts[-1][1].labels, data.test.labels)
    assert all(torch.equal(part.labels, data.validation.labels) for _, part, _ in parts[:-1])
    for ours, first in zip(parts[-1][2].named().values(), parts[0][2].named().values(), strict=True):
        assert torch.equal(ours, first)
    assert result["test_accuracy"] == evaluate(parts[0][2], data.test, Architecture.of(spec))[1]


def test_accuracy_counts_every_image(tiny):
    spec = tiny("backprop")
    part = load(spec.dataset).test
    parameters = initialise(spec, 784, 10)
    logits = torch.cat(
        [feedforward(parameters, image.unsqueeze(0), Architecture.of(spec)) for image in part.images]
    )
    expected = (logits.argmax(1) == part.labels).sum().item() / 1000
    assert evaluate(parameters, part, Architecture.of(spec))[1] == pytest.approx(expected, abs=1e-3)


# Divergence


@pytest.mark.parametrize(
    "fields",
    [
        {"learning": Learning(1e30)},
        {"inference": Inference("euler", 1e30, 8)},
        {"highway": Highway(1e38, sigma_v=1e3)},
        {"highway": Highway(1e36)},
    ],
)
def test_a_run_that_blows_up_is_a_result(tiny, out, fields):
    assert main(["train", "--spec", tiny(**fields).to_json(), "--out", str(out), "--quiet"]) == 0
    result = record.read(out)
    assert (result["status"], result["diverged_epoch"]) == ("diverged", 1)
    assert result["test_accuracy"] is None
    assert result["best_epoch"] is None
    assert result["epochs"][-1]["validation_accuracy"] is None


def test_a_later_divergence_keeps_the_best_epoch_before_it(tiny, out, monkeypatch):
    explode_in_the_second_epoch(monkeypatch)
    result = training.train(tiny("backprop", epochs=3), out, QUIET)
    assert (result["status"], result["diverged_epoch"], result["best_epoch"]) == ("diverged", 2, 1)
    assert result["test_accuracy"] > 2 * CHANCE
    assert len(result["epochs"]) == 2
    assert record.read(out)


# Interruption and resumption


def arguments(spec, out: Path) -> list[str]:
    return ["train", "--spec", spec.to_json(), "--out", str(out)]


def command(spec, out: Path) -> list[str]:
    return [sys.executable, "-m", "highways", *arguments(spec, out)]


# The command, which a signal meets after so many updates of the weights.
SIGNALLED = """
import os, runpy, sys
from highways.methods import weight_step
signum, updates, *arguments = sys.argv[1:]
apply, left = weight_step.apply, [int(updates)]
def signalled(*given):
    apply(*given)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), int(signum))
weight_step.apply = signalled
sys.argv = ["highways", *arguments]
runpy.run_module("highways", run_name="__main__")
"""


def signalled(spec, out: Path, signum: int, updates: int) -> int:
    """Run the spec in a process of its own, signal it after so many updates, and return its exit code."""
    words = [sys.executable, "-c", SIGNALLED, str(int(signum)), str(updates), *arguments(spec, out)]
    return subprocess.run(words, capture_output=True).returncode


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["kill", "term", "int"],
)
def test_a_run_stopped_in_mid_epoch_ends_with_the_record_of_an_unbroken_run(tiny, tmp_path, signum, code):
    spec = tiny(epochs=3)
    unbroken = training.train(spec, tmp_path / "unbroken.json", QUIET)
    out = tmp_path / "broken.json"
    assert signalled(spec, out, signum, 2 * BATCHES + 4) == code
    assert not out.exists()
    saved = checkpoint.load(training.checkpoint_path(out), key_of(spec, tmp_path))
    assert (saved["epoch"], saved["batch"]) == (3, 0 if signum == signal.SIGKILL else 4)
    assert subprocess.run(command(spec, out), capture_output=True).returncode == 0
    resumed = record.read(out)
    assert resumed["timing"]["attempts"] == 2
    assert numbers(resumed) == numbers(unbroken)


def key_of(spec, folder: Path) -> str:
    return training.Training(spec, folder / "key.json", QUIET.prepared(spec.dtype))._key()


def test_a_signal_never_lands_inside_an_update(tiny, out, monkeypatch):
    """SIGTERM arrives while AdamW is at work: the update is finished first, then the checkpoint is written."""
    updates = []
    apply = training.weight_step.apply

    def interrupted_update(*arguments):
        updates.append(1)
        if len(updates) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        apply(*arguments)

    monkeypatch.setattr(training.weight_step, "apply", interrupted_update)
    with pytest.raises(training.Interrupted):
        training.train(tiny("backprop"), out, QUIET)
    saved = checkpoint.load(training.checkpoint_path(out), key_of(tiny("backprop"), out.parent))
    assert saved["batch"] == 3
    assert saved["optimizer"]["updates"] == 3


@pytest.mark.parametrize(("method", "options"), [("dkp", Dkp()), ("dkp_pc", DkpPc()), ("lra", Lra())])
def test_a_run_goes_on_with_the_feedback_that_it_has_learnt(tiny, tmp_path, monkeypatch, method, options):
    """SIGTERM arrives in the fourth update of the second epoch."""
    spec = tiny(method, inference=None, rule=options, learning=Learning(2e-3, weight_decay=0.1))
    unbroken = training.train(spec, tmp_path / "unbroken.json", QUIET)
    updates, apply = [], training.weight_step.apply

    def interrupted_update(*arguments):
        updates.append(1)
        if len(updates) == BATCHES + 4:
            os.kill(os.getpid(), signal.SIGTERM)
        apply(*arguments)

    out = tmp_path / "broken.json"
    monkeypatch.setattr(training.weight_step, "apply", interrupted_update)
    with pytest.raises(training.Interrupted):
        training.train(spec, out, QUIET)
    assert checkpoint.load(training.checkpoint_path(out), key_of(spec, tmp_path))["batch"] == 4
    resumed = training.train(spec, out, QUIET)
    assert resumed["timing"]["attempts"] == 2
    assert numbers(resumed) == numbers(unbroken)


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_set_aside_and_the_run_starts_again(tiny, out, capsys, damage):
    spec = tiny("backprop", epochs=1)
    path = training.checkpoint_path(out)
    if damage is None:
        training.Training(spec, out, QUIET).save()
        damage = path.read_bytes()[:-2000]
    path.write_bytes(damage)
    result = training.train(spec, out, QUIET)
    assert result["timing"]["attempts"] == 1
    assert "is damaged" in capsys.readouterr().err
    assert path.with_name(path.name + ".unusable").exists()


def test_the_checkpoint_of_another_spec_is_never_used(tiny, out, capsys):
    training.Training(tiny("backprop", seed=1), out, QUIET).save()
    result = training.train(tiny("backprop", epochs=1), out, QUIET)
    assert result["timing"]["attempts"] == 1
    assert "another specification" in capsys.readouterr().err


def test_a_run_never_goes_on_with_another_kernel(tiny, out, capsys):
    spec = tiny("pc", epochs=1)
    training.Training(spec, out, Machine(kernel="reference", quiet=True).prepared("float32")).save()
    result = training.train(spec, out, Machine(kernel="batched", quiet=True))
    assert (result["timing"]["attempts"], result["provenance"]["kernel"]) == (1, "batched")
    assert "another specification, code, kernel" in capsys.readouterr().err


def test_a_checkpoint_runs_no_code(tmp_path):
    """A pickle that would call something is refused."""
    path = tmp_path / "x.checkpoint.pt"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "called",))

    torch.save({"key": "k", "state": Evil()}, path)
    assert checkpoint.load(path, "k") is None
    assert not (tmp_path / "called").exists()


def test_two_writers_of_one_record_leave_one_whole_record(tiny, tmp_path):
    """The second is refused, or finds the finished record of the first."""
    spec, out = tiny("backprop", epochs=1), tmp_path / "seed0.json"
    writers = [subprocess.Popen(command(spec, out), stderr=subprocess.DEVNULL) for _ in range(2)]
    assert sorted(writer.wait() for writer in writers) in ([0, 0], [0, 1])
    assert record.read(out)["status"] == "ok"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


# Conventions reach the training


@pytest.mark.parametrize(
    "conventions",
    [
        Conventions(activation="post", normalise_output_input=True, bias=True),
        Conventions(activation="both", state_gradient="sum"),
        Conventions(activation="pre_norm", highway_layers="without_first"),
        Conventions(initial_state="rounded", weight_decay_on_gain=True),
    ],
)
def test_every_convention_trains(tiny, out, conventions):
    result = training.train(tiny(conventions=conventions, epochs=1), out, QUIET)
    assert result["status"] == "ok"
    assert result["spec"]["conventions"]["activation"] == conventions.activation


def test_float64_starts_from_the_same_numbers(tiny, tmp_path):
    single = training.train(tiny("backprop", epochs=1), tmp_path / "a.json", QUIET)
    double = training.train(tiny("backprop", epochs=1, dtype="float64"), tmp_path / "b.json", QUIET)
    assert double["epochs"][0]["train_loss"] == pytest.approx(single["epochs"][0]["train_loss"], rel=1e-3)


def test_the_smallest_network_trains(tiny, out):
    result = training.train(tiny("hep", network=Network(2, width=16)), out, QUIET)
    assert result["test_accuracy"] > 2 * CHANCE


def test_training_needs_only_torch_and_numpy(tiny, out):
    """On a cluster node nothing else may be there."""
    blocked = ("jsonschema", "matplotlib", "pandas", "snakemake", "torchvision", "tqdm", "yaml")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from highways.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    spec = tiny("hep", epochs=1).to_json()
    run = [sys.executable, "-c", code, "train", "--spec", spec, "--out", str(out)]
    assert subprocess.run(run).returncode == 0
    assert record.read(out)["status"] == "ok"
