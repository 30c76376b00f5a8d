"""Data sets: found on disk, checked, split and standardised.

MNIST and Fashion-MNIST are checked against known MD5s, a data set of the user's own against the run's spec.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from highways import own_data
from highways.data_places import (
    IDX,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    default_dir,
    find,
    locate_own,
    roots,
)
from highways.errors import DataError
from highways.model.randomness import generator
from highways.specs.run import OwnImages

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
EXCERPT = Path(__file__).with_name("excerpt")

LARGEST = 16 + 60_000 * 28 * 28  # bytes of the training images; a small .gz may unpack to far more

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """Where a data set's files lie under a root, and what they must contain."""

    folder: str
    """Folder in torchvision's layout, `<root>/<folder>/raw`."""
    md5: dict[str, str]
    """IDX file name -> MD5 of its decompressed bytes."""
    validation: int
    """Number of training images held out for validation."""
    torchvision: str | None
    """Class in `torchvision.datasets` that downloads it; None for the embedded excerpt."""


SOURCES: dict[str, Source] = {
    "mnist": Source(
        folder="MNIST",
        md5={
            TRAIN_IMAGES: "6bbc9ace898e44ae57da46a324031adb",
            TRAIN_LABELS: "a25bea736e30d166cdddb491f175f624",
            TEST_IMAGES: "2646ac647ad5339dbf082846283269ea",
            TEST_LABELS: "27ae3e4e09519cfbb04c329615203637",
        },
        validation=10_000,
        torchvision="MNIST",
    ),
    "fashion_mnist": Source(
        folder="FashionMNIST",
        md5={
            TRAIN_IMAGES: "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            TRAIN_LABELS: "9018921c3c673c538a1fc5bad174d6f9",
            TEST_IMAGES: "8181f5470baa50b63fa0f6fddb340f0a",
            TEST_LABELS: "15d484375f8d13e6eb1aabb0c3f46965",
        },
        validation=10_000,
        torchvision="FashionMNIST",
    ),
    "fashion_mnist_excerpt": Source(
        folder="excerpt",
        md5={
            TRAIN_IMAGES: "03b53cc60b94a9e448334b4235bcfafa",
            TRAIN_LABELS: "c182ee125440fb59f77075af5970fd90",
            TEST_IMAGES: "320e9c85188e76fc30b1393f4038dc0c",
            TEST_LABELS: "a14c9d61f32f02fe0a67acbb37cefa36",
        },
        validation=1_000,
        torchvision=None,
    ),
}


@dataclass(frozen=True, eq=False)
class Part:
    """Images, float32 (n, D), and their labels 0..C-1, int64 (n,)."""

    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, eq=False)
class Dataset:
    """A split data set; `mean` and `std` are those of the training part's pixels on the scale [0, 1]."""

    name: str
    train: Part
    validation: Part
    test: Part
    mean: float
    std: float


def load(name: str, data_dir: str | Path | None = None, own: OwnImages | None = None) -> Dataset:
    """Read, check, split and standardise a data set; never downloads.

    own: what a data set of the user's own must hold. The validation part comes out of the training file by one
    permutation that no run's seed changes. All parts are standardised with the training part's scalar mean and
    standard deviation, colours included.

    Raises `DataError` if the data set is unknown or its files are missing, wrong or damaged.
    """
    if own is None:
        files = read(name, data_dir)
        arrays, held_out = {key: files[file] for key, file in IDX.items()}, SOURCES[name].validation
    else:
        arrays, held_out = read_own(name, locate_own(name, data_dir), own), own.validation
    return prepared(name, arrays, held_out)


def read_own(name: str, place: Path, own: OwnImages) -> own_data.Arrays:
    """The checked arrays of an own data set; DataError where they are not what `own`, of a run, describes."""
    arrays = own_data.read(place)
    found = own_data.describe(arrays)
    if found != own:
        raise DataError(
            f"{name}: {place} holds other images or labels than those of the run (digest {found.digest} for "
            f"{own.digest}); say with --data-dir where those are, or plan the run again"
        )
    return arrays


def prepared(name: str, arrays: own_data.Arrays, validation: int) -> Dataset:
    """Split and standardise; DataError where all pixels are equal."""
    kept, held_out = _split(len(arrays["y_train"]), validation, generator(0, "split"))
    train_pixels = arrays["x_train"][kept]
    mean, std = _mean_std(train_pixels)
    if std == 0:
        raise DataError(f"{name}: every pixel to train on is {train_pixels.flat[0]}; images must differ")

    def part(pixels: Bytes, labels: NDArray[np.integer]) -> Part:
        images = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.float32))
        images.div_(255).sub_(mean).div_(std)
        return Part(images, torch.from_numpy(labels.astype(np.int64)))

    return Dataset(
        name=name,
        train=part(train_pixels, arrays["y_train"][kept]),
        validation=part(arrays["x_train"][held_out], arrays["y_train"][held_out]),
        test=part(arrays["x_test"], arrays["y_test"]),
        mean=mean,
        std=std,
    )


def read(name: str, data_dir: str | Path | None = None) -> dict[str, Bytes]:
    """The four checked IDX files by name: read-only uint8, images (n, 28, 28) and labels (n,).

    Raises `DataError` as `load` does.
    """
    folder = locate(name, data_dir)
    arrays = {file: _read_file(name, folder, file) for file in SOURCES[name].md5}
    for images, labels in ((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS)):
        if len(arrays[images]) != len(arrays[labels]):
            counts = f"{len(arrays[labels])} labels for {len(arrays[images])} images"
            raise _bad_file(name, folder / labels, f"holds {counts}")
    return arrays


