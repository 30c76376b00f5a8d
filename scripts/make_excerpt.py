"""Make the embedded Fashion-MNIST excerpt: a fixed, class-balanced choice of the full set's images."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
from pathlib import Path

import numpy as np
import torch

from highways import data
from highways.model.randomness import generator

TRAIN_COUNT, TEST_COUNT, CLASSES = 4_000, 1_000, 10


def choose(labels: data.Bytes, count: int, source: torch.Generator) -> np.ndarray:
    """Ascending indices of `count` items, equally many of each class."""
    chosen = []
    for label in range(CLASSES):
        members = np.flatnonzero(labels == label)
        chosen.append(members[torch.randperm(len(members), generator=source)[: count // CLASSES].numpy()])
    return np.sort(np.concatenate(chosen))


def idx(items: data.Bytes) -> bytes:
    """The items as an IDX file of unsigned bytes."""
    header = np.array([0x800 + items.ndim, *items.shape], dtype=">u4")
    return header.tobytes() + items.tobytes()


def compress(content: bytes) -> bytes:
    """Gzip without a name or time, so that equal content gives equal files."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def main() -> int:
    """Write the four files and print the MD5s that belong in `highways.data.SOURCES`."""
    parser = argparse.ArgumentParser(
        description=f"{__doc__} Writes four gzipped IDX files ({TRAIN_COUNT} training and {TEST_COUNT} test "
        "images) and prints the MD5s of their decompressed bytes for the table in highways/data.py."
    )
    parser.add_argument(
        "--source",
        type=Path,
        default=data.DEBIAN_FASHION_MNIST,
        help="folder with the full Fashion-MNIST, checked first (default: %(default)s, "
        "from `apt-get install dataset-fashion-mnist`)",
    )
    parser.add_argument(
        "--out", type=Path, default=data.EXCERPT, help="folder to write to (default: the package's own)"
    )
    arguments = parser.parse_args()
    try:
        full = data.read("fashion_mnist", arguments.source)
    except data.DataError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")

    source = generator(0, "excerpt")
    train = choose(full[data.TRAIN_LABELS], TRAIN_COUNT, source)
    test = choose(full[data.TEST_LABELS], TEST_COUNT, source)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for file, indices in (
        (data.TRAIN_IMAGES, train),
        (data.TRAIN_LABELS, train),
        (data.TEST_IMAGES, test),
        (data.TEST_LABELS, test),
    ):
        content = idx(full[file][indices])
        (arguments.out / f"{file}.gz").write_bytes(compress(content))
        print(file, hashlib.md5(content, usedforsecurity=False).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
