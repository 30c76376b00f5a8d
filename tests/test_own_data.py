"""Data sets of a user's own: read, checked, identified by their contents, and trained on."""

import dataclasses
import gzip
import hashlib
import json
import os
import sys
import tarfile
import types

import numpy as np
import pytest
import torch

import highways
from datasets import ORDER, asking, colours, configuration, idx, permuted
from highways import data, own_data, provenance, record
from highways.analysis import commands
from highways.analysis.data import tuning
from highways.cli import main
from highways.data_places import IDX
from highways.errors import DataError
from highways.experiments import configuration as configurations
from highways.experiments import cost
from highways.experiments import own_data as block
from highways.experiments.plan import plan
from highways.experiments.results import Sources
from highways.experiments.runs import Run, cell_spec
from highways.specs.fields import SpecError
from highways.specs.run import DATASETS, OwnImages, RunSpec
from mappings import experiment

FULL = os.environ.get("HIGHWAYS_DATA")  # before `elsewhere` unsets it


def training(config: str, method: str) -> list[str]:
    """The command that trains on the data set `bands` at depth 4, without its --out."""
    cell = ["--dataset", "bands", "--depth", "4", "--method", method]
    return ["train", "--config", config, *cell, "--quiet"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch, root):
    """Every test runs in a folder with the project's config.yaml, no data and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIGHWAYS_DATA", raising=False)
    monkeypatch.setenv("HIGHWAYS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.yaml").write_text((root / "config.yaml").read_text(encoding="utf-8"), encoding="utf-8")


def said(capsys, *arguments: str) -> str:
    """The error line of a command that must fail with exit code 1."""
    capsys.readouterr()
    assert main(list(arguments)) == 1
    text = capsys.readouterr().err
    assert text.startswith("highways: error: ")
    assert text.count("\n") == 1
    return text.removeprefix("highways: error: ").strip()


def test_permuted_files_train_like_the_excerpt_with_other_labels(tmp_path):
    """The images are those of the excerpt; only the labels differ."""
    permuted(tmp_path / "kmnist")
    config = configuration(tmp_path, {"name": "kmnist_like", "title": "KMNIST", "folder": "kmnist"})
    command = ["train", "--config", config, "--depth", "4", "--method", "hep", "--set", "epochs=1", "--quiet"]
    assert main([*command, "--dataset", "kmnist_like", "--out", "mine.json"]) == 0
    mine = record.read(tmp_path / "mine.json")
    assert mine["spec"]["dataset"] == "kmnist_like"
    assert mine["images"] == {"train": 3334, "validation": 666, "test": 1000}
    assert mine["test_accuracy"] > 0.5  # guessing gives 0.1
    spec = RunSpec.from_dict(mine["spec"])
    loaded = data.load(spec.dataset, "kmnist", spec.data)
    raw = data.read("fashion_mnist_excerpt")
    first = torch.from_numpy(raw[IDX["x_test"]][0].reshape(-1) / 255).float()
    torch.testing.assert_close(loaded.test.images[0], (first - loaded.mean) / loaded.std)
    assert loaded.test.labels.tolist() == ORDER[raw[IDX["y_test"]]].tolist()


def test_colour_images_train_on_inputs_and_classes_of_their_own(tmp_path):
    np.savez(tmp_path / "bands.npz", **colours())
    config = configuration(tmp_path, {"name": "bands", "npz": "bands.npz"})
    for method in ("hep", "dfa", "meta_pcn"):
        command = training(config, method)
        assert main([*command, "--set", "epochs=1", "--set", "learning.lr=0.003", "--out", f"{method}.json"]) == 0
        found = record.read(tmp_path / f"{method}.json")
        assert (found["spec"]["data"]["inputs"], found["spec"]["data"]["classes"]) == (3072, 7)
        assert found["images"] == {"train": 500, "validation": 100, "test": 200}
    assert record.read(tmp_path / "hep.json")["test_accuracy"] > 0.9


def test_the_parts_are_one_permutation_apart_and_standardised_by_one_mean(tmp_path):
    arrays = colours()
    arrays["x_train"][:, 0, 0, 0] = np.arange(600) // 256  # this pixel and the next number the images
    arrays["x_train"][:, 0, 0, 1] = np.arange(600) % 256
    np.savez(tmp_path / "bands.npz", **arrays)
    images = own_data.describe(own_data.read(tmp_path / "bands.npz"))
    loaded = data.load("bands", tmp_path / "bands.npz", images)

    def numbers(part: data.Part) -> list[int]:
        pixels = (255 * (part.images.double() * loaded.std + loaded.mean)).round().long()
        return (256 * pixels[:, 0] + pixels[:, 1]).tolist()

    train, validation = numbers(loaded.train), numbers(loaded.validation)
    assert sorted(train + validation) == list(range(600))
    assert len(validation) == 100  # one in six, as of MNIST's 60,000
    assert train != sorted(train)
    assert loaded.train.labels.tolist() == [number % 7 for number in train]
    assert loaded.train.images.double().mean().abs() < 1e-6
    assert loaded.train.images.double().std().item() == pytest.approx(1, abs=1e-5)


def test_the_projects_own_files_give_the_projects_own_numbers(tmp_path):
    """Fashion-MNIST as a user's folder of IDX files is read, split and standardised to the same bits."""
    try:
        folder = data.locate("fashion_mnist", FULL)
    except DataError:
        pytest.skip("needs the whole of Fashion-MNIST")
    known = data.load("fashion_mnist", FULL)
    own = data.load("mine", folder, own_data.describe(own_data.read(folder)))
    assert (own.mean, own.std) == (known.mean, known.std)
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(own, part).images, getattr(known, part).images)
        assert torch.equal(getattr(own, part).labels, getattr(known, part).labels)


