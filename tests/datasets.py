"""Data sets of a user's own, made here: KMNIST-like files from Fashion-MNIST's, and colour images."""

import gzip
from pathlib import Path

import numpy as np
import yaml

from highways import data
from highways.data_places import IDX

ORDER = np.array([3, 7, 1, 0, 9, 8, 2, 5, 4, 6], dtype=np.uint8)  # moves every label


def idx(array: np.ndarray) -> bytes:
    """An array as the bytes of an IDX file, written from the description of the format."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def permuted(folder: Path, *, zipped: bool = True) -> Path:
    """Write the embedded excerpt with permuted labels into files with MNIST's names; returns the folder."""
    folder.mkdir(parents=True)
    for key, file in IDX.items():
        array = data.read("fashion_mnist_excerpt")[file]
        content = idx(ORDER[array] if key.startswith("y") else array)
        (folder / f"{file}{'.gz' * zipped}").write_bytes(gzip.compress(content) if zipped else content)
    return folder


def colours(train: int = 600, test: int = 200, classes: int = 7) -> dict[str, np.ndarray]:
    """Colour images of 32 x 32 that a linear network tells apart: a bright band at the height of the class."""
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        labels = np.arange(count) % classes
        images = random.integers(0, 80, (count, 32, 32, 3), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 * label : 4 * label + 4] += 120
        arrays |= {f"x_{part}": images, f"y_{part}": labels}
    return arrays


def configuration(folder: Path, *entries: dict) -> str:
    """Write a configuration file with these data sets; returns its path."""
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"data": list(entries)}), encoding="utf-8")
    return str(path)


def asking(config: dict, *datasets: str) -> dict:
    """The configuration with one experiment: vanilla PC at depth 4 with seed 0 on these data sets."""
    cells = {"dataset": list(datasets), "depth": 4, "seeds": 0}
    return {**config, "propagation": None, "experiments": [{"name": "depth", "cells": cells, "methods": "pc"}]}
