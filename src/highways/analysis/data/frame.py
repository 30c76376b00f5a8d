"""Records as tidy frames: one row per run that was asked for, whether its record can be used or not."""

import json
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from highways import record
from highways.experiments import cost
from highways.experiments.results import Folder, places
from highways.experiments.runs import Run
from highways.experiments.status import differences
from highways.specs.run import RunSpec

_IDENTITY = {
    "path": "object",
    "dataset": "object",
    "depth": "int64",
    "method": "object",
    "alpha": "float64",
    "every": "Int64",
    "lr": "float64",
    "settings": "object",
    "seed": "int64",
    "selected": "bool",
}
_OUTCOME = {
    "status": "object",
    "file": "object",
    "source": "object",
    "problem": "object",
    "expected_seconds": "float64",
    "test_accuracy": "float64",
    "validation_accuracy": "float64",
    "best_epoch": "Int64",
    "epochs": "Int64",
    "n_train": "Int64",
    "n_validation": "Int64",
    "n_test": "Int64",
    "wall_seconds": "float64",
    "cpu_seconds": "float64",
    "spec_hash": "object",
    "kernel": "object",
    "device": "object",
    "training_code": "object",
    "validation_drop": "float64",
}
_EPOCH = {
    "epoch": "int64",
    "train_loss": "float64",
    "train_accuracy": "float64",
    "validation_loss": "float64",
    "validation_accuracy": "float64",
}
_LAYER = {"epoch": "int64", "quantity": "object", "layer": "int64", "value": "float64"}
# The first index of each per-layer list of a record: layers count from 1, matrices from 0.
_FIRST = {
    "rms_state": 1,
    "rms_error": 1,
    "weight_gradient_norm": 0,
    "backprop_cosine": 0,
    "first_backprop_cosine": 0,  # these two exist only for rules with a first phase
    "first_cosine": 0,
}


@dataclass(frozen=True)
class _Outcome:
    status: str
    problem: str = ""
    record: Mapping[str, Any] | None = None
    file: Path | None = None  # of the record
    reference: bool = False  # whether the record is of the reference


def load(runs: Mapping[str, Run], folder: Folder) -> pd.DataFrame:
    """One row per run; `status` is ok, diverged, not run, or invalid (then `problem` says why in one line).

    Accuracies are fractions. `expected_seconds` is the cost model's estimate on one core, for every run.
    `file` is the path of a usable record, and `source` its owner, own or reference. `settings` has the values
    of the swept keys as JSON. A selected run has these and `lr` from its record: "" and NaN without one.
    """
    rows = []
    for run in runs.values():
        outcome = _outcome(run, folder)
        measured = {} if outcome.record is None else _measured(outcome.record)
        rows.append(
            {
                **_identity(run, outcome.record),
                "status": outcome.status,
                "file": None if outcome.file is None else str(outcome.file),
                "source": None if outcome.file is None else "reference" if outcome.reference else "own",
                "problem": outcome.problem,
                "expected_seconds": cost.seconds(run.spec),
                **measured,
            }
        )
    return _frame(rows, _IDENTITY | _OUTCOME)


def usable(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Mask of the rows of `load` with a usable record; that of a diverged run is usable."""
    return rows["status"].isin(["ok", "diverged"])


def curves(runs: Mapping[str, Run], folder: Folder) -> pd.DataFrame:
    """One row per run and epoch, for the runs whose records can be used."""
    rows = []
    for run in runs.values():
        document = _outcome(run, folder).record
        if document is not None:
            rows += [{**_identity(run, document), **epoch} for epoch in document["epochs"]]
    return _frame(rows, _IDENTITY | _EPOCH)


def layers(runs: Mapping[str, Run], folder: Folder) -> pd.DataFrame:
    """One row per run, epoch (0 is before training), quantity and layer, for the usable records."""
    rows = []
    for run in runs.values():
        document = _outcome(run, folder).record
        identity = _identity(run, document)
        for moment in [] if document is None else document["diagnostics"]:
            for quantity, first in _FIRST.items():
                rows += [
                    {
                        **identity,
                        "epoch": moment["epoch"],
                        "quantity": quantity,
                        "layer": layer,
                        "value": value,
                    }
                    for layer, value in enumerate(moment.get(quantity, []), first)
                ]
    return _frame(rows, _IDENTITY | _LAYER)


def _frame(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(columns), dtype="object")
    return frame.astype(dict(columns))


def read(runs: Mapping[str, Run], folder: Folder) -> dict[str, Mapping[str, Any]]:
    """The usable records, by path."""
    found = {path: _outcome(run, folder).record for path, run in runs.items()}
    return {path: document for path, document in found.items() if document is not None}


def of_reference(runs: Iterable[Run], folder: Folder) -> tuple[int, int]:
    """The number of usable records that come from the reference, and of all usable records."""
    outcomes = [one for one in (_outcome(run, folder) for run in runs) if one.record is not None]
    return sum(one.reference for one in outcomes), len(outcomes)


def _outcome(run: Run, folder: Folder) -> _Outcome:
    """The outcome of the user's own file; where that is unusable, that of a usable reference file."""
    (own, _), *behind = places(folder, run.path, ".json")
    outcome = _held(run, own)
    for path, _ in behind if outcome.record is None else ():
        kept = _held(run, path)
        if kept.record is not None:
            return replace(kept, reference=True)
    return outcome


def _held(run: Run, path: Path) -> _Outcome:
    if not path.exists():
        return _Outcome("not run")
    try:
        document = record.read(path)
    except record.RecordError as error:
        text = str(error).removeprefix(f"{path}: ")
        return _Outcome("invalid", textwrap.shorten(text, 300, placeholder=" ..."))
    different = differences(document, run)
    if different:
        return _Outcome("invalid", f"made with another setting: {', '.join(different)}")
    return _Outcome(document["status"], record=document, file=path)


def _identity(run: Run, document: Mapping[str, Any] | None) -> dict[str, Any]:
    # A record has the spec of its run; only the values that a selection supplied differ.
    spec = run.spec if document is None or run.selection is None else RunSpec.from_dict(document["spec"])
    known = run.selection is None or document is not None
    return {
        "path": run.path,
        "dataset": spec.dataset,
        "depth": spec.network.depth,
        "method": spec.method,
        "alpha": None if spec.highway is None else spec.highway.alpha,
        "every": None if spec.highway is None else spec.highway.every,
        "lr": spec.learning.lr if known else math.nan,
        "settings": json.dumps({key: spec.setting(key) for key in run.swept}) if known else "",
        "seed": spec.seed,
        "selected": run.selection is not None,
    }


def _measured(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "test_accuracy": document["test_accuracy"],
        "validation_accuracy": document["validation_accuracy"],
        "best_epoch": document["best_epoch"],
        "epochs": len(document["epochs"]),
        **{f"n_{part}": count for part, count in document["images"].items()},
        "wall_seconds": document["timing"]["wall_seconds"],
        "cpu_seconds": document["timing"]["cpu_seconds"],
        "spec_hash": document["spec_hash"],
        "kernel": document["provenance"]["kernel"],
        "device": document["provenance"]["device"],
        "training_code": document["provenance"]["training_code"],
        "validation_drop": _drop([epoch["validation_accuracy"] for epoch in document["epochs"]]),
    }


def _drop(accuracies: Iterable[float | None]) -> float:
    """The largest drop of the accuracy below its best so far; a diverged epoch (None) is skipped."""
    found = [value for value in accuracies if value is not None]
    return max((best - value for best, value in zip(accumulate(found, max), found, strict=True)), default=0.0)