def test_the_digest_is_of_the_contents_in_whichever_files(tmp_path):
    arrays = own_data.read(permuted(tmp_path / "zipped"))
    expected = hashlib.sha256()
    for key, shape in (("x_train", "(4000, 28, 28)"), ("y_train", "(4000,)"), ("x_test", "(1000, 28, 28)")):
        expected.update(f"{key} {shape}\n".encode() + arrays[key].tobytes())
    expected.update(b"y_test (1000,)\n" + arrays["y_test"].tobytes())
    found = own_data.describe(arrays)
    assert found.digest == expected.hexdigest()[:32]
    np.savez_compressed(tmp_path / "same.npz", **{**arrays, "y_test": arrays["y_test"].astype(">i2")})
    for place in (permuted(tmp_path / "plain", zipped=False), tmp_path / "same.npz"):
        assert own_data.describe(own_data.read(place)) == found
    arrays["y_train"][0] = (arrays["y_train"][0] + 1) % 10
    assert own_data.describe(arrays).digest != found.digest


# What identifies it


@pytest.fixture
def bands(tmp_path) -> dict:
    """The configuration with the data set `bands`, whose file exists."""
    np.savez(tmp_path / "bands.npz", **colours())
    return configurations.load(configuration(tmp_path, {"name": "bands", "npz": "bands.npz"}))


def test_a_spec_holds_what_identifies_the_data_and_others_say_nothing_of_it(bands):
    spec = cell_spec(bands, "bands", 4, "hep", 0)
    assert RunSpec.from_json(spec.to_json()) == spec
    assert spec.data.digest in spec.to_json()
    known = cell_spec(bands, "mnist", 4, "hep", 0)
    assert known.data is None
    assert "data" not in known.to_dict()
    assert "data" not in known.complete()


