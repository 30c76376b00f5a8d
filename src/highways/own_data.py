"""Data sets of the user's own: four arrays from a folder of IDX files or from an .npz file, read and checked.

IDX is MNIST's file format: two zero bytes, the type (8: unsigned bytes), the number of dimensions, then each
size as four bytes (big-endian), then the values. Imports no torch.
"""

import gzip
import hashlib
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from highways.data_places import IDX, find
from highways.errors import DataError
from highways.specs.run import OwnImages

SHARE = 6  # one training image in six is held out for validation, as are 10,000 of MNIST's 60,000

Arrays = dict[str, NDArray[Any]]


def read(place: Path) -> Arrays:
    """The arrays of a data set by the keys of `IDX`, checked.

    Images are uint8, (n, ...), and labels int64, (n,), from 0 to the number of classes - 1. The training part has
    every class. Raises DataError, in one line that names the file and the key.
    """
    return checked(_of_folder(place) if place.is_dir() else _of_npz(place), place)


def checked(arrays: Arrays, place: Path) -> Arrays:
    """Check arrays and return them as `read` does; DataError names `place`, where they are from."""
    found = {key: _part(array, key, _where(place, key)) for key, array in arrays.items()}
    for part in ("train", "test"):
        images, labels = found[f"x_{part}"], found[f"y_{part}"]
        if len(images) != len(labels):
            raise DataError(f"{_where(place, f'y_{part}')}: {len(labels)} labels for {len(images)} images")
    sizes = {key: found[key].shape[1:] for key in ("x_train", "x_test")}
    if sizes["x_train"] != sizes["x_test"]:
        shapes = f"images of {_size(sizes['x_test'])}, and those to train on are {_size(sizes['x_train'])}"
        raise DataError(f"{_where(place, 'x_test')}: {shapes}; give both one size")
    if len(found["y_train"]) < SHARE:
        needs = f"one in {SHARE} is held out for validation, so it takes {SHARE} or more"
        raise DataError(f"{_where(place, 'x_train')}: {len(found['y_train'])} images; {needs}")
    _check_classes(found, place)
    return found


def describe(arrays: Arrays) -> OwnImages:
    """The `OwnImages` of checked arrays; the digest depends on the arrays, not on their file format."""
    digest = hashlib.sha256()
    for key in IDX:
        array = arrays[key]
        digest.update(f"{key} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    held_out = validation(len(arrays["y_train"]))
    return OwnImages(
        train=len(arrays["y_train"]) - held_out,
        validation=held_out,
        test=len(arrays["y_test"]),
        inputs=math.prod(arrays["x_train"].shape[1:]),
        classes=int(arrays["y_train"].max()) + 1,
        digest=digest.hexdigest()[:32],
    )


def validation(images: int) -> int:
    """How many of the training images are held out: one in six, rounded down."""
    return images // SHARE


def _where(place: Path, key: str) -> str:
    """Names an array in messages: the path of its IDX file, or the .npz file and the key."""
    return str(find(place, IDX[key]) or place / IDX[key]) if place.is_dir() else f"{place}: {key}"


def _of_folder(place: Path) -> Arrays:
    return {key: _read_idx(find(place, file) or place / file) for key, file in IDX.items()}


def _read_idx(path: Path) -> NDArray[np.uint8]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as opened:
            zeros, kind, dimensions = struct.unpack(">HBB", opened.read(4))
            if (zeros, kind) != (0, 8) or not dimensions:
                raise DataError(f"{path}: no IDX file of unsigned bytes (begins with {zeros:04x} {kind:02x})")
            shape = struct.unpack(f">{dimensions}I", opened.read(4 * dimensions))
            content = opened.read(math.prod(shape) + 1)
    except FileNotFoundError:
        names = ", ".join(IDX.values())
        raise DataError(f"{path}: missing; a folder of IDX files has {names}, raw or .gz") from None
    except (OSError, EOFError, OverflowError, zlib.error, struct.error) as error:
        raise DataError(f"{path}: cannot be read as an IDX file ({error})") from None
    if len(content) != math.prod(shape):
        held = "more" if len(content) > math.prod(shape) else f"{len(content):,}"
        raise DataError(f"{path}: {held} bytes for {_size(shape)}; copy the file again")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _of_npz(place: Path) -> Arrays:
    try:
        with place.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            held = file.files
            missing = [key for key in IDX if key not in held]
            if not missing:
                return {key: file[key] for key in IDX}
    except FileNotFoundError:
        raise DataError(f"{place}: missing; make it with numpy.savez, with the keys {', '.join(IDX)}") from None
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{place}: cannot be read as an .npz file ({error}); make it with numpy.savez") from None
    raise DataError(
        f"{place}: no key {missing[0]}; it takes {', '.join(IDX)}, and has {', '.join(held) or 'none'}"
    )


def _part(array: NDArray[Any], key: str, where: str) -> NDArray[Any]:
    """One array, checked: images unchanged, labels as int64."""
    shape = _size(array.shape)
    if not array.size:
        raise DataError(f"{where}: empty ({shape}); it takes one image or more")
    if key.startswith("x"):
        if array.dtype != np.uint8:
            whole = np.issubdtype(array.dtype, np.integer) and array.min() >= 0 and array.max() <= 255
            remedy = "brightness from 0 to 1 becomes that with (255 * x).round().astype('uint8')"
            remedy = "x.astype('uint8')" if whole else remedy
            raise DataError(f"{where}: {array.dtype}; it takes uint8, from 0 to 255: {remedy}")
        if array.ndim < 2:
            raise DataError(f"{where}: shape {shape}; it takes images, (n, height, width) or with channels")
        return array
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{where}: {array.dtype}; it takes labels as whole numbers: y.astype('int64')")
    if array.ndim != 1:
        raise DataError(f"{where}: shape {shape}; it takes one label per image, (n,): y.reshape(-1)")
    return array.astype(np.int64)


def _check_classes(arrays: Arrays, place: Path) -> None:
    remedy = "number the classes 0, 1, 2, ... without a gap"
    present = np.unique(arrays["y_train"])
    if present[0] < 0:
        raise DataError(f"{_where(place, 'y_train')}: a label of {present[0]}; {remedy}")
    if present[-1] != len(present) - 1:
        absent = int(np.flatnonzero(present != np.arange(len(present)))[0])
        raise DataError(f"{_where(place, 'y_train')}: labels up to {present[-1]}, and none is {absent}; {remedy}")
    if len(present) < 2:
        raise DataError(f"{_where(place, 'y_train')}: every label is 0; it takes two classes or more")
    low, high = int(arrays["y_test"].min()), int(arrays["y_test"].max())
    if low < 0 or high > present[-1]:
        wrong = f"a label of {low if low < 0 else high}, and those to train on are 0 to {present[-1]}"
        raise DataError(f"{_where(place, 'y_test')}: {wrong}; {remedy}")


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
