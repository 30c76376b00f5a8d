"""The command line: an error is one line, exit codes have meanings, and no file is half-written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from highways import record
from highways.cli import main
from highways.cli.keys import keys_of
from highways.experiments.runs import cell_spec
from highways.methods import METHODS, meta_pcn
from highways.specs import options
from highways.specs.run import Conventions
from highways.training.progress import heartbeat_path


@pytest.fixture(autouse=True)
def in_project(root, monkeypatch):
    monkeypatch.chdir(root)


def failure(capsys, *arguments: str) -> str:
    """Run a command that must fail with exit code 1; returns its one line of error."""
    assert main(list(arguments)) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("highways: error: ")
    assert len(lines[0]) < 2500
    return lines[0]


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["train"],
        ["evaluate"],
        ["profile"],
        ["propagate"],
        ["snapshots"],
        ["data"],
        ["build"],
        ["status"],
        ["cost"],
        ["records"],
        ["table"],
        ["figure"],
        ["select"],
    ],
)
def test_help_teaches(command):
    run = subprocess.run(
        [sys.executable, "-m", "highways", *command, "--help"], capture_output=True, text=True, encoding="utf-8"
    )
    assert run.returncode == 0
    assert len(run.stdout.splitlines()) > 6
    assert "None" not in run.stdout


def test_a_wrong_option_is_wrong_use():
    run = subprocess.run([sys.executable, "-m", "highways", "train", "--colour"], capture_output=True)
    assert run.returncode == 2


HUGE = "learning.lr=1" + 400 * "0"  # a whole number too large for a float


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --spec, or --dataset, --depth, --method"),
        (["--dataset", "mnist", "--depth", "5", "--method", "pc"], "no row for depth 5"),
        (["--dataset", "mnist", "--depth", "5", "--method", "pc"], "--depth 4 --set network.depth=5"),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "width=64"], "mean network.width?"),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "learning.rl=1"], "mean learning.lr?"),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "x" * 10**6], "x ..."),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "x" * 10**6 + "=1"], "--help-keys"),
        (
            ["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "network.phi=" + "x" * 10**6],
            "network.phi: 'xxx",
        ),
        (
            ["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "conventions.highway_layers=all"],
            "conventions.highway_layers: changes nothing in a pc run",
        ),
        (["--spec", '{"dataset": "mnist", "dataset": "mnist"}'], "'dataset' stands there twice"),
        (["--spec", '{"dataset": ' + "[" * 10**5], "nested too deeply"),
        (["--spec", '{"' + "x" * 10**6 + '": 1}'], "unknown key"),
        (["--spec", '{"x\\n": 1}'], "unknown key"),
        (["--spec", "x" * 10**6], "File name too long"),
        (["--spec", "{"], "not valid JSON"),
        (["--spec", "absent.json"], "absent.json: No such file"),
        (["--spec", "[]"], "No such file"),
        (["--spec", "README.md"], "not valid JSON"),
        (
            ["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "highway.alpha=1"],
            "no such key in a pc run",
        ),
        (
            ["--dataset", "mnist", "--depth", "4", "--method", "hep", "--set", "highway.alpha=-1"],
            "highway.alpha: -1.0",
        ),
        (["--dataset", "mnist", "--depth", "4", "--method", "hep", "--set", "epochs"], "KEY=VALUE"),
        (
            ["--dataset", "mnist", "--depth", "4", "--method", "hep", "--set", "network.depth=1"],
            "network.depth: 1",
        ),
        (["--dataset", "mnist", "--depth", "4", "--method", "hep", "--threads", "0"], "--threads: 0"),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--data-dir", "/absent"], "/absent"),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--selection", "config.yaml"], "not valid JSON"),
        (["--dataset", "mnist", "--depth", "4", "--method", "pc", "--config", "absent.yaml"], "absent.yaml"),
        (
            ["--dataset", "mnist", "--depth", "4", "--method", "pc", "--set", "learning.lr=1" + "0" * 400],
            "learning.lr",
        ),
        (["--spec", "{}", "--depth", "4"], "--depth: not with --spec"),
        (["--spec", "results/reference/figures/depth.png"], "should hold text"),
    ],
)
def test_what_cannot_be_trained_is_one_line(capsys, tmp_path, arguments, says):
    out = tmp_path / "out" / "record.json"
    assert says in failure(capsys, "train", *arguments, "--out", str(out))
    assert not out.parent.exists()


def test_an_unknown_kernel_and_a_missing_card_are_named(capsys, tiny, tmp_path):
    spec = ["--spec", tiny().to_json(), "--out", str(tmp_path / "r.json")]
    assert "kernel: 'magic'" in failure(capsys, "train", *spec, "--kernel", "magic")
    assert "--device" in failure(capsys, "train", *spec, "--device", "abacus")
    import torch

    if not torch.cuda.is_available():
        assert "--device" in failure(capsys, "train", *spec, "--device", "cuda")
    assert list(tmp_path.iterdir()) == []


def test_a_record_needs_a_name_of_its_own(capsys, tiny, tmp_path):
    """A folder, or a name without the ending, would share its checkpoint with other runs."""
    for out in (tmp_path, tmp_path / "s0.1"):
        assert "ends in .json" in failure(capsys, "train", "--spec", tiny().to_json(), "--out", str(out))
    assert list(tmp_path.iterdir()) == []


def test_set_changes_the_spec(tiny, tmp_path):
    out = tmp_path / "r.json"
    arguments = ["--set", "highway.alpha=0.7", "--set", "epochs=1", "--set", "conventions.activation=post"]
    assert main(["train", "--spec", tiny().to_json(), *arguments, "--out", str(out), "--quiet"]) == 0
    spec = record.read(out)["spec"]
    assert (spec["highway"]["alpha"], spec["epochs"], spec["conventions"]["activation"]) == (0.7, 1, "post")


@pytest.mark.parametrize(
    ("text", "value"), [(".5", 0.5), ("5.", 5.0), ("5e-1", 0.5), ("1e-4", 1e-4), (".5E+1", 5.0)]
)
def test_numbers_on_the_command_line_are_numbers(tiny, tmp_path, monkeypatch, text, value):
    trained = []

    def train(spec, out, machine, renew):
        trained.append(spec)
        return {"test_accuracy": 0.5, "best_epoch": 1, "status": "ok"}

    monkeypatch.setattr("highways.training.loop.train", train)
    change = ["--set", f"highway.alpha={text}", "--out", str(tmp_path / "r.json")]
    assert main(["train", "--spec", tiny().to_json(), *change]) == 0
    assert [spec.highway.alpha for spec in trained] == [value]


@pytest.mark.parametrize("method", METHODS)
def test_the_help_lists_every_key_of_a_specification(method, paper, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help-keys"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines if line and ("[" not in line or method in line)}
    spec = cell_spec(paper, "mnist", 8, method, 0)
    assert set(keys_of(spec)) <= listed
    for key in keys_of(spec):
        spec.setting(key)
    assert next(line for line in lines if line.startswith("learning.weight_decay")).split()[1] == "0.0001"
    assert any(line.startswith("network.phi") and line.endswith("one of relu, tanh") for line in lines)


def test_a_hand_written_specification_says_nothing_in_vain(tiny, tmp_path, capsys):
    """A setting without an effect is refused in a specification, and kept in that of a record."""
    spec = tiny("backprop", conventions=Conventions(state_gradient="sum"))
    out = tmp_path / "r.json"
    command = ["train", "--out", str(out), "--quiet", "--spec"]
    assert "conventions.state_gradient: changes nothing in a backprop run" in failure(
        capsys, *command, spec.to_json()
    )
    assert main([*command, json.dumps({"spec": spec.to_dict()})]) == 0
    assert record.read(out)["spec"]["conventions"]["state_gradient"] == "sum"


def test_a_part_of_a_configuration_serves_every_command(tmp_path, capsys):
    part = tmp_path / "part.yaml"
    cells = "{dataset: mnist, depth: 4, seeds: [77]}"
    part.write_text(f"experiments: [{{name: mine, methods: pc, cells: {cells}}}]\n", encoding="utf-8")
    runs = ["--runs", str(tmp_path / "runs")]
    for config_text in (str(part), json.dumps(yaml.safe_load(part.read_text(encoding="utf-8")))):
        assert main(["status", "--all", "--config", config_text, *runs]) == 3
        listed = capsys.readouterr().out
        assert "mine/mnist/L004/pc" in listed
        assert "L064" not in listed
        assert "hep" not in listed
        assert main(["cost", "--config", config_text, *runs]) == 0
    assert "twice" in failure(capsys, "cost", "--config", '{"device": "cpu", "device": "cuda"}')


def test_outside_a_checkout_train_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = failure(capsys, "train", "--dataset", "mnist", "--depth", "4", "--method", "pc")
    assert "config.yaml: no such file; work in a checkout of the project" in said


def test_a_record_can_be_run_again_and_gives_the_same_numbers(tiny, tmp_path, capsys):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert main(["train", "--spec", tiny("backprop").to_json(), "--out", str(first)]) == 0
    assert "test accuracy" in capsys.readouterr().err
    assert main(["train", "--spec", str(first), "--out", str(second), "--quiet"]) == 0
    assert record.comparable(record.read(first)) == record.comparable(record.read(second))


def test_a_finished_run_is_not_run_again(tiny, tmp_path, capsys):
    out = tmp_path / "r.json"
    command = ["train", "--spec", tiny("backprop", epochs=1).to_json(), "--out", str(out), "--quiet"]
    assert main(command) == 0
    content = out.read_bytes()
    assert main(command) == 0
    assert "is there already" in capsys.readouterr().err
    assert out.read_bytes() == content


def test_the_profile_takes_the_steps_of_the_rule(tiny, monkeypatch):
    steps = []
    own = meta_pcn.Rule.step
    monkeypatch.setattr(meta_pcn.Rule, "step", lambda *arguments: (steps.append(arguments[3]), own(*arguments)))
    spec = tiny("meta_pcn", inference=None, highway=None, rule=options.MetaPcn())
    assert main(["profile", "--spec", spec.to_json()]) == 0
    assert steps == [spec.learning.lr] * 11


def test_the_record_of_another_run_is_not_replaced(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "r.json"
    assert main(["train", "--spec", tiny("backprop", epochs=1).to_json(), "--out", str(out), "--quiet"]) == 0
    content = out.read_bytes()
    other = ["train", "--spec", tiny("backprop", epochs=2).to_json()]
    assert "the record of another run" in failure(capsys, *other, "--out", str(out))
    assert out.read_bytes() == content
    for epochs in (1, 2):  # the path of a run has no epochs
        assert main([*other, "--set", f"epochs={epochs}", "--quiet"]) == 0
    assert {record.read(path)["spec"]["epochs"] for path in tmp_path.rglob("runs/**/*.json")} == {1, 2}


def test_what_a_specification_says_is_not_said_again(tiny, capsys):
    assert "--seed: not with --spec" in failure(capsys, "train", "--spec", tiny().to_json(), "--seed", "9")


def test_a_package_that_is_not_installed_is_named(capsys, monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "jsonschema" or name == "highways.schema":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert "this needs jsonschema" in failure(capsys, "cost")


def test_the_learning_rate_comes_from_a_selection(tiny, tmp_path, capsys):
    rate, out = tmp_path / "rate.json", tmp_path / "r.json"
    rate.write_text('{"settings": {"learning.lr": 0.004}}', encoding="utf-8")
    spec = tiny("backprop", epochs=1).to_json()
    assert main(["train", "--spec", spec, "--selection", str(rate), "--out", str(out), "--quiet"]) == 0
    assert record.read(out)["spec"]["learning"]["lr"] == 0.004
    mine = ["--set", "learning.lr=0.02", "--out", str(tmp_path / "mine.json"), "--quiet"]
    assert main(["train", "--spec", spec, "--selection", str(rate), *mine]) == 0
    assert record.read(tmp_path / "mine.json")["spec"]["learning"]["lr"] == 0.02  # --set wins
    rate.write_text("[]", encoding="utf-8")
    assert "holds no settings" in failure(capsys, "train", "--spec", spec, "--selection", str(rate))


def test_a_network_that_does_not_fit_in_memory_is_one_line(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("highways.training.loop.train", lambda *arguments: torch.empty(2**50))
    failed = failure(capsys, "train", "--spec", tiny().to_json(), "--out", str(tmp_path / "r.json"))
    assert "out of memory" in failed


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(capsys, tiny, tmp_path):
    tmp_path.chmod(0o500)
    assert "Permission denied" in failure(
        capsys, "train", "--spec", tiny().to_json(), "--out", str(tmp_path / "r.json")
    )


def test_a_full_disk_is_one_line(tiny):
    """/dev/full is a file, so no record fits below it: the run stops before it trains."""
    run = subprocess.run(
        [sys.executable, "-m", "highways", "train", "--spec", tiny().to_json(), "--out", "/dev/full/r.json"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 1
    assert re.fullmatch(r"highways: error: /dev/full.*: (Not a directory|File exists)\n", run.stderr)


def test_a_disk_that_fills_up_while_training_leaves_no_half_record(tiny, tmp_path):
    """A limit on the size of files stands for a full disk: the checkpoint cannot be written."""
    out = tmp_path / "r.json"
    code = (
        "import resource, signal, sys; from highways.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "train", "--spec", tiny().to_json(), "--out", str(out), "--quiet"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 1
    assert re.fullmatch(r"highways: error: .*File too large\n", run.stderr), run.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {heartbeat_path(out).name}


def test_the_backend_of_a_notebook_has_no_business_here(tmp_path):
    environment = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    command = [sys.executable, "-m", "highways", "figure", "architecture", "--out", str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert (run.returncode, run.stderr) == (0, f"{tmp_path / 'architecture.png'}\n")
    assert (tmp_path / "architecture.png").exists()


def test_a_locale_without_greek_letters_stops_no_command(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "highways", "verdict", "--runs", str(tmp_path), "--traces", str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="latin-1")
    assert (run.returncode, run.stderr) == (0, "")
    assert "hep_trains" in run.stdout


# status


@pytest.fixture
def one_cell(paper, tmp_path) -> tuple[str, Path, list[str]]:
    """A configuration of six tiny runs as JSON, the folder of their records, and the paths of the runs."""
    from highways.experiments import configuration

    cells = {"dataset": "fashion_mnist_excerpt", "depth": 4, "seeds": [0, 1]}
    pc, hep = {"cells": cells, "methods": "pc"}, {"cells": cells, "methods": "hep"}
    blocks = [
        {"name": "depth", **pc},
        {"name": "strength", **hep, "vary": {"highway.alpha": [0.5]}},
        {"name": "density", **hep, "vary": {"highway.every": [1, 2]}},
        # The blocks below ask for the same runs again.
        {"name": "again", **pc, "vary": {"conventions.activation": paper["conventions"]["activation"]}},
        {"name": "rates", **hep, "times": {"learning.lr": 1}},
        {"name": "ablations", **pc},
    ]
    paper = {**paper, "experiments": blocks, "training": {**paper["training"], "epochs": 1}}
    return json.dumps(paper), tmp_path / "runs", list(configuration.all_runs(paper))


def test_status_tells_what_became_of_every_run(one_cell, capsys):
    config_text, runs, paths = one_cell
    command = ["status", "--config", config_text, "--runs", str(runs)]
    assert main(command) == 3
    assert capsys.readouterr().out == "6 runs: 6 not run\n"

    from highways.experiments import configuration

    specs = {path: run.spec for path, run in configuration.all_runs(json.loads(config_text)).items()}
    files = [runs / f"{path}.json" for path in paths]
    done, broken, outdated, running, interrupted, diverged = files
    for file, path in zip(files[:1], paths, strict=False):
        assert main(["train", "--spec", specs[path].to_json(), "--out", str(file), "--quiet"]) == 0
    good = record.read(done)
    for file in files[1:]:
        file.parent.mkdir(parents=True, exist_ok=True)
    broken.write_text(json.dumps({**good, "status": "fine"}), encoding="utf-8")
    outdated.write_text(json.dumps(good), encoding="utf-8")
    beat = {"pid": os.getpid(), "epoch": 1, "epochs": 2, "batch": 3, "batches": 9, "updated": 0.0}
    import socket

    heartbeat_path(running).write_text(json.dumps({**beat, "host": socket.gethostname()}), encoding="utf-8")
    heartbeat_path(interrupted).write_text(json.dumps({**beat, "host": "elsewhere"}), encoding="utf-8")
    exploding = ["--set", "inference.step_size=1e30", "--set", "epochs=1"]
    assert main(["train", "--spec", specs[paths[5]].to_json(), *exploding, "--out", str(diverged), "--quiet"]) == 0
    blown = json.loads(diverged.read_text(encoding="utf-8"))
    blown["spec"], blown["spec_hash"] = specs[paths[5]].to_dict(), specs[paths[5]].hash
    diverged.write_text(json.dumps(blown), encoding="utf-8")

    assert main(command) == 3
    lines = capsys.readouterr().out.splitlines()
    said = {line.split()[1]: line for line in lines[:-1]}
    assert said[paths[1]].startswith("broken")
    assert str(broken) in said[paths[1]]
    assert "status" in said[paths[1]]
    assert said[paths[2]].startswith("outdated")
    assert "highway" in said[paths[2]]
    assert said[paths[3]].startswith("running")
    assert "epoch 1/2, batch 3/9" in said[paths[3]]
    assert said[paths[4]].startswith("interrupted")
    assert said[paths[5]].startswith("diverged")
    assert lines[-1] == "6 runs: 1 done, 1 diverged, 1 running, 1 interrupted, 1 outdated, 1 broken"
    assert paths[0] not in said
    assert main([*command, "--all"]) == 3
    assert f"done         {paths[0]}  test accuracy" in capsys.readouterr().out


def test_tables_name_a_broken_record_and_go_on(one_cell, tmp_path, capsys):
    config_text, runs, paths = one_cell
    file = runs / f"{paths[0]}.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}", encoding="utf-8")
    assert (
        main(["table", "depth", "--config", config_text, "--runs", str(runs), "--out", str(tmp_path / "t")]) == 0
    )
    assert paths[0] in (tmp_path / "t/depth.md").read_text(encoding="utf-8")


def test_a_wrong_table_lists_the_right_ones(capsys, tmp_path):
    assert (
        "depth, density, optimizer, settings, strength, conventions, readings, kernels, ablations, rates"
        in failure(capsys, "table", "breadth", "--out", str(tmp_path))
    )
    assert "depth, " in failure(capsys, "figure", "breadth", "--out", str(tmp_path))


def test_the_excerpt_is_checked_without_a_network(tmp_path):
    out = tmp_path / "check.json"
    assert main(["data", "fashion_mnist_excerpt", "--no-download", "--out", str(out)]) == 0
    assert len(json.loads(out.read_text(encoding="utf-8"))["md5"]) == 4


def test_the_profile_adds_up_to_its_total(tiny, capsys):
    assert main(["profile", "--spec", tiny("hep").to_json()]) == 0
    *parts, _ = capsys.readouterr().out.splitlines()
    names = ["E-step", "gradient of the weights", "AdamW", "batches", "validation"]
    assert [line.split("  ")[0] for line in parts] == names
    assert sum(float(line.split()[-1].rstrip("%")) for line in parts) == pytest.approx(100, abs=0.5)
    assert main(["profile", "--spec", tiny("backprop").to_json()]) == 0
    assert float(capsys.readouterr().out.split()[1]) < 0.01  # backprop has no E-step
