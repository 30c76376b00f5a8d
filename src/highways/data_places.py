"""Where data sets lie. Imports neither torch nor numpy."""

import os
from pathlib import Path

from highways.errors import DataError

ENVIRONMENT = "HIGHWAYS_DATA"

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
# The keys of an .npz file, and the IDX file of each.
IDX = {"x_train": TRAIN_IMAGES, "y_train": TRAIN_LABELS, "x_test": TEST_IMAGES, "y_test": TEST_LABELS}


def default_dir() -> Path:
    """The root that downloads fill unless told otherwise: `data/` in the current directory."""
    return Path.cwd() / "data"


def roots(data_dir: str | Path | None) -> list[Path]:
    """The roots to look under: an explicit one alone, else `$HIGHWAYS_DATA`, if set, and `default_dir()`."""
    if data_dir is not None:
        return [Path(data_dir)]
    environment = os.environ.get(ENVIRONMENT)
    return [*([Path(environment)] if environment else []), default_dir()]


def find(folder: Path, file: str) -> Path | None:
    """The path of a file in a folder, plain or compressed (.gz); None where it is missing."""
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def own_files(place: Path) -> list[Path]:
    """The files of an own data set, at an .npz file or in a folder of IDX files; empty where there are none."""
    if place.is_file():
        return [place]
    return [path for path in (find(place, file) for file in IDX.values()) if path is not None]


def locate_own(name: str, data_dir: str | Path | None) -> Path:
    """The folder of IDX files or the .npz file of an own data set.

    It is searched by name under each root, then at an explicit root itself. DataError names these places.
    """
    places = [place for root in roots(data_dir) for place in (root / name, root / f"{name}.npz")]
    places += [] if data_dir is None else [Path(data_dir)]
    found = next((place for place in places if own_files(place)), None)
    if found is None:
        remedy = "say where it is with --data-dir, or with --config which configuration has it under data"
        raise DataError(f"{name}: not found at {', '.join(map(str, places))}; {remedy}")
    return found
