"""Writes the images of a torchvision class to an .npz file, so that training needs no torchvision."""

from pathlib import Path
from typing import Any

import numpy as np

from highways import own_data
from highways.errors import DataError
from highways.files import write_atomically


def keep(name: str, place: Path) -> None:
    """Construct a class of torchvision.datasets with root, train and download, and write its images and labels.

    The root is the folder of the file. Raises DataError where that fails, and where the class does not return
    images of one size with labels.
    """
    try:
        from torchvision import datasets
    except ImportError:
        raise DataError(f"torchvision: {name}: install torchvision, or give the images as npz or folder") from None
    kind = getattr(datasets, name, None)
    if not (isinstance(kind, type) and issubclass(kind, datasets.VisionDataset)):
        raise DataError(
            f"torchvision: {name}: no data set of torchvision.datasets; see its documentation for names"
        )
    arrays: dict[str, Any] = {}
    # Network, disk and torchvision fail in many ways; what the user can do is the same for all of them.
    try:
        for part in ("train", "test"):
            images, labels = zip(*kind(place.parent, train=part == "train", download=True), strict=True)
            arrays[f"x_{part}"] = np.stack([np.asarray(image) for image in images])
            arrays[f"y_{part}"] = np.asarray(labels)
    except Exception as error:
        reason = " ".join(str(error).split())
        remedy = f"make {place} yourself, with numpy.savez and the keys x_train, y_train, x_test, y_test"
        raise DataError(f"torchvision: {name}: could not be downloaded and read ({reason}); {remedy}") from error

    own_data.checked(arrays, place)

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)

    write_atomically(place, save)
