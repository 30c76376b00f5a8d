"""Weight files: the tensors of a network and their run, in one .npz that numpy reads without pickle.

One array per field of `model.network.Parameters`, and `about`, a JSON text with the fields of `About`.
Imports no torch.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from highways.errors import UserError
from highways.files import short, strict_json, write_atomically
from highways.specs.run import RunSpec

ENDING = ".npz"
VERSION = 1
REMEDY = "`highways train --weights` makes one"
_ABOUT = "about"


class WeightsError(UserError, ValueError):
    """Weights that are missing or cannot be used; the message is one line that names the file and the remedy."""


@dataclass(frozen=True)
class About:
    """The run that weights are from, and when they were kept.

    spec: of the run.
    epoch: the last epoch before they were kept, 0 before training; None where the run diverged in epoch 1 and
        has no weights.
    mean, std: of the pixels of the training part, on the scale [0, 1].
    validation_accuracy, test_accuracy: those that the run measured with these weights, as fractions.
    """

    spec: RunSpec
    epoch: int | None
    mean: float
    std: float
    validation_accuracy: float | None = None
    test_accuracy: float | None = None

    def is_of(self, record: Mapping[str, Any]) -> bool:
        """Whether they are the weights of this very record: the same run, epoch and accuracies."""
        own = (self.epoch, self.validation_accuracy, self.test_accuracy)
        said = (record["best_epoch"], record["validation_accuracy"], record["test_accuracy"])
        return self.spec == RunSpec.from_dict(record["spec"]) and own == said


def write(path: Path, about: About, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the file whole or not at all; OSError where the disk refuses."""
    text = json.dumps({"version": VERSION, **asdict(about), "spec": about.spec.to_dict()})

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **{_ABOUT: np.array(text), **arrays})  # type: ignore[arg-type]

    write_atomically(path, save)


def read(path: str | Path) -> tuple[About, dict[str, NDArray[Any]]]:
    """The `About` and the arrays of a file; WeightsError where it is missing, damaged or holds no weights."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        document = strict_json(str(arrays.pop(_ABOUT)))
        version = document.pop("version")
        if version != VERSION:
            raise ValueError(f"version {version!r} for {VERSION}")
        about = About(**{**document, "spec": RunSpec.from_dict(document["spec"])})
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file; {REMEDY}") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{path}: no file of weights ({short(str(error))}); {REMEDY}") from None
    return about, arrays


def there(path: Path, spec: RunSpec, renew: bool = False) -> About | None:
    """The `About` of the weights at `path`; None where there is no file.

    WeightsError where the file holds no weights, or, unless `renew`, the weights of another run.
    """
    if not path.exists():
        return None
    remedy = "delete it, or give another name"
    try:
        about, _ = read(path)
    except WeightsError:
        raise WeightsError(f"--weights: {path} is there, and is no file of weights; give another name") from None
    if about.spec != spec and not renew:
        raise WeightsError(f"--weights: {path} holds the weights of another run; {remedy}")
    return about
