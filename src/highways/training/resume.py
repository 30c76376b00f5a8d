"""Whether the content of a checkpoint can be a state of its run: an undamaged file may still not fit it."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from highways import record_checks
from highways.specs.run import RunSpec

State = Mapping[str, Any]
# The entries whose type or length may differ from those of the state before the first update.
_VARIABLE = {"epochs", "diagnostics", "best_epoch", "diverged_epoch"}


def unfit(state: State, fresh: State, spec: RunSpec) -> str | None:
    """Names the first part of a state that a run of this spec cannot have; None where all parts fit.

    `fresh` is the state before the first update.
    """
    try:
        return next(itertools.chain(_misbuilt(state, fresh), _impossible(state, spec)), None)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return f"values of the wrong type ({type(error).__name__})"


def _misbuilt(state: State, fresh: State) -> Iterator[str]:
    if state.keys() != fresh.keys():
        yield "its keys"
    for key in fresh.keys() - _VARIABLE:
        yield from _unlike(state[key], fresh[key], key)


def _unlike(value: Any, fresh: Any, where: str) -> Iterator[str]:
    """Yields where `value` differs from `fresh` in type, keys, length, or a tensor's shape and type."""
    if type(value) is not type(fresh):
        yield where
    elif isinstance(fresh, Tensor):
        if (value.shape, value.dtype) != (fresh.shape, fresh.dtype):
            yield where
    elif isinstance(fresh, dict):
        if value.keys() != fresh.keys():
            yield where
        for key in fresh:
            yield from _unlike(value[key], fresh[key], f"{where}.{key}")
    elif isinstance(fresh, list):
        if len(value) != len(fresh):
            yield where
        for one, other in zip(value, fresh, strict=True):
            yield from _unlike(one, other, where)


def _impossible(state: State, spec: RunSpec) -> Iterator[str]:
    """Yields the parts of a state that contradict each other, the spec or the data set."""
    images, done = spec.images.train, state["epoch"] - 1
    batches = math.ceil(images / spec.batch_size)
    seen = min(state["batch"] * spec.batch_size, images)
    if not (done >= 0 and 0 <= state["batch"] <= batches):
        yield "the epoch or the batch"
    if not (0 <= state["correct"] <= seen and 0 <= state["loss_sum"] < math.inf):
        yield "the sums over the epoch"
    learnt, updates = done * batches + state["batch"], state["optimizer"]["updates"]
    per_batch = updates // learnt if learnt else 1  # more than 1 only for an `Interleaved` rule
    if state["diverged_epoch"] is None and not updates == per_batch * learnt >= learnt:
        yield "the number of updates"
    if len(state["epochs"]) != done:
        yield "the number of epochs"
    yield from record_checks.epochs(state["epochs"], state["diverged_epoch"], spec)
    accuracy = None if state["best_epoch"] is None else state["best_accuracy"]
    yield from record_checks.best(state["epochs"], state["best_epoch"], accuracy)
    if done or state["batch"] or state["diagnostics"]:
        yield from record_checks.diagnostics(state["diagnostics"], done, spec.network.depth)
    if not (
        0 <= state["wall_seconds"] < math.inf and 0 <= state["cpu_seconds"] < math.inf and state["attempts"] > 0
    ):
        yield "the times"
