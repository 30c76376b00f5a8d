"""MNIST and Fashion-MNIST: found on disk, checked against known MD5s, split and standardised."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from highways.errors import UserError
from highways.model.randomness import generator

ENVIRONMENT = "HIGHWAYS_DATA"
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
EXCERPT = Path(__file__).with_name("excerpt")

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
LARGEST = 16 + 60_000 * 28 * 28  # bytes of a file, the training images; a small .gz may hold more than memory

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]


class DataError(UserError, RuntimeError):
    """A data set is unknown, missing, wrong or damaged; the message is one line and says what to do."""


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
    """Images, float32 (n, 784), and their labels 0-9, int64 (n,)."""

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


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Read, check, split and standardise a data set; never downloads.

    The validation part comes out of the training file by one permutation that no run's seed changes. All
    parts are standardised with the training part's scalar mean and standard deviation.

    Raises `DataError` if the data set is unknown or its files are missing, wrong or damaged.
    """
    arrays = read(name, data_dir)
    kept, held_out = _split(len(arrays[TRAIN_LABELS]), SOURCES[name].validation, generator(0, "split"))
    train_pixels = arrays[TRAIN_IMAGES][kept]
    mean, std = _mean_std(train_pixels)

    def part(pixels: Bytes, labels: Bytes) -> Part:
        images = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.float32))
        images.div_(255).sub_(mean).div_(std)
        return Part(images, torch.from_numpy(labels.astype(np.int64)))

    return Dataset(
        name=name,
        train=part(train_pixels, arrays[TRAIN_LABELS][kept]),
        validation=part(arrays[TRAIN_IMAGES][held_out], arrays[TRAIN_LABELS][held_out]),
        test=part(arrays[TEST_IMAGES], arrays[TEST_LABELS]),
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


def default_dir() -> Path:
    """The root that `download` fills unless told otherwise: `data/` in the current directory."""
    return Path.cwd() / "data"


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
    if data_dir is not None:
        return under(data_dir)
    environment = os.environ.get(ENVIRONMENT)
    return [
        *(under(environment) if environment else []),
        *([DEBIAN_FASHION_MNIST] if name == "fashion_mnist" else []),
        *under(default_dir()),
    ]


def find(folder: Path, file: str) -> Path | None:
    """The file, plain or compressed."""
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


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