def verify(name: str, data_dir: str | Path | None = None) -> dict[str, str]:
    """Check all files of a data set; returns file name -> MD5 of the decompressed bytes.

    Raises `DataError` as `load` does.
    """
    read(name, data_dir)
    return dict(SOURCES[name].md5)


def locate(name: str, data_dir: str | Path | None = None) -> Path:
    """The folder that `load` reads: the first one looked in that holds any file of the data set.

    An explicit `data_dir` is the only root looked in. Otherwise these are, in order: `$HIGHWAYS_DATA`, the
    folder of Debian's package (Fashion-MNIST only) and `default_dir()`. The embedded excerpt is always found.

    Raises `DataError`, naming the places looked in, if none of them holds the data set.
    """
    candidates = _candidates(name, data_dir)
    for folder in candidates:
        if any(find(folder, file) for file in SOURCES[name].md5):
            return folder
    places = ", ".join(map(str, candidates))
    root = default_dir() if data_dir is None else Path(data_dir)
    by_hand = _by_hand(name, root / SOURCES[name].folder / "raw")
    raise DataError(f"{name} not found in {places}; {by_hand} or {_fetch(name)}")


def download(name: str, data_dir: str | Path | None = None) -> Path:
    """Fetch a data set with torchvision unless it is there already, check it, and return its folder.

    It goes to `<data_dir>/<folder>/raw`, by default under `default_dir()`. The excerpt is only checked.

    Raises `DataError` without torchvision or a network, or if the files are wrong.
    """
    source = _source(name)
    root = default_dir() if data_dir is None else Path(data_dir)
    folder = root / source.folder / "raw"
    if source.torchvision and not all(find(folder, file) for file in source.md5):
        try:
            from torchvision import datasets

            getattr(datasets, source.torchvision)(root, download=True)
        except ImportError as error:
            by_hand = _by_hand(name, folder)
            raise DataError(f"downloading {name} needs torchvision: install it, or {by_hand}") from error
        # Network, disk and torchvision fail in many ways; what the user can do is the same for all of them.
        except Exception as error:
            reason = " ".join(str(error).split())
            raise DataError(f"could not download {name} ({reason}); {_by_hand(name, folder)}") from error
    verify(name, root)
    return locate(name, root)


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise DataError(f"unknown data set {name!r}; allowed are {', '.join(SOURCES)}")
    return SOURCES[name]


def _candidates(name: str, data_dir: str | Path | None) -> list[Path]:
    source = _source(name)

    def under(root: str | Path) -> list[Path]:
        return [Path(root, source.folder, "raw"), Path(root, source.folder), Path(root)]

    if source.torchvision is None:
        return [EXCERPT]
    *first, last = roots(data_dir)
    debian = [DEBIAN_FASHION_MNIST] if name == "fashion_mnist" and data_dir is None else []
    return [*(place for root in first for place in under(root)), *debian, *under(last)]


def _read_file(name: str, folder: Path, file: str) -> Bytes:
    path = find(folder, file)
    if path is None:
        raise DataError(f"{folder / file} is missing; {_by_hand(name, folder)} or {_fetch(name)}")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _bad_file(name, path, f"cannot be read ({error})") from error
    if len(content) > LARGEST:
        raise _bad_file(name, path, f"holds more than {LARGEST:,} bytes")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != SOURCES[name].md5[file]:
        owner = next(
            (f" and so belongs to {other}" for other in SOURCES if found in SOURCES[other].md5.values()), ""
        )
        raise _bad_file(name, path, f"has MD5 {found}{owner}")
    try:
        return _parse_idx(content, [28, 28] if file in (TRAIN_IMAGES, TEST_IMAGES) else [])
    except (ValueError, struct.error) as error:
        raise _bad_file(name, path, f"is no IDX file of the right shape ({error})") from error


def _parse_idx(content: bytes, item: list[int]) -> Bytes:
    dimensions = 1 + len(item)
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    if magic != 0x800 + dimensions or shape[1:] != item:
        raise ValueError(f"magic number {magic:#x}, shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=4 * (1 + dimensions)).reshape(shape)


def _bad_file(name: str, path: Path, problem: str) -> DataError:
    md5 = SOURCES[name].md5[path.name.removesuffix(".gz")]
    action = f"put the right one (raw or .gz) in its place, or move it away and {_fetch(name)}"
    return DataError(f"{path} {problem}; expected MD5 {md5} (decompressed); {action}")


def _by_hand(name: str, folder: Path) -> str:
    files = ", ".join(f"{file} (MD5 {md5})" for file, md5 in SOURCES[name].md5.items())
    return f"put {files}, raw or .gz, in {folder}"


def _fetch(name: str) -> str:
    if SOURCES[name].torchvision is None:
        return "reinstall highways"
    return f"run `highways data {name}`, which downloads to {default_dir()}"


def _split(count: int, validation: int, source: torch.Generator) -> tuple[Indices, Indices]:
    order = torch.randperm(count, generator=source).numpy()
    return order[: count - validation], order[count - validation :]


def _mean_std(pixels: Bytes) -> tuple[float, float]:
    # Sums of integers are exact in any order, so the statistics are the same bits on every machine.
    total = int(pixels.sum(dtype=np.int64))
    squares = int(np.square(pixels, dtype=np.uint16).sum(dtype=np.int64))
    scale = pixels.size * 255
    return total / scale, math.sqrt(pixels.size * squares - total**2) / scale