def test_no_data_set_changes_the_training_code_or_the_runs_of_others(paper, bands):
    assert configurations.all_runs(paper) == configurations.all_runs(bands)
    entries = [{**entry, "name": "again"} for entry in bands["data"]]
    own = experiment(bands, "depth", cells__dataset=["mnist", "bands"], rows=[{"methods": ["pc", "hep"]}])
    asked = configurations.all_runs({**own, "data": bands["data"] + entries})
    assert {path for path in asked if "bands" in path}
    for path, run in configurations.all_runs(paper).items():
        assert asked.get(path, run) == run
    for method in ("hep", "backprop"):
        counted = provenance.modules(["training/loop", f"methods/{method}"])
        assert "own_data" in counted  # how images are read and split decides numbers
        assert not {name for name in counted if name.startswith(("experiments/", "cli/", "torchvision_data"))}


def test_changed_files_make_another_run_and_refuse_the_old_one(bands, tmp_path, capsys):
    spec = cell_spec(bands, "bands", 4, "backprop", 0, {"learning.lr": 1e-3})
    arrays = colours()
    arrays["x_test"][0, 0, 0, 0] ^= 1
    np.savez(tmp_path / "bands.npz", **arrays)
    other = cell_spec(bands, "bands", 4, "backprop", 0, {"learning.lr": 1e-3})
    assert other.hash != spec.hash
    assert dataclasses.replace(other, data=spec.data) == spec
    text = said(capsys, "train", "--spec", spec.to_json(), "--data-dir", "bands.npz", "--out", "out.json")
    assert text == (
        f"bands: bands.npz holds other images or labels than those of the run (digest {other.data.digest} for "
        f"{spec.data.digest}); say with --data-dir where those are, or plan the run again"
    )


def test_status_and_renew_see_that_the_files_have_changed(tmp_path, capsys):
    small = colours(60, 20)
    np.savez(tmp_path / "bands.npz", **small)
    wanted = {
        "data": [{"name": "bands", "npz": "bands.npz"}],
        "training": {"epochs": 1},
    }
    config = json.dumps(asking(wanted, "bands"))
    out = "results/runs/depth/bands/L004/pc/seed0.json"
    command = ["train", "--config", config, "--depth", "4", "--method", "pc", "--dataset", "bands", "--quiet"]
    assert main([*command, "--out", out]) == 0
    small["x_train"][0, 0, 0, 0] ^= 1
    np.savez(tmp_path / "bands.npz", **small)
    capsys.readouterr()
    main(["status", "--config", config])
    line = next(line for line in capsys.readouterr().out.splitlines() if "bands" in line)
    assert line.startswith("outdated")
    assert "another data.digest" in line
    assert "is the record of another run" in said(capsys, *command, "--out", out)
    assert main([*command, "--out", out, "--renew"]) == 0
    renewed = record.read(tmp_path / out)
    assert renewed["spec"]["data"]["digest"] == own_data.describe(own_data.read(tmp_path / "bands.npz")).digest


def test_what_the_files_hold_is_read_once(bands, tmp_path, monkeypatch):
    spec = cell_spec(bands, "bands", 4, "hep", 0)

    def never(place):
        raise AssertionError(f"{place} is read again")

    monkeypatch.setattr(own_data, "read", never)
    assert cell_spec(bands, "bands", 4, "hep", 0) == spec
    for damaged in ("", "{}", '{"version": 1}'):
        for file in (tmp_path / "cache/data").iterdir():
            file.write_text(damaged, encoding="utf-8")
        with pytest.raises(AssertionError, match=r"bands\.npz is read again"):
            cell_spec(bands, "bands", 4, "hep", 0)


