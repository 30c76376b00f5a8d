"""Kept weights are those of the record's best epoch, and a loaded network takes raw images."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import highways
from highways import data, record, weights
from highways.cli import main
from highways.model.network import Architecture, feedforward
from highways.specs.run import Learning
from highways.training import keeping, snapshots
from highways.training import loop as training
from highways.training.claim import checkpoint_path
from highways.training.evaluation import evaluate
from highways.training.machine import Machine
from rules import explode_in_the_second_epoch

QUIET = Machine(quiet=True)
EXCERPT = "fashion_mnist_excerpt"


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "seed0.json"


@pytest.fixture
def kept(tmp_path) -> Path:
    return tmp_path / "seed0.npz"


@pytest.fixture
def falling(monkeypatch):
    """Make every epoch validate worse than the one before; returns a list of the weights after each."""
    after = []

    def worse(parameters, part, architecture):
        loss, accuracy = evaluate(parameters, part, architecture)
        if part.labels.equal(VALIDATION):
            after.append(parameters.clone())
            accuracy = 0.9 - 0.1 * len(after)
        return loss, accuracy

    monkeypatch.setattr(training, "evaluate", worse)
    return after


VALIDATION = data.load(EXCERPT).validation.labels


def error(capsys, *arguments: object, code: int = 1) -> str:
    """The one line with which a command fails."""
    assert main([str(argument) for argument in arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    return line


def train(spec, out: Path, *more: object) -> int:
    return main([str(word) for word in ("train", "--spec", spec.to_json(), "--out", out, "--quiet", *more)])


def equal(ours, theirs) -> bool:
    pairs = zip(ours.named().values(), theirs.named().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_the_weights_kept_are_those_of_the_best_epoch(tiny, out, kept, falling):
    spec = tiny("backprop", epochs=3)
    result = keeping.train(spec, out, kept, QUIET)
    network = highways.load(kept)
    assert result["best_epoch"] == network.about.epoch == 1
    assert equal(network.parameters, falling[0])
    assert not equal(network.parameters, falling[2])
    assert network.about.spec == spec
    assert network.about.is_of(record.read(out))
    assert sorted(path.name for path in out.parent.iterdir()) == [out.name, kept.name]


def test_keeping_weights_changes_nothing_in_the_record(tiny, tmp_path):
    spec = tiny("hep")
    plain = training.train(spec, tmp_path / "plain.json", QUIET)
    with_weights = keeping.train(spec, tmp_path / "kept.json", tmp_path / "kept.npz", QUIET)
    assert record.comparable(plain) == record.comparable(with_weights)


def test_a_run_that_was_stopped_after_its_best_epoch_ends_with_its_weights(tiny, tmp_path, falling, monkeypatch):
    """SIGTERM arrives in the second epoch; the first is the best."""
    spec = tiny("backprop", epochs=3)
    keeping.train(spec, tmp_path / "whole.json", tmp_path / "whole.npz", QUIET)
    falling.clear()
    updates, apply = [], training.weight_step.apply

    def interrupted(*arguments):
        updates.append(1)
        if len(updates) == 24 + 4:
            os.kill(os.getpid(), signal.SIGTERM)
        apply(*arguments)

    monkeypatch.setattr(training.weight_step, "apply", interrupted)
    out, kept = tmp_path / "broken.json", tmp_path / "broken.npz"
    with pytest.raises(training.Interrupted):
        keeping.train(spec, out, kept, QUIET)
    assert not kept.exists()
    result = keeping.train(spec, out, kept, QUIET)
    assert (result["timing"]["attempts"], result["best_epoch"]) == (2, 1)
    assert kept.read_bytes() == (tmp_path / "whole.npz").read_bytes()


# What is there already


def test_a_record_without_weights_is_trained_again_and_stays_as_it_is(tiny, out, kept, capsys):
    spec = tiny("backprop")
    assert train(spec, out) == 0
    written = out.read_bytes()
    capsys.readouterr()
    assert train(spec, out, "--weights") == 0
    assert capsys.readouterr().err == f"{out} is there, {kept} with its weights is not: training again\n"
    assert out.read_bytes() == written
    assert main(["evaluate", str(out)]) == 0
    made = kept.stat().st_mtime_ns
    assert train(spec, out, "--weights", kept) == 0
    assert "is there already" in capsys.readouterr().err
    assert kept.stat().st_mtime_ns == made


def test_weights_of_other_numbers_than_the_record_are_not_put_beside_it(tiny, out, kept, capsys):
    """As if another machine had made the record. The checkpoint keeps what was trained."""
    spec = tiny("backprop")
    training.train(spec, out, QUIET)
    other = json.loads(out.read_text(encoding="utf-8"))
    other["epochs"][0]["train_loss"] += 1e-6
    other["provenance"] |= {"torch": "2.9.0", "threads": 2}
    record.write(out, other)
    written = out.read_bytes()
    assert train(spec, out, "--weights") == 1
    assert "the run ends with other numbers (another torch, threads); delete the record" in capsys.readouterr().err
    assert out.read_bytes() == written
    assert not kept.exists()
    assert checkpoint_path(out).exists()
    out.unlink()
    assert train(spec, out, "--weights") == 0
    assert record.read(out)["timing"]["attempts"] == 2
    assert main(["evaluate", str(out)]) == 0


def test_weights_of_an_earlier_record_are_made_again(tiny, out, kept):
    """The record was renewed without --weights."""
    keeping.train(tiny("backprop", seed=1), out, kept, QUIET)
    spec = tiny("backprop")
    training.train(spec, out, QUIET, renew=True)
    assert train(spec, out, "--weights", "--renew") == 0
    assert highways.load(kept).about.is_of(record.read(out))


def test_nothing_but_weights_of_the_run_is_replaced(tiny, out, kept, capsys):
    spec = tiny("backprop", epochs=1)
    command = ("train", "--spec", spec.to_json(), "--out", out, "--quiet", "--weights")
    kept.write_bytes(b"my notes")
    for more in ([], ["--renew"]):
        assert "is no file of weights; give another name" in error(capsys, *command, kept, *more)
    assert kept.read_bytes() == b"my notes"
    kept.unlink()
    keeping.train(tiny("backprop", epochs=1, seed=1), out.with_name("other.json"), kept, QUIET)
    assert "holds the weights of another run" in error(capsys, *command, kept)
    assert "takes a file that ends in .npz" in error(capsys, *command, out.with_name("weights.pt"))
    assert not out.exists()


# Divergence


def test_a_run_that_diverges_later_keeps_the_best_epoch_before_it(tiny, out, kept, monkeypatch, capsys):
    explode_in_the_second_epoch(monkeypatch)
    spec = tiny("backprop", epochs=3)
    assert main(["train", "--spec", spec.to_json(), "--out", str(out), "--weights"]) == 0
    assert f"diverged in epoch 2; {kept}: those of epoch 1" in capsys.readouterr().err
    assert highways.load(kept).about.epoch == 1


def test_a_run_that_diverges_at_once_says_that_it_has_none(tiny, out, kept, capsys):
    spec = tiny("backprop", learning=Learning(1e30))
    assert main(["train", "--spec", spec.to_json(), "--out", str(out), "--weights"]) == 0
    assert f"{kept}: no weights, since no epoch ended well" in capsys.readouterr().err
    assert f"{kept}: no weights; the run diverged in its first epoch" in error(capsys, "evaluate", out)
    assert train(spec, out, "--weights") == 0  # and is not trained again
    assert "is there already" in capsys.readouterr().err


# The file


@pytest.fixture
def network(tiny, out, kept):
    keeping.train(tiny("hep"), out, kept, QUIET)
    return highways.load(kept)


def test_what_is_no_file_of_weights_is_refused_in_one_line(network, kept, tmp_path):
    whole = kept.read_bytes()
    with np.load(kept, allow_pickle=False) as file:
        arrays = dict(file)

    def packed(**changes) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **{name: a for name, a in {**arrays, **changes}.items() if a is not None})
        return buffer.getvalue()

    about = json.loads(str(arrays["about"]))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    wrong = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "a flipped bit": bytes(flipped),
        "a pickle": packed(w_in=np.array([Path()], dtype=object)),
        "nothing about it": packed(about=None),
        "no JSON": packed(about=np.array("{")),
        "another version": packed(about=np.array(json.dumps({**about, "version": 2}))),
        "no specification": packed(about=np.array(json.dumps({**about, "spec": {}}))),
        "a tensor too few": packed(w_in=None),
        "a tensor too many": packed(more=np.zeros(3)),
        "another depth": packed(w_hidden=np.zeros((5, 16, 16), np.float32)),
    }
    for name, content in wrong.items():
        path = tmp_path / "wrong.npz"
        path.write_bytes(content)
        with pytest.raises(weights.WeightsError, match=r"wrong.npz: n") as found:
            highways.load(path)
        assert "\n" not in str(found.value), name
        assert str(found.value).endswith("`highways train --weights` makes one"), name
    with pytest.raises(weights.WeightsError, match="no such file"):
        highways.load(tmp_path / "none.npz")


def test_a_snapshot_is_a_file_of_weights_too(tiny, tmp_path):
    spec = tiny("backprop")
    snapshots.keep(spec, tmp_path, [0, 2], QUIET)
    found = highways.load(snapshots.snapshot_path(tmp_path, 2))
    assert (found.about.spec, found.about.epoch) == (spec, 2)
    assert equal(found.parameters, snapshots.read_of(spec, tmp_path, 2))
    last = record.read(tmp_path / "training.json")["epochs"][-1]
    assert found.about.validation_accuracy == last["validation_accuracy"]


# Prediction


def test_raw_images_are_standardised_as_in_training(network):
    """Against the formula in double precision, and bit for bit against what training has evaluated."""
    raw = data.read(EXCERPT)[data.TEST_IMAGES]
    training_part = data.load(EXCERPT)
    pixels = raw.reshape(len(raw), -1) / 255
    expected = (pixels - training_part.mean) / training_part.std
    found = network.standardised(torch.from_numpy(raw.reshape(len(raw), -1).copy()))
    assert np.abs(found.numpy() - expected).max() < 1e-6
    logits = feedforward(network.parameters, training_part.test.images, Architecture.of(network.about.spec))
    assert torch.equal(network.outputs(raw), logits)


def test_predictions_have_the_accuracy_of_the_record(network, out):
    test = data.read(EXCERPT)
    images, labels = test[data.TEST_IMAGES], test[data.TEST_LABELS]
    classes = network.predict(images)
    assert classes.shape == labels.shape
    assert classes.dtype == np.int64
    assert (classes == labels).mean() == record.read(out)["test_accuracy"] == network.about.test_accuracy
    as_tensor = torch.from_numpy(images.copy())
    before = as_tensor.clone()
    for same in (as_tensor, as_tensor.flatten(1), as_tensor.unsqueeze(1)):
        assert torch.equal(network.predict(same), torch.from_numpy(classes))
    assert torch.equal(as_tensor, before)
    assert network.predict(images[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 28, 28)), "images of float64; the network takes pixels from 0 to 255 as uint8"),
        (torch.zeros(2, 784), "images of float32; "),
        ([[0] * 784], "images of list; "),
        (np.zeros((28, 28), np.uint8), r"images of shape \(28, 28\); the network takes \(n, ...\) of 784 pixels"),
        (np.zeros(784, np.uint8), r"images of shape \(784,\)"),
        (np.zeros((2, 32, 32, 3), np.uint8), r"images of shape \(2, 32, 32, 3\)"),
    ],
)
def test_images_that_are_not_raw_or_of_another_size_are_refused(network, images, message):
    with pytest.raises(ValueError, match=message):
        network.predict(images)


# `highways evaluate`


def test_evaluate_compares_with_the_record(network, out, kept, capsys):
    document = record.read(out)
    assert main(["evaluate", str(out), "--weights", str(kept)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    test, validation = (f"{document[f'{part}_accuracy']:.2%}" for part in ("test", "validation"))
    expected = f"test accuracy {test} (record: {test}), validation accuracy {validation} (record: {validation})"
    assert line == f"{kept}: {expected}: the same"


def test_evaluate_fails_where_the_weights_are_others(network, out, kept, tiny, capsys):
    about, arrays = weights.read(kept)
    weights.write(kept, about, {**arrays, "w_out": -arrays["w_out"]})
    assert main(["evaluate", str(out)]) == 5
    assert capsys.readouterr().out.endswith(": not the same\n")
    other = out.with_name("other.json")
    training.train(tiny("hep", seed=1), other, QUIET)
    line = error(capsys, "evaluate", other, "--weights", kept)
    assert line.endswith(f"{kept}: holds the weights of another run than {other}")
    kept.unlink()
    assert "no such file; `highways train --weights` makes one" in error(capsys, "evaluate", out)


# What it needs


def test_importing_the_package_imports_no_library():
    code = "import sys, highways; print(sorted({'torch', 'numpy', 'pandas', 'yaml'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.stdout == "[]\n", done.stderr


def test_weights_need_only_torch_and_numpy(tiny, out, kept):
    blocked = ("jsonschema", "matplotlib", "pandas", "snakemake", "torchvision", "tqdm", "yaml")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "import highways\nfrom highways.cli import main\n"
        "assert main(sys.argv[1:-1]) == 0\nprint(highways.load(sys.argv[-1]).about.epoch)"
    )
    words = ["train", "--spec", tiny("pc", epochs=1).to_json(), "--out", str(out), "--weights", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, str(kept)], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.stdout == "1\n", done.stderr


def test_images_of_another_layout_or_scale_are_refused(kept, tiny, out):
    assert (
        main(["train", "--spec", tiny("pc", epochs=1).to_json(), "--out", str(out), "--weights", str(kept)]) == 0
    )
    network = highways.load(kept)
    images = np.zeros((2, 28, 28), dtype=np.uint8)
    images[0, 0, 0] = 1
    with pytest.raises(ValueError, match="pixels of 0 and 1; the network takes them from 0 to 255"):
        network.predict(images)
    network.parameters.w_in = torch.zeros(network.parameters.w_in.shape[0], 3 * 28 * 28)
    with pytest.raises(ValueError, match="channels come last"):
        network.predict(np.full((2, 3, 28, 28), 9, dtype=np.uint8))
    assert len(network.predict(np.full((2, 28, 28, 3), 9, dtype=np.uint8))) == 2
