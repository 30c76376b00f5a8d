"""Reads the traces of `highways propagate`, and makes the notes on them for figures and tables."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from highways.analysis.data.notes import units_note
from highways.experiments import relaxations as plan
from highways.experiments.relaxations import ROWS
from highways.experiments.results import Folder, places
from highways.experiments.runs import Config
from highways.propagation.spec import NETWORKS, Propagation
from highways.propagation.trace import OtherSettings, Trace, read
from highways.record import RecordError

K = TypeVar("K")
Array = NDArray[np.float64]
NOT_RUN = "not run"


def traces(wanted: Iterable[Propagation], folder: Folder) -> list[Trace]:
    """The traces that exist. One made with other settings is skipped, with a warning on standard error."""
    found = [_trace(one, folder)[0] for one in wanted]
    return [trace for trace in found if trace is not None]


def of_reference(wanted: Iterable[Propagation], folder: Folder) -> tuple[int, int]:
    """The number of traces that come from the reference, and of all traces that exist."""
    kept = found = 0
    for one in wanted:
        try:
            trace, of_the_reference = _trace(one, folder)
        except RecordError:
            continue  # broken: the table or figure that needs it reports the error
        found += trace is not None
        kept += of_the_reference
    return kept, found


def _trace(one: Propagation, folder: Folder) -> tuple[Trace | None, bool]:
    """The user's own trace, else the reference's, else None; and whether it is the reference's."""
    for path, kept in places(folder, one.path, ".npz"):
        try:
            trace = read(path, one)
        except OtherSettings as error:
            _pass_over(str(error))
        else:
            if trace is not None:
                return trace, kept
    return None, False


@cache
def _pass_over(reason: str) -> None:
    """Print the warning once per trace, although several figures load it."""
    print(f"warning: {reason}", file=sys.stderr)


def of_columns(wanted: Mapping[K, Sequence[Propagation]], folder: Folder) -> dict[K, list[Trace]]:
    """The traces that exist, by column, one per seed."""
    return {key: traces(seeds, folder) for key, seeds in wanted.items()}


def about(config: Config, *more: str) -> list[str]:
    """Notes on the settings that all traces share, then `more`, the notes of one figure or table."""
    block = config["propagation"]
    hep = plan.untrained(config, "paper", "hep", block["depth"], 0, plan.optimizers(config)["gd"].inference).run
    assert hep.highway is not None
    return [
        f"Depth {block['depth']}, untrained, one image of {block['dataset']}, step size {block['step_size']:g}; "
        f"double precision. HEP: α = {hep.highway.alpha:g}, σ_v = {hep.highway.sigma_v:g}.",
        *units_note(config),
        f"{in_words(ROWS)} The network of μPC is its own: {NETWORKS['mupc'].partition(': ')[2]}.",
        *more,
    ]


def in_words(networks: Mapping[str, str]) -> str:
    """The definitions of networks, given their titles by name, as one sentence."""
    return f"{'; '.join(f'{title}: {NETWORKS[network]}' for network, title in networks.items())}."


def arrival(trace: Trace) -> Array:
    """(L,): the error of layer i when the signal reaches it, after L - i steps; NaN where unrecorded."""
    depth = trace.errors.shape[1]
    reached = {int(step): row for row, step in enumerate(trace.steps)}
    steps = [depth - layer for layer in range(1, depth + 1)]
    return np.array([trace.errors[reached[t], depth - 1 - t] if t in reached else np.nan for t in steps])


def law(trace: Trace) -> Array:
    """(L,): the law of the transient (eq:transient), lambda^(L-i) times the backprop error."""
    inference = trace.spec.run.inference
    assert inference is not None
    return inference.step_size ** np.arange(len(trace.backprop))[::-1] * trace.backprop