def test_a_cache_that_cannot_be_written_is_done_without(bands, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("HIGHWAYS_CACHE", str(tmp_path / "file"))
    assert cell_spec(bands, "bands", 4, "hep", 0).data.classes == 7


def test_the_cache_may_hold_kernels_too(bands, tmp_path):
    cell_spec(bands, "bands", 4, "hep", 0)
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_cost_and_memory_follow_the_data(bands):
    own, known = (cell_spec(bands, name, 4, "hep", 0) for name in ("bands", "mnist"))
    assert cost.updates(own) == 12 * 4  # 500 images in batches of 128
    assert cost.updates(known) == 12 * 391
    # 128 x (3072 x 128 + 2 x 128 x 128 + 128 x 7) multiplications, two operations each
    assert cost.sweep_operations(own) == 2 * 128 * (3072 * 128 + 2 * 128 * 128 + 128 * 7)
    assert cost.memory_mb(own) < cost.memory_mb(known)


# Where it is


def test_a_record_finds_its_data_by_the_configuration_or_the_folder_or_says_what_it_needs(bands, tmp_path, capsys):
    (tmp_path / "store").mkdir()
    (tmp_path / "bands.npz").rename(tmp_path / "store/bands.npz")
    config = configuration(tmp_path, {"name": "bands", "npz": "store/bands.npz"})
    command = training(config, "backprop")
    assert main([*command, "--set", "epochs=1", "--out", "first.json"]) == 0
    first = record.comparable(record.read(tmp_path / "first.json"))
    for number, where in enumerate(
        (["--config", config], ["--data-dir", "store"], ["--data-dir", "store/bands.npz"])
    ):
        again = ["train", "--spec", "first.json", "--quiet", "--out", f"again{number}.json", *where]
        assert main(again) == 0
        assert record.comparable(record.read(tmp_path / f"again{number}.json")) == first
    text = said(capsys, "train", "--spec", "first.json", "--out", "third.json")
    assert text == (
        f"bands: not found at {tmp_path}/data/bands, {tmp_path}/data/bands.npz; say where it is with --data-dir, "
        "or with --config which configuration has it under data"
    )
    (tmp_path / "config.yaml").unlink()  # as on a machine that has the package alone
    assert "say where it is with --data-dir" in said(
        capsys, "train", "--spec", "first.json", "--out", "third.json"
    )
    (tmp_path / "store").rename(tmp_path / "data")
    assert main(["train", "--spec", "first.json", "--quiet", "--out", "third.json"]) == 0


def test_the_weights_of_a_run_are_evaluated_on_its_own_data(bands, tmp_path, capsys):
    config = configuration(tmp_path, {"name": "bands", "npz": "bands.npz"})
    command = training(config, "backprop")
    assert main([*command, "--set", "epochs=1", "--out", "out.json", "--weights", "out.npz"]) == 0
    for where in (["--config", config], ["--data-dir", "bands.npz"]):
        assert main(["evaluate", "out.json", *where]) == 0
        assert capsys.readouterr().out.endswith(": the same\n")
    arrays = colours()
    accuracy = (highways.load("out.npz").predict(arrays["x_test"]) == arrays["y_test"]).mean()
    assert accuracy == record.read(tmp_path / "out.json")["test_accuracy"]


def test_snapshots_are_of_a_training_on_own_data(bands, tmp_path):
    config = configuration(tmp_path, {"name": "bands", "npz": "bands.npz"})
    spec = cell_spec(bands, "bands", 4, "backprop", 0, {"learning.lr": 1e-3})
    assert main(["snapshots", "--config", config, "--spec", spec.to_json(), "--epochs", "0", "--out", "kept"]) == 0
    assert highways.load("kept/epoch00.npz").predict(colours()["x_test"]).max() < 7


def test_propagate_takes_an_own_image(bands, tmp_path, capsys):
    block = {"data": [{"name": "bands", "npz": "bands.npz"}], "propagation": {"dataset": "bands"}}
    options = ["--config", json.dumps(block), "--method", "hep", "--depth", "4", "--steps", "3"]
    assert main(["propagate", *options, "--out", "trace.npz"]) == 0
    assert "layer  rms error after 3 steps" in capsys.readouterr().err


def test_a_bundle_brings_own_data_sets(tmp_path):
    np.savez(tmp_path / "bands.npz", **colours(60, 20))
    permuted(tmp_path / "like")
    wanted = {
        "data": [{"name": "own_bands", "npz": "bands.npz"}, {"name": "own_like", "folder": "like"}],
        "training": {"epochs": 1},
    }
    config = json.dumps(asking(wanted, "own_bands", "own_like"))
    command = ["bundle", "--config", config, "--only", "depth/own_", "--reference", "none"]
    assert main([*command, "--out", "bundle.tar.gz"]) == 0
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    bundle = tmp_path / "highways-bundle"
    assert sorted(path.name for path in (bundle / "data").iterdir()) == ["own_bands.npz", "own_like"]
    (tmp_path / "config.yaml").unlink()  # the other machine has none
    for name in ("own_bands", "own_like"):
        (spec,) = bundle.glob(f"specs/depth/{name}/L004/pc/seed0.json")
        where = ["--data-dir", str(bundle / "data"), "--out", f"{name}.json"]
        assert main(["train", "--spec", str(spec), *where, "--quiet"]) == 0


def test_data_shows_what_an_own_data_set_holds(bands, tmp_path, capsys):
    config = configuration(tmp_path, {"name": "bands", "npz": "bands.npz"})
    images = cell_spec(bands, "bands", 4, "hep", 0).data
    for where in (["--config", config], ["--data-dir", "bands.npz"]):
        assert main(["data", "bands", *where, "--out", "found.json"]) == 0
        told = capsys.readouterr().err
        assert "500 images to train on, 100 for validation, 200 to test" in told
        assert "32 x 32 x 3 (3,072 inputs), 7 classes" in told
        assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8")) == {
            "dataset": "bands",
            **dataclasses.asdict(images),
        }
    assert "'bonds' is not allowed; it takes one of mnist, fashion_mnist, fashion_mnist_excerpt, bands" in said(
        capsys, "data", "bonds", "--config", config
    )


