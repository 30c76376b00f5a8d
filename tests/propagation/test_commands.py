"""`highways propagate` and `highways snapshots` as a user types them."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from highways import record
from highways.cli import main
from highways.model.network import initialise
from highways.propagation import trace
from highways.propagation.spec import Propagation
from highways.specs.run import Inference, Learning, Network
from highways.training import snapshots
from highways.training.loop import Training, checkpoint_path, train
from highways.training.machine import Machine
from mappings import changed
from projects import until


@pytest.fixture
def excerpt(paper) -> list[str]:
    """Command-line options for a relaxation on the embedded data at depth 8."""
    config = changed(
        paper,
        propagation__dataset="fashion_mnist_excerpt",
        propagation__depth=8,
        propagation__steps=20,
        propagation__layers=[1, 7],
    )
    return ["--config", json.dumps(config)]


def test_propagate_prints_the_errors_and_leaves_a_trace(excerpt, tmp_path, capsys):
    out = tmp_path / "one.npz"
    assert main(["propagate", *excerpt, "--method", "hep", "--out", str(out)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == str(out)
    assert "after 20 steps" in lines[1]
    with np.load(out) as file:
        spec = Propagation.from_dict(json.loads(str(file["spec"])))
    found = trace.read(out, spec)
    assert (spec.run.method, spec.network, spec.run.network.depth) == ("hep", "paper", 8)
    assert lines[2] == f"{8:>5}  {found.errors[-1, 7]:.2e}"
    assert lines[-1] == f"{1:>5}  {found.errors[-1, 0]:.2e}"


def test_a_shallow_network_has_no_layer_0(paper, capsys, tmp_path):
    config = changed(paper, propagation__dataset="fashion_mnist_excerpt")
    shallow = ["--config", json.dumps(config), "--depth", "4", "--steps", "3", "--out", str(tmp_path / "t.npz")]
    assert main(["propagate", *shallow]) == 0
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()[2:]] == ["4", "3", "2", "1"]


def test_the_default_place_of_a_trace_says_what_it_is(excerpt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adam = ["--optimizer", "adam", "--eps", "1e-2", "--step-size", "0.1", "--steps", "3"]
    assert main(["propagate", *excerpt, "--network", "mupc", *adam, "--seed", "4", "--quiet"]) == 0
    place = "propagation/mupc/fashion_mnist_excerpt/L008/pc/untrained/adam0.1_eps0.01/seed4.npz"
    assert (tmp_path / place).exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--network", "mupc", "--method", "hep"], "mupc is predictive coding"),
        (["--depth", "5"], "no row for depth 5"),
        (["--steps", "0"], "steps: 0 is out of range"),
        (["--method", "ipc", "--steps", "9"], "--steps: method 'ipc' does not use it"),
        (["--method", "backprop", "--form", "deviations"], "--form: method 'backprop' does not use it"),
        (["--weights", "."], "before training has no use for them"),
        (["--spec", "{}", "--step-size", "0.1"], "--step-size: not with --spec"),
    ],
)
def test_what_propagate_cannot_do_is_one_line(excerpt, capsys, options, says):
    assert main(["propagate", *excerpt, *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_snapshots_are_the_weights_of_the_run_and_change_nothing_about_it(tiny, tmp_path, capsys):
    spec = tiny("hep", epochs=2)
    plain = tmp_path / "plain.json"
    assert main(["train", "--spec", spec.to_json(), "--out", str(plain), "--quiet"]) == 0
    folder = tmp_path / "kept"
    command = ["snapshots", "--spec", spec.to_json(), "--epochs", "0", "2", "--out", str(folder), "--quiet"]
    assert main(command) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["epoch00.npz", "epoch02.npz", "training.json"]
    kept, of_run = record.read(folder / "training.json"), record.read(plain)
    for key in ("epochs", "test_accuracy", "diagnostics", "spec_hash"):
        assert kept[key] == of_run[key]
    first = initialise(spec, 784, 10)
    for name, tensor in snapshots.read_of(spec, folder, 0).named().items():
        assert tensor.equal(first.named()[name])
    assert not snapshots.read_of(spec, folder, 2).w_out.equal(first.w_out)


def test_weights_of_a_schedule_are_those_that_the_whole_run_has_on_its_way(tiny, tmp_path, monkeypatch):
    """The cosine spans all four epochs, although only epochs 1 and 2 are kept."""
    spec = tiny("backprop", epochs=4, learning=Learning(3e-2, schedule="warmup_cosine"))
    seen = {}
    end = Training._end_epoch

    def watched(training):
        done = training.epoch
        end(training)
        seen.setdefault(done, training.parameters.clone())

    monkeypatch.setattr(Training, "_end_epoch", watched)
    train(spec, tmp_path / "whole.json", Machine(quiet=True))
    monkeypatch.undo()
    assert len(seen) == 4
    snapshots.keep(spec, tmp_path / "kept", [1, 2], Machine(quiet=True))
    for epoch in (1, 2):
        kept = snapshots.read_of(spec, tmp_path / "kept", epoch).named()
        for name, tensor in seen[epoch].named().items():
            assert tensor.equal(kept[name]), (epoch, name)
    assert len(record.read(tmp_path / "kept" / "training.json", whole=False)["epochs"]) == 2


def test_weights_beyond_the_run_are_those_of_its_schedule_held_at_its_end(tiny, tmp_path):
    spec = tiny("backprop", epochs=1)
    snapshots.keep(spec, tmp_path, [1, 2], Machine(quiet=True))
    longer = tmp_path / "longer"
    two = tiny("backprop", epochs=2)
    snapshots.keep(two, longer, [2], Machine(quiet=True))
    assert snapshots.read_of(spec, tmp_path, 2).w_out.equal(snapshots.read_of(two, longer, 2).w_out)


def test_a_trace_of_trained_weights_starts_from_them(tiny, tmp_path, capsys):
    spec = tiny("pc", epochs=1, network=Network(4, width=16))
    folder = tmp_path / "kept"
    assert (
        main(["snapshots", "--spec", spec.to_json(), "--epochs", "0", "1", "--out", str(folder), "--quiet"]) == 0
    )
    rows = {}
    for epoch in (0, 1):
        inference = Inference("euler", 0.05, 5)
        run = changed(spec.to_dict(), inference=vars(inference), batch_size=1, dtype="float64")
        text = json.dumps({"run": run, "trained": spec.to_dict(), "epoch": epoch})
        out = tmp_path / f"{epoch}.npz"
        assert main(["propagate", "--spec", text, "--weights", str(folder), "--out", str(out), "--quiet"]) == 0
        rows[epoch] = trace.read(out, Propagation.from_dict(json.loads(text))).errors[0, -1]
    assert rows[0] != rows[1]
    assert main(["propagate", "--spec", text, "--out", str(out)]) == 1
    assert "after training needs them" in capsys.readouterr().err
    assert main(["propagate", "--spec", text, "--weights", str(tmp_path), "--out", str(out)]) == 1
    assert "epoch01.npz: no such file" in capsys.readouterr().err
    other = json.dumps({**json.loads(text), "trained": changed(spec.to_dict(), seed=5)})
    assert main(["propagate", "--spec", other, "--weights", str(folder), "--out", str(out)]) == 1
    assert "the weights of another run" in capsys.readouterr().err
    for damaged in (b"", b"PK\x03\x04broken"):
        (folder / "epoch01.npz").write_bytes(damaged)
        assert main(["propagate", "--spec", text, "--weights", str(folder), "--out", str(out)]) == 1
        assert "epoch01.npz: no file of weights" in capsys.readouterr().err


def test_a_network_without_a_hidden_matrix_is_refused(tiny, tmp_path, capsys):
    spec = tiny("pc", highway=None, network=Network(2, width=16), batch_size=1, dtype="float64")
    text = json.dumps({"run": spec.to_dict(), "network": "plain"})
    assert main(["propagate", "--spec", text, "--out", str(tmp_path / "one.npz")]) == 1
    assert "plain needs a hidden matrix" in capsys.readouterr().err


def test_a_training_that_diverges_keeps_no_weights(tiny, tmp_path, capsys):
    spec = tiny("backprop", epochs=3, learning=Learning(1e30))
    assert (
        main(["snapshots", "--spec", spec.to_json(), "--epochs", "0", "3", "--out", str(tmp_path), "--quiet"]) == 1
    )
    assert "diverged in epoch 1" in capsys.readouterr().err
    assert list(tmp_path.glob("epoch*")) == []


def test_stopped_snapshots_resume_to_the_same_weights(tiny, tmp_path):
    spec = tiny("hep", epochs=6, network=Network(6, width=32), inference=Inference("adam", 0.005, 24))
    command = [sys.executable, "-m", "highways", "snapshots", "--spec", spec.to_json(), "--epochs", "0", "3", "6"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert subprocess.run([*command, "--out", str(whole)], capture_output=True).returncode == 0
    stopped = subprocess.Popen([*command, "--out", str(parts)], stderr=subprocess.PIPE)
    until((parts / "training.epoch03.npz").exists, "the weights of epoch 3", seconds=120, every=0.02)
    stopped.send_signal(signal.SIGTERM)
    _, said = stopped.communicate()
    assert stopped.returncode == 143, said
    assert checkpoint_path(parts / "training.json").exists()
    assert list(parts.glob("epoch*")) == []  # Snakemake deletes the outputs of a stopped job
    late = [*command, "1", "--out", str(parts)]
    assert "has passed epoch 1" in subprocess.run(late, capture_output=True, text=True, encoding="utf-8").stderr
    assert subprocess.run([*command, "--out", str(parts)], capture_output=True).returncode == 0
    for epoch in (0, 3, 6):
        name = f"epoch{epoch:02d}.npz"
        assert (parts / name).read_bytes() == (whole / name).read_bytes()
    assert record.read(parts / "training.json")["epochs"] == record.read(whole / "training.json")["epochs"]
