"""Finding, checking, splitting and standardising the data sets."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch

from datasets import idx
from highways import data
from highways.cli import main
from highways.data_places import ENVIRONMENT
from highways.errors import DataError

TRAIN, VALIDATION, TEST = 300, 50, 40
FILES = (data.TRAIN_IMAGES, data.TRAIN_LABELS, data.TEST_IMAGES, data.TEST_LABELS)
Arrays = dict[str, data.Bytes]
Fakes = dict[str, Arrays]
SCRIPT = Path(__file__).parents[1] / "scripts" / "make_excerpt.py"


def fake_arrays(seed: int) -> Arrays:
    """A small data set; the first two pixels of an image hold its number, and test images are darker."""
    random = np.random.default_rng(seed)

    def images(count: int, brightest: int) -> data.Bytes:
        pixels = random.integers(0, brightest, (count, 28, 28), dtype=np.uint8)
        pixels[:, 0, 0], pixels[:, 0, 1] = np.divmod(np.arange(count), 256)
        return pixels

    def labels(count: int) -> data.Bytes:
        return random.integers(0, 10, count, dtype=np.uint8)

    return dict(zip(FILES, (images(TRAIN, 256), labels(TRAIN), images(TEST, 64), labels(TEST)), strict=True))


def write(folder: Path, arrays: Arrays, *, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in arrays.items():
        if zipped:
            (folder / f"{file}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / file).write_bytes(idx(array))
    return folder


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def expect(monkeypatch: pytest.MonkeyPatch, name: str, arrays: Arrays) -> None:
    """Set the checksums of the data set `name` to those of `arrays`."""
    checksums = {file: md5(idx(array)) for file, array in arrays.items()}
    monkeypatch.setitem(data.SOURCES, name, replace(data.SOURCES[name], md5=checksums, validation=VALIDATION))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fakes:
    """Fake contents of both data sets, neither of which is on disk."""
    arrays = {"mnist": fake_arrays(1), "fashion_mnist": fake_arrays(2)}
    for name, content in arrays.items():
        expect(monkeypatch, name, content)
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setattr(data, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    monkeypatch.chdir(tmp_path)
    return arrays


def test_a_small_file_of_many_bytes_is_not_unpacked(fakes: Fakes, tmp_path: Path) -> None:
    """A gzip file of 200 MB of zeros is refused before it fills the memory."""
    folder = write(tmp_path / "data/MNIST/raw", fakes["mnist"])
    (folder / FILES[0]).unlink()
    with gzip.open(folder / f"{FILES[0]}.gz", "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(bytes(2**20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"gz holds more than 47,040,016 bytes"):
            data.read("mnist")
        assert tracemalloc.get_traced_memory()[1] < 150e6
    finally:
        tracemalloc.stop()


def pixels(part: data.Part, dataset: data.Dataset) -> data.Bytes:
    """The bytes a standardised part was made of, (n, 784)."""
    return np.rint((part.images.double().numpy() * dataset.std + dataset.mean) * 255).astype(np.uint8)


def failure(action: Callable[[], object]) -> str:
    """The one-line message of the DataError that `action` must raise."""
    with pytest.raises(DataError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


def assert_names(message: str, path: Path, name: str) -> None:
    """The message names the file, the MD5 it should have, and what to run."""
    assert str(path) in message
    assert data.SOURCES[name].md5[path.name.removesuffix(".gz")] in message
    assert f"`highways data {name}`" in message


# Reading


def test_raw_and_gzipped_files_load_alike(fakes: Fakes, tmp_path: Path) -> None:
    raw = data.load("mnist", write(tmp_path / "a", fakes["mnist"]))
    zipped = data.load("mnist", write(tmp_path / "b", fakes["mnist"], zipped=True))
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(raw, part).images, getattr(zipped, part).images)
        assert torch.equal(getattr(raw, part).labels, getattr(zipped, part).labels)
    assert (raw.mean, raw.std) == (zipped.mean, zipped.std)


def test_shapes_and_types(fakes: Fakes, tmp_path: Path) -> None:
    dataset = data.load("mnist", write(tmp_path / "a", fakes["mnist"]))
    assert dataset.name == "mnist"
    for part, count in (
        (dataset.train, TRAIN - VALIDATION),
        (dataset.validation, VALIDATION),
        (dataset.test, TEST),
    ):
        assert (part.images.shape, part.images.dtype) == ((count, 784), torch.float32)
        assert (part.labels.shape, part.labels.dtype) == ((count,), torch.int64)


@pytest.mark.parametrize("layout", ["MNIST/raw", "MNIST", "."])
def test_layouts_under_a_root(fakes: Fakes, tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path / "root" / layout, fakes["mnist"])
    assert data.locate("mnist", tmp_path / "root") == folder
    assert data.verify("mnist", str(tmp_path / "root")) == data.SOURCES["mnist"].md5


# Wrong files


@pytest.mark.parametrize("file", FILES)
def test_corrupt_byte(fakes: Fakes, tmp_path: Path, file: str) -> None:
    path = write(tmp_path / "a", fakes["mnist"]) / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    message = failure(lambda: data.load("mnist", tmp_path / "a"))
    assert_names(message, path, "mnist")
    assert md5(bytes(content)) in message


def test_truncated_file(fakes: Fakes, tmp_path: Path) -> None:
    path = write(tmp_path / "a", fakes["mnist"]) / data.TRAIN_IMAGES
    path.write_bytes(path.read_bytes()[:-1000])
    assert_names(failure(lambda: data.load("mnist", tmp_path / "a")), path, "mnist")


@pytest.mark.parametrize("damage", [lambda zipped: zipped[:-1000], lambda zipped: b"", lambda zipped: b"<html>"])
def test_truncated_or_false_gzip(fakes: Fakes, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / "a", fakes["mnist"], zipped=True) / f"{data.TEST_IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    assert_names(failure(lambda: data.load("mnist", tmp_path / "a")), path, "mnist")


def test_damaged_deflate_stream(fakes: Fakes, tmp_path: Path) -> None:
    path = write(tmp_path / "a", fakes["mnist"], zipped=True) / f"{data.TEST_IMAGES}.gz"
    content = bytearray(path.read_bytes())
    content[10:200] = bytes([0xFF]) * 190
    path.write_bytes(content)
    assert_names(failure(lambda: data.load("mnist", tmp_path / "a")), path, "mnist")


def test_missing_file(fakes: Fakes, tmp_path: Path) -> None:
    path = write(tmp_path / "a", fakes["mnist"]) / data.TEST_LABELS
    path.unlink()
    message = failure(lambda: data.load("mnist", tmp_path / "a"))
    assert_names(message, path, "mnist")
    assert message.startswith(f"{path} is missing")


@pytest.mark.parametrize("layout", ["MNIST/raw", "."])
def test_swapped_data_set(fakes: Fakes, tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path / "root" / layout, fakes["fashion_mnist"])
    message = failure(lambda: data.load("mnist", tmp_path / "root"))
    assert_names(message, folder / data.TRAIN_IMAGES, "mnist")
    assert "belongs to fashion_mnist" in message


def test_label_count_mismatch(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = fakes["mnist"] | {data.TEST_LABELS: fakes["mnist"][data.TEST_LABELS][:-1]}
    expect(monkeypatch, "mnist", arrays)
    folder = write(tmp_path / "a", arrays)
    message = failure(lambda: data.load("mnist", folder))
    assert_names(message, folder / data.TEST_LABELS, "mnist")
    assert f"{TEST - 1} labels for {TEST} images" in message


BLANK = np.zeros((TEST, 28, 28), np.uint8)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\0\x08", id="short header"),
        pytest.param(b"\0\0\x09\x03" + idx(BLANK)[4:], id="signed bytes"),
        pytest.param(idx(BLANK[:, 0]), id="two dimensions"),
        pytest.param(idx(BLANK[:, :9, :9]), id="small images"),
        pytest.param(idx(BLANK)[:-1], id="short body"),
    ],
)
def test_bad_idx_header(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    folder = write(tmp_path / "a", fakes["mnist"])
    (folder / data.TEST_IMAGES).write_bytes(content)
    source = data.SOURCES["mnist"]
    checksums = source.md5 | {data.TEST_IMAGES: md5(content)}
    monkeypatch.setitem(data.SOURCES, "mnist", replace(source, md5=checksums))
    assert_names(failure(lambda: data.load("mnist", folder)), folder / data.TEST_IMAGES, "mnist")


def test_unknown_name() -> None:
    message = failure(lambda: data.load("cifar10"))
    assert all(name in message for name in ("cifar10", *data.SOURCES))


# Order of look-up


def test_order_of_lookup(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = fakes["fashion_mnist"]
    default = write(tmp_path / "data" / "FashionMNIST" / "raw", arrays)
    assert data.locate("fashion_mnist") == default
    debian = write(tmp_path / "debian", arrays)
    assert data.locate("fashion_mnist") == debian
    environment = write(tmp_path / "env" / "FashionMNIST" / "raw", arrays)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "env"))
    assert data.locate("fashion_mnist") == environment
    explicit = write(tmp_path / "explicit" / "FashionMNIST" / "raw", arrays)
    assert data.locate("fashion_mnist", tmp_path / "explicit") == explicit


def test_debian_folder_is_not_searched_for_mnist(fakes: Fakes, tmp_path: Path) -> None:
    write(tmp_path / "debian", fakes["fashion_mnist"])
    assert str(tmp_path / "debian") not in failure(lambda: data.load("mnist"))


def test_explicit_folder_without_the_data_is_an_error(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "env", fakes["mnist"])
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "env"))
    message = failure(lambda: data.load("mnist", tmp_path / "empty"))
    assert str(tmp_path / "empty" / "MNIST" / "raw") in message
    assert str(tmp_path / "env") not in message


def test_environment_falls_through_only_when_it_holds_no_file(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "data" / "MNIST" / "raw", fakes["mnist"])
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "env"))
    assert data.locate("mnist") == folder
    broken = tmp_path / "env" / "MNIST" / "raw" / data.TRAIN_IMAGES
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"broken")
    assert_names(failure(lambda: data.load("mnist")), broken, "mnist")


def test_nothing_found_names_places_files_and_checksums(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "env"))
    message = failure(lambda: data.load("fashion_mnist"))
    for place in (tmp_path / "env", tmp_path / "debian", tmp_path / "data" / "FashionMNIST" / "raw"):
        assert str(place) in message
    for file, checksum in data.SOURCES["fashion_mnist"].md5.items():
        assert file in message
        assert checksum in message
    assert "`highways data fashion_mnist`" in message


# Splitting and standardising


def test_split_is_a_partition_and_keeps_labels_with_images(fakes: Fakes, tmp_path: Path) -> None:
    dataset = data.load("mnist", write(tmp_path / "a", fakes["mnist"]))
    numbers = []
    for part in (dataset.train, dataset.validation):
        images = pixels(part, dataset)
        index = images[:, 0].astype(int) * 256 + images[:, 1]
        np.testing.assert_array_equal(images, fakes["mnist"][data.TRAIN_IMAGES].reshape(TRAIN, 784)[index])
        np.testing.assert_array_equal(part.labels.numpy(), fakes["mnist"][data.TRAIN_LABELS][index])
        numbers.extend(index.tolist())
    assert sorted(numbers) == list(range(TRAIN))
    assert numbers != list(range(TRAIN))


def test_split_neither_reads_nor_moves_the_global_generators(fakes: Fakes, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", fakes["mnist"])
    loaded = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state()
        loaded.append(data.load("mnist", folder))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(loaded[0].train.images, loaded[1].train.images)
    assert torch.equal(loaded[0].validation.labels, loaded[1].validation.labels)


def test_all_parts_are_standardised_with_training_statistics(fakes: Fakes, tmp_path: Path) -> None:
    dataset = data.load("mnist", write(tmp_path / "a", fakes["mnist"]))
    train = dataset.train.images.double()
    assert abs(train.mean().item()) < 1e-4
    assert abs(train.std(correction=0).item() - 1) < 1e-4

    original = pixels(dataset.train, dataset) / 255
    assert dataset.mean == pytest.approx(original.mean(), rel=1e-12)
    assert dataset.std == pytest.approx(original.std(), rel=1e-12)
    expected = (fakes["mnist"][data.TEST_IMAGES].reshape(TEST, 784) / 255 - dataset.mean) / dataset.std
    np.testing.assert_allclose(dataset.test.images.numpy(), expected, atol=1e-6)


# Downloading


def test_load_never_downloads(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("load downloaded")

    monkeypatch.setattr(data, "download", forbidden)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert "not found in" in failure(lambda: data.load("mnist"))


def test_download_without_torchvision(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert "needs torchvision" in failure(lambda: data.download("mnist"))


def test_download_without_network(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("torchvision.datasets.mnist")

    def offline(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(module, "download_and_extract_archive", offline)
    message = failure(lambda: data.download("mnist"))
    assert "no route to host" in message
    assert str(tmp_path / "data" / "MNIST" / "raw") in message
    for file, checksum in data.SOURCES["mnist"].md5.items():
        assert f"{file} (MD5 {checksum})" in message


def offer(monkeypatch: pytest.MonkeyPatch, arrays: Arrays) -> None:
    """Make torchvision download these files."""
    module = pytest.importorskip("torchvision.datasets.mnist")

    def serve(url: str, download_root: str, **_: object) -> None:
        file = url.rsplit("/", 1)[1].removesuffix(".gz")
        Path(download_root, file).write_bytes(idx(arrays[file]))

    monkeypatch.setattr(module, "download_and_extract_archive", serve)


def test_download_fetches_checks_and_returns_the_folder(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = fakes["fashion_mnist"][data.TEST_LABELS]
    offer(monkeypatch, fakes["mnist"])
    assert data.download("mnist", tmp_path / "good") == tmp_path / "good" / "MNIST" / "raw"
    offer(monkeypatch, fakes["mnist"] | {data.TEST_LABELS: wrong})
    message = failure(lambda: data.download("mnist", tmp_path / "bad"))
    assert_names(message, tmp_path / "bad" / "MNIST" / "raw" / data.TEST_LABELS, "mnist")


def test_the_command_completes_what_a_broken_download_left(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, fakes["mnist"])
    folder = write(tmp_path / "data" / "MNIST" / "raw", {data.TRAIN_LABELS: fakes["mnist"][data.TRAIN_LABELS]})
    assert main(["data", "mnist", "--no-download"]) == 1
    assert main(["data", "mnist", "--data-dir", str(tmp_path / "data")]) == 1  # no download there
    capsys.readouterr()
    assert main(["data", "mnist"]) == 0
    assert f"4 files in {folder}, checksums right" in capsys.readouterr().err


def test_download_of_data_already_there_needs_no_torchvision(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    folder = write(tmp_path / "data" / "MNIST" / "raw", fakes["mnist"], zipped=True)
    assert data.download("mnist") == folder
    assert data.download("fashion_mnist_excerpt") == data.EXCERPT


# The real data sets


def full(name: str) -> data.Dataset:
    try:
        data.locate(name)
    except DataError:
        pytest.skip(f"the full {name} is not on this machine; set {ENVIRONMENT} to its root")
    return data.load(name)


def test_excerpt() -> None:
    dataset = data.load("fashion_mnist_excerpt")
    assert [len(part.labels) for part in (dataset.train, dataset.validation, dataset.test)] == [
        3000,
        1000,
        1000,
    ]
    training_labels = torch.cat([dataset.train.labels, dataset.validation.labels])
    assert training_labels.bincount().tolist() == [400] * 10
    assert dataset.test.labels.bincount().tolist() == [100] * 10
    assert abs(dataset.train.images.mean().item()) < 1e-4
    assert sum(path.stat().st_size for path in data.EXCERPT.iterdir()) < 3_000_000


def test_excerpt_is_found_whatever_the_folder(tmp_path: Path) -> None:
    assert data.locate("fashion_mnist_excerpt", tmp_path) == data.EXCERPT


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_full_set(name: str) -> None:
    dataset = full(name)
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [len(part.images) for part in parts] == [50_000, 10_000, 10_000]
    for part in parts:
        assert set(part.labels.tolist()) == set(range(10))
    assert abs(dataset.train.images.double().mean().item()) < 1e-4
    assert abs(dataset.train.images.double().std().item() - 1) < 1e-4


def test_excerpt_is_a_subset_of_the_full_set() -> None:
    full("fashion_mnist")
    whole, excerpt = data.read("fashion_mnist"), data.read("fashion_mnist_excerpt")
    for images, labels in ((data.TRAIN_IMAGES, data.TRAIN_LABELS), (data.TEST_IMAGES, data.TEST_LABELS)):
        known = {(image.tobytes(), int(label)) for image, label in zip(whole[images], whole[labels], strict=True)}
        for image, label in zip(excerpt[images], excerpt[labels], strict=True):
            assert (image.tobytes(), int(label)) in known


def test_script_makes_the_excerpt_again(tmp_path: Path) -> None:
    full("fashion_mnist")
    environment = os.environ | {"PYTHONPATH": str(Path(data.__file__).parents[1])}
    source = data.locate("fashion_mnist")
    command = [sys.executable, str(SCRIPT), "--source", str(source), "--out", str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, encoding="utf-8")
    assert dict(line.split() for line in run.stdout.splitlines()) == data.SOURCES["fashion_mnist_excerpt"].md5
    for file in FILES:
        made = (tmp_path / f"{file}.gz").read_bytes()
        assert gzip.decompress(made) == gzip.decompress((data.EXCERPT / f"{file}.gz").read_bytes())
        assert made[3:8] == bytes(5), "flags (no file name) and time in the gzip header must be zero"