# What tables and figures say of it


def test_a_table_and_a_figure_have_its_title_or_its_name_and_the_accuracy_of_guessing(bands, tmp_path):
    sources = Sources(tmp_path / "runs", tmp_path / "propagation", tmp_path)
    asked = asking(bands, "bands", "mnist")
    for entry, called in (({}, "bands"), ({"title": "Coloured bands"}, "Coloured bands")):
        config = {**asked, "data": [{**bands["data"][0], **entry}]}
        rows = commands.make_table("depth", config, sources).frame.index
        assert {name for name, _ in rows} == {called, "MNIST"}
    run = Run("depth/bands/L004/pc/seed0", cell_spec(bands, "bands", 4, "pc", 0))
    command = ["train", "--spec", run.spec.to_json(), "--data-dir", "bands.npz", "--quiet"]
    assert main([*command, "--out", f"runs/{run.path}.json"]) == 0
    own, known = commands.draw("depth", config, sources).axes
    assert own.get_title() == "Coloured bands, by depth"
    lines = [next(line for line in axes.lines if line.get_gid() == "chance") for axes in (own, known)]
    assert [set(line.get_ydata()) for line in lines] == [{100 / 7}, {10.0}]
    assert [text.get_text() for text in own.texts if "guessing" in text.get_text()] == ["guessing: 1 of 7 classes"]


def test_a_choice_is_at_chance_by_the_classes_of_its_data(bands):
    """15 % is more than two points above guessing among ten classes (10 %), but not among seven (14.3 %)."""
    cell = types.SimpleNamespace(n=1, selection=types.SimpleNamespace(best=0.15, edges=()))
    for dataset, wanted in (("mnist", ""), ("bands", f" {tuning.NOMINAL}")):
        select = {"among": {"learning.lr": [1e-3]}, "seeds": 3, "epochs": 1}
        (variant,) = plan(experiment(asking(bands, dataset), "depth", select=select)).variants
        assert tuning.mark(variant, cell) == wanted


# torchvision


class Pictures:
    """Stands in for a class of torchvision.datasets: takes root, train, download; gives images and labels."""

    def __init__(self, root, train=True, download=False):
        assert download
        arrays = colours(60, 20)
        part = "train" if train else "test"
        self.pairs = list(zip(arrays[f"x_{part}"], arrays[f"y_{part}"].tolist(), strict=True))

    def __getitem__(self, index):
        return self.pairs[index]


