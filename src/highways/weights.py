"""Weight files: the tensors of a network and what they are of, in one .npz that numpy reads without pickle.

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
    """What weights are of.

    spec: of the run.
    epoch: after which they were kept, 0 before training; None where the run diverged in its first and has none.
    mean, std: of the pixels that it was trained on, on the scale [0, 1].
    validation_accuracy, test_accuracy: those that the run has measured with them, as fractions.
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
    """What a file holds; WeightsError where it is missing, damaged or no file of weights."""
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
    """What the file of weights at that place is of; None where there is none.

    WeightsError where something else is there, or the weights of another run and they are not to be renewed.
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
