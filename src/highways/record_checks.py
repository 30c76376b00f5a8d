"""Checks that the parts of a record agree; its schema checks each value alone. Imports no torch."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from highways.specs.run import RunSpec
from highways.training.divergence import has_diverged

Document = Mapping[str, Any]
_OF_EPOCH = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
_PART = {"train_accuracy": "train", "validation_accuracy": "validation"}


def contradiction(record: Document, spec: RunSpec, whole: bool) -> str | None:
    """The first contradiction in a record that its schema allows, as "key: problem"; None where there is none."""
    return next(
        itertools.chain(
            _images(record, spec),
            epochs(record["epochs"], record["diverged_epoch"], spec),
            _length(record, spec) if whole else (),
            best(record["epochs"], record["best_epoch"], record["validation_accuracy"]),
            _test(record, spec),
            diagnostics(record["diagnostics"], len(record["epochs"]), spec.network.depth),
        ),
        None,
    )


def _images(record: Document, spec: RunSpec) -> Iterator[str]:
    for part, found in record["images"].items():
        if found != getattr(spec.images, part):
            yield f"images.{part}: {found} for the {getattr(spec.images, part)} of {spec.dataset}"


def epochs(rows: Sequence[Document], diverged: int | None, spec: RunSpec) -> Iterator[str]:
    """Contradictions in the rows of the epochs 1, 2, ... of a run, of which the last alone may have diverged."""
    for number, row in enumerate(rows, 1):
        where = f"epochs[{number - 1}]"
        if row["epoch"] != number:
            yield f"{where}.epoch: {row['epoch']} for {number}"
        if number == diverged:
            yield from (f"{where}.{key}: a number, in the epoch that diverged" for key in _numbers(row))
            continue
        for key in _OF_EPOCH:
            if row[key] is None:
                yield f"{where}.{key}: null, in an epoch that did not diverge"
        if has_diverged(spec.images.classes, row["train_loss"], row["validation_loss"]):
            yield f"{where}: a loss as large as that of a diverged run"
        if min(row["train_loss"], row["validation_loss"]) < 0:
            yield f"{where}: a loss below 0"
        for key, part in _PART.items():
            images = getattr(spec.images, part)
            if not _counts(row[key], images):
                yield f"{where}.{key}: {row[key]} is no fraction of {images} images"
    if diverged is not None and diverged != len(rows):
        yield f"diverged_epoch: {diverged}, and {len(rows)} epochs"


def _numbers(row: Document) -> Iterator[str]:
    return (key for key in _OF_EPOCH if row[key] is not None)


def _counts(accuracy: float, images: int) -> bool:
    """Whether an accuracy is a whole number of images divided by the number of images."""
    return 0 <= accuracy <= 1 and abs(accuracy * images - round(accuracy * images)) < 1e-6


def _length(record: Document, spec: RunSpec) -> Iterator[str]:
    done = len(record["epochs"])
    if done > spec.epochs or (done < spec.epochs and record["status"] == "ok"):
        yield f"epochs: {done} for the {spec.epochs} of the spec"


def best(rows: Sequence[Document], epoch: int | None, accuracy: float | None) -> Iterator[str]:
    """Contradictions in the best epoch: the earliest of those that validate best, and its accuracy."""
    validated = [row["validation_accuracy"] for row in rows if row["validation_accuracy"] is not None]
    highest = max(validated, default=None)
    expected = None if highest is None else validated.index(highest) + 1
    if epoch != expected:
        yield f"best_epoch: {epoch}; by the accuracies on validation it is {expected}"
    if accuracy != highest:
        yield f"validation_accuracy: {accuracy}; that of the best epoch is {highest}"


def _test(record: Document, spec: RunSpec) -> Iterator[str]:
    accuracy, images = record["test_accuracy"], spec.images.test
    if (accuracy is None) != (record["best_epoch"] is None):
        yield f"test_accuracy: {accuracy}, and the best epoch is {record['best_epoch']}"
    elif accuracy is not None and not _counts(accuracy, images):
        yield f"test_accuracy: {accuracy} is no fraction of {images} images"


def diagnostics(moments: Sequence[Document], done: int, depth: int) -> Iterator[str]:
    """Contradictions in what a run reports of its layers: before training and after each epoch, layer by layer."""
    if [moment["epoch"] for moment in moments] != list(range(done + 1)):
        yield f"diagnostics: not one for each of the epochs 0 to {done}"
    for number, moment in enumerate(moments):
        for key, values in moment.items():
            if key == "epoch":
                continue
            where, layers = f"diagnostics[{number}].{key}", depth - (key == "rms_state")
            if len(values) != layers:
                yield f"{where}: {len(values)} numbers for {layers} layers"
            low, high = (-1.00001, 1.00001) if key.endswith("cosine") else (0.0, math.inf)  # five digits are kept
            if not all(value is None or low <= value <= high for value in values):
                yield f"{where}: a number out of range"