class Words(Pictures):
    def __init__(self, root, train=True, download=False):
        self.pairs = [("some", 0), ("words", 1)]


@pytest.fixture
def torchvision(monkeypatch):
    made = types.SimpleNamespace(VisionDataset=Pictures, Pictures=Pictures, Words=Words, transform=print)
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(datasets=made))


def test_a_class_of_torchvision_is_downloaded_by_the_command_and_kept(tmp_path, capsys, torchvision, monkeypatch):
    config = configuration(tmp_path, {"name": "pictures", "torchvision": "Pictures"})
    command = ["train", "--config", config, "--dataset", "pictures", "--depth", "4", "--method", "backprop"]
    missing = f"data: pictures: torchvision: {tmp_path}/data/Pictures.npz is not there"
    assert (
        said(capsys, *command)
        == f"{missing}; download it with `highways data pictures` and this configuration as --config"
    )
    assert "missing" in said(capsys, "data", "pictures", "--config", config, "--no-download")
    assert main(["data", "pictures", "--config", config]) == 0
    monkeypatch.setitem(sys.modules, "torchvision", None)  # training needs none
    assert main([*command, "--set", "epochs=1", "--quiet", "--out", "out.json"]) == 0
    held = own_data.read(tmp_path / "data/Pictures.npz")
    for key, array in colours(60, 20).items():
        assert (held[key] == array).all()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Nothing", "torchvision: Nothing: no data set of torchvision.datasets"),
        ("transform", "torchvision: transform: no data set of torchvision.datasets"),
        ("Words", "/data/Words.npz: x_train: <U5; it takes uint8"),
    ],
)
def test_a_class_that_is_no_data_set_of_images_is_refused(tmp_path, capsys, torchvision, name, says):
    config = configuration(tmp_path, {"name": "it", "torchvision": name})
    assert says in said(capsys, "data", "it", "--config", config)
    assert not list(tmp_path.glob("data/*"))


def test_without_torchvision_the_message_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    config = configuration(tmp_path, {"name": "it", "torchvision": "KMNIST"})
    assert "torchvision: KMNIST: install torchvision" in said(capsys, "data", "it", "--config", config)


def test_a_download_that_fails_is_one_line(tmp_path, capsys, monkeypatch, torchvision):
    def fails(*_, **__):
        raise OSError("no\nnetwork")

    monkeypatch.setattr(Pictures, "__init__", fails)
    config = configuration(tmp_path, {"name": "it", "torchvision": "Pictures"})
    text = said(capsys, "data", "it", "--config", config)
    assert text.startswith("torchvision: Pictures: could not be downloaded and read (no network); make ")


# What is refused


def without(key):
    return lambda arrays: arrays.pop(key)


def changed(key, change):
    return lambda arrays: arrays.update({key: change(arrays[key])})


