"""Bundles: runs packed with all that they need, run with torch and numpy alone, and collected again."""

import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace

import pytest

from highways import data, record
from highways.cli import main
from highways.collection import CollectionError, collect
from highways.experiments.bundle import BundleError, Packed, choose, pack
from highways.experiments.configuration import all_runs
from highways.experiments.runs import Run
from mappings import only


@pytest.fixture
def runs(tiny) -> dict[str, Run]:
    made = [Run(f"trial/{seed}", tiny("hep", seed=seed, epochs=1)) for seed in (0, 1)]
    made.append(Run("trial/selected/0", tiny("backprop", seed=0, epochs=1), selection="trial/backprop"))
    return {run.path: run for run in made}


@pytest.fixture
def unpacked(runs, tmp_path):
    """The bundle of all three runs, unpacked."""
    selections = tmp_path / "selections"
    (selections / "trial").mkdir(parents=True)
    (selections / "trial/backprop.json").write_text(
        json.dumps({"settings": {"learning.lr": 0.005}}), encoding="utf-8"
    )
    out = tmp_path / "bundle.tar.gz"
    pack(choose(runs.values(), tmp_path / "runs", selections), {"fashion_mnist_excerpt": None}, out)
    with tarfile.open(out) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    return tmp_path / "there/highways-bundle"


def test_a_bundle_runs_with_torch_and_numpy_alone_and_comes_back(runs, unpacked, tmp_path):
    # Other packages that are installed here cannot be imported by the bundle.
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in (
        "yaml",
        "jsonschema",
        "pandas",
        "matplotlib",
        "scipy",
        "snakemake",
        "jinja2",
        "tqdm",
        "torchvision",
    ):
        (blocked / f"{name}.py").write_text("raise ImportError('not installed here')\n", encoding="utf-8")
    script = (unpacked / "run.py").read_text(encoding="utf-8")
    assert 'str(HERE), "OMP' in script
    (unpacked / "run.py").write_text(
        script.replace("str(HERE), ", f'str(HERE) + ":{blocked}", '), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, unpacked / "run.py", "--jobs", "2"], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 runs done" in done.stdout
    again = subprocess.run([sys.executable, unpacked / "run.py"], capture_output=True, text=True, encoding="utf-8")
    assert (again.returncode, again.stderr.count("is there already")) == (0, 3), again.stderr
    fates = collect(unpacked, runs, tmp_path / "runs")
    assert fates == dict.fromkeys(runs, "taken")
    assert record.read(tmp_path / "runs/trial/selected/0.json")["spec"]["learning"]["lr"] == 0.005
    assert set(collect(unpacked, runs, tmp_path / "runs").values()) == {"left: there is one already"}
    with pytest.raises(BundleError, match="no unfinished run"):
        pack(choose(runs.values(), tmp_path / "runs", tmp_path), {}, tmp_path / "again.tar.gz")


@pytest.fixture
def linked(tiny, tmp_path, monkeypatch):
    """A run on a data set whose files are links, the folder of the links, and the folder of their targets."""
    folder, store = tmp_path / "data/MNIST/raw", tmp_path / "store"
    folder.mkdir(parents=True)
    store.mkdir()
    for file in data.SOURCES["mnist"].md5:
        (store / file).write_bytes(file.encode())
        (folder / file).symlink_to(store / file)
    monkeypatch.setattr(data, "verify", lambda *_: {})
    return Packed({"trial/0": replace(tiny("hep"), dataset="mnist")}, ()), tmp_path / "data", store


def test_a_bundle_packs_what_links_point_to(linked, tmp_path):
    packed, folder, _ = linked
    out = tmp_path / "bundle.tar.gz"
    pack(packed, {"mnist": str(folder)}, out)
    with tarfile.open(out) as archive:
        assert all(entry.isreg() for entry in archive)
        for file in data.SOURCES["mnist"].md5:
            content = archive.extractfile(f"highways-bundle/data/MNIST/raw/{file}")
            assert content.read() == file.encode()


def test_what_is_no_file_is_not_packed(linked, tmp_path, monkeypatch):
    packed, folder, _ = linked
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").symlink_to(tmp_path / "absent.py")
    monkeypatch.setattr("highways.experiments.bundle.PACKAGE", package)
    with pytest.raises(BundleError, match=r"module\.py: not a file, or a broken link"):
        pack(packed, {"mnist": str(folder)}, tmp_path / "bundle.tar.gz")
    assert not list(tmp_path.glob("*.tar.gz*"))


def test_a_run_without_a_chosen_rate_waits(runs, tmp_path):
    packed = choose(runs.values(), tmp_path, tmp_path)
    assert set(packed.runs) == {"trial/0", "trial/1"}
    assert packed.waiting == ("trial/selected/0",)
    assert set(choose(runs.values(), tmp_path, tmp_path, "trial/1").runs) == {"trial/1"}


def test_a_record_of_another_spec_is_left(runs, tmp_path, tiny):
    folder = tmp_path / "bundle/records/trial"
    other = tiny("hep", seed=0, epochs=1)
    other = replace(other, learning=replace(other.learning, lr=0.5))
    for name in ("0", "unknown"):
        command = ["train", "--spec", other.to_json(), "--out", str(folder / f"{name}.json"), "--quiet"]
        assert main(command) == 0
    (folder / "1.json").write_text("{", encoding="utf-8")
    fates = collect(tmp_path / "bundle", runs, tmp_path / "runs")
    assert fates["trial/0"] == "left: made with another learning.lr"
    assert fates["trial/unknown"] == "left: the configuration does not ask for it"
    assert fates["trial/1"].startswith("left: ")
    assert not (tmp_path / "runs").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(CollectionError, match="holds no records"):
        collect(tmp_path / "empty", runs, tmp_path / "runs")


def test_the_commands_pack_and_report(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(root)
    places = ["--runs", str(tmp_path / "runs")]
    out = tmp_path / "one.tar.gz"
    command = ["bundle", "--only", "depth/mnist/L128/hep", "--out", str(out), *places]
    if os.environ.get("HIGHWAYS_DATA"):
        assert main(command) == 0
        assert "3 runs" in capsys.readouterr().err
        with tarfile.open(out) as archive:
            names = archive.getnames()
        assert sum(name.startswith("highways-bundle/specs/") for name in names) == 3
        assert any("/data/MNIST/raw/" in name for name in names)
        assert not any("FashionMNIST" in name or "__pycache__" in name for name in names)
    assert main(["collect", str(tmp_path / "empty"), *places]) == 1
    assert "holds no records" in capsys.readouterr().err


def test_a_bundle_asks_for_the_kernel_of_a_run(paper, tmp_path):
    runs = all_runs(only(paper, "kernels"))
    packed = choose(runs.values(), tmp_path, tmp_path, "L008")
    assert packed.kernels == {path: "mixed" if "/mixed/" in path else "native" for path in packed.runs}
    assert packed.kernels