def test_every_fault_of_an_npz_is_one_line_with_file_key_and_remedy(tmp_path):
    remedy = "number the classes 0, 1, 2, ... without a gap"
    faults = [
        (without("y_test"), "no key y_test; it takes x_train, y_train, x_test, y_test, and has "),
        (changed("x_train", lambda x: x / 255), "x_train: float64; it takes uint8, from 0 to 255: brightness"),
        (changed("x_test", lambda x: x.astype(np.int64)), "x_test: int64; it takes uint8"),
        (changed("x_train", lambda x: x[:, 0, 0, 0]), "x_train: shape 60; it takes images, (n, height, width)"),
        (
            changed("x_test", lambda x: x[:, 1:]),
            "x_test: images of 31 x 32 x 3, and those to train on are 32 x 32",
        ),
        (changed("x_test", lambda x: x[:0]), "x_test: empty (0 x 32 x 32 x 3); it takes one image or more"),
        (changed("y_train", lambda y: y[1:]), "y_train: 59 labels for 60 images"),
        (changed("y_test", lambda y: y[1:]), "y_test: 19 labels for 20 images"),
        (changed("y_train", lambda y: y / 1), "y_train: float64; it takes labels as whole numbers"),
        (changed("y_train", lambda y: y[:, None]), "y_train: shape 60 x 1; it takes one label per image"),
        (changed("y_train", lambda y: y + 1), f"y_train: labels up to 7, and none is 0; {remedy}"),
        (changed("y_train", lambda y: y - 1), f"y_train: a label of -1; {remedy}"),
        (
            changed("y_train", lambda y: np.where(y == 3, 4, y)),
            f"y_train: labels up to 6, and none is 3; {remedy}",
        ),
        (changed("y_train", lambda y: 0 * y), "y_train: every label is 0; it takes two classes or more"),
        (changed("y_test", lambda y: y + 1), "y_test: a label of 7, and those to train on are 0 to 6"),
        (changed("y_test", lambda y: y - 1), "y_test: a label of -1, and those to train on are 0 to 6"),
        (changed("y_train", lambda y: y.astype(object)), "cannot be read as an .npz file (Object arrays"),
    ]
    for number, (fault, says) in enumerate(faults):
        arrays = colours(60, 20)
        fault(arrays)
        path = tmp_path / f"wrong{number}.npz"
        np.savez(path, **arrays)
        with pytest.raises(DataError) as caught:
            own_data.read(path)
        assert str(caught.value).startswith(f"{path}: {says}")
        assert "\n" not in str(caught.value)


def test_too_few_images_or_equal_ones_are_refused(tmp_path):
    few = {**colours(60, 20)}
    few["x_train"], few["y_train"] = few["x_train"][:5], np.arange(5)
    np.savez(tmp_path / "few.npz", **few)
    with pytest.raises(DataError, match=r"few\.npz: x_train: 5 images; one in 6 is held out"):
        own_data.read(tmp_path / "few.npz")
    dark = {key: 0 * array if key[0] == "x" else array for key, array in colours(60, 20).items()}
    np.savez(tmp_path / "dark.npz", **dark)
    images = own_data.describe(own_data.read(tmp_path / "dark.npz"))
    with pytest.raises(DataError, match="dark: every pixel to train on is 0; images must differ"):
        data.load("dark", tmp_path / "dark.npz", images)


def test_files_that_are_no_npz_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("text", encoding="utf-8")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "whole.npz", **colours(60, 20))
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:5000])
    for name in ("text.npz", "one.npy", "half.npz"):
        with pytest.raises(
            DataError, match=rf"{name}: cannot be read as an \.npz file .*; make it with numpy\.savez"
        ):
            own_data.read(tmp_path / name)


def test_every_fault_of_an_idx_file_is_one_line_with_file_and_remedy(tmp_path):
    folder = permuted(tmp_path / "mine", zipped=False)
    labels = folder / IDX["y_train"]
    whole = labels.read_bytes()
    faults = [
        (b"", "cannot be read as an IDX file"),
        (b"\0\0\x0d\x01" + whole[4:], "no IDX file of unsigned bytes (begins with 0000 0d)"),
        (b"PNG.." + whole, "no IDX file of unsigned bytes (begins with 504e 47)"),
        (whole[:-1], "3,999 bytes for 4000; copy the file again"),
        (whole + b"\0", "more bytes for 4000; copy the file again"),
        (b"\0\0\x08\xff" + b"\xff" * 1020, "cannot be read as an IDX file"),
        (idx(np.zeros((4000, 2))), "shape 4000 x 2; it takes one label per image"),
    ]
    for content, says in faults:
        labels.write_bytes(content)
        with pytest.raises(DataError) as caught:
            own_data.read(folder)
        assert str(caught.value).startswith(f"{labels}: {says}")
    labels.unlink()
    (folder / f"{labels.name}.gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(DataError, match=r"ubyte\.gz: cannot be read as an IDX file"):
        own_data.read(folder)
    (folder / f"{labels.name}.gz").unlink()
    with pytest.raises(DataError, match=r"labels-idx1-ubyte: missing; a folder of IDX files has train-images"):
        own_data.read(folder)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{"name": "mine"}], "data: mine: no source; give one of folder, npz, torchvision"),
        (
            [{"name": "mine", "npz": "a", "folder": "b"}],
            "data: mine: folder and npz; give one of folder, npz, torchv",
        ),
        ([{"name": "mnist", "npz": "a"}], "data: mnist: a data set of that name comes with the project; rename"),
        ([{"name": "a", "npz": "a"}, {"name": "a", "npz": "b"}], "data: two entries are called 'a'; rename one"),
        ([{"name": "a/b", "npz": "a"}], "data[0].name: 'a/b' does not match"),
        ([{"name": "a", "zip": "a"}], "data[0].zip: unknown key; allowed here: name, title"),
        ([{"npz": "a"}], "data[0]: 'name' is a required property"),
    ],
)
def test_an_entry_that_says_too_little_or_too_much_is_refused(paper, entries, says):
    for check in (configurations.validate, block.checked):
        with pytest.raises(SpecError) as caught:
            check({**paper, "data": entries})
        assert str(caught.value).startswith(says)


def test_a_source_that_is_not_there_is_named_with_its_key(paper, tmp_path):
    for key, says in (
        (
            "npz",
            "data: mine: npz: absent is not there; it takes a file with the keys x_train, y_train, x_test, y_test",
        ),
        ("folder", "data: mine: folder: absent is not there; it takes a folder with train-images-idx3-ubyte, "),
    ):
        config = {**paper, "data": [{"name": "mine", key: "absent"}]}
        configurations.validate(config)  # no run asks for it
        with pytest.raises(DataError) as caught:
            configurations.validate(asking(config, "mine"))
        assert str(caught.value).startswith(says)
    (tmp_path / "absent").write_text("text", encoding="utf-8")
    with pytest.raises(DataError, match=r"data: mine: absent: cannot be read as an \.npz file"):
        configurations.validate(asking({**paper, "data": [{"name": "mine", "npz": "absent"}]}, "mine"))


def test_an_unknown_data_set_is_named_with_those_that_there_are(bands):
    for config, known in (({**bands, "data": []}, ""), (bands, ", bands")):
        with pytest.raises(SpecError) as caught:
            configurations.validate(asking(config, "bonds"))
        assert f"dataset: 'bonds' is not allowed; it takes one of {', '.join(DATASETS)}{known}, or give" in str(
            caught.value
        )


def test_a_spec_says_what_its_own_data_hold_and_nothing_of_others(tiny):
    own = OwnImages(500, 100, 200, inputs=3072, classes=7, digest="0" * 32)
    assert tiny(dataset="mine", data=own).images is own
    with pytest.raises(SpecError, match=r"dataset: 'mine' is not allowed; it takes one of .*section data"):
        tiny(dataset="mine")
    with pytest.raises(
        SpecError, match="dataset: 'mnist' comes with the project; it does not use the section data"
    ):
        tiny(dataset="mnist", data=own)
    with pytest.raises(SpecError, match=r"dataset: '\.\./mine' is not allowed"):
        tiny(dataset="../mine", data=own)
    for key, value in (("digest", "abc"), ("classes", 1), ("inputs", 0), ("train", 0)):
        with pytest.raises(SpecError, match=f"data.{key}: "):
            tiny(dataset="mine", data=dataclasses.replace(own, **{key: value}))


def test_two_data_sets_of_one_title_are_refused(paper):
    """A table could not tell them apart."""
    for entries in (
        [{"name": "a", "npz": "a.npz", "title": "T"}, {"name": "b", "npz": "b.npz", "title": "T"}],
        [{"name": "a", "npz": "a.npz", "title": "MNIST"}],
        [{"name": "a", "npz": "a.npz"}, {"name": "b", "npz": "b.npz", "title": "a"}],
    ):
        with pytest.raises(SpecError, match=r"data: [ab]: another data set has the same title"):
            configurations.validate({**paper, "data": entries})
