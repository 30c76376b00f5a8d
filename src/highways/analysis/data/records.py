"""All records that a configuration asks for in one frame: the use of each, its settings and its results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from highways import record
from highways.analysis.data.cells import Cell, cell
from highways.analysis.data.frame import load, usable
from highways.analysis.data.lines import flat, lines
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.specs.run import RunSpec

_USE = ["experiment", "row", "label", "role"]
_RUN = ["dataset", "depth", "method", "seed"]
_FOUND = ["test_accuracy", "validation_accuracy", "best_epoch", "status", "kernel", "source", "file"]


def records(config: Config, folder: Folder) -> pd.DataFrame:
    """One row for each use of a usable record; `highways.records` says what the columns are."""
    used = [
        {**dict(zip(_USE, (*use, role), strict=True)), **one}
        for use, own, beyond in _cells(config, folder)
        for role, rows in (("reported", own.runs), ("candidate", own.sweep), ("beyond", beyond))
        if rows is not None
        for one in rows[usable(rows)].to_dict("records")
    ]
    uses = pd.DataFrame(used, columns=[*_USE, *_RUN, *_FOUND]).astype({"best_epoch": "Int64"})
    # A reported run may also be a candidate: its first row, as reported, is kept.
    uses = uses.drop_duplicates(["experiment", "row", "label", "file"], ignore_index=True)
    settings = pd.DataFrame([_settings(file) for file in uses["file"]]).convert_dtypes()
    return uses.join(settings.drop(columns=["network.depth", *_RUN], errors="ignore"))


def _cells(config: Config, folder: Folder) -> Iterator[tuple[tuple[str, str, str], Cell, pd.DataFrame]]:
    """Every cell with its experiment, row and label, and with the candidates beyond its grid."""
    asked = plan(config)
    for experiment in dict.fromkeys(variant.experiment for variant in asked.variants):
        for label, own in lines(asked.of(experiment)).items():
            for variant in own:
                beyond = load({run.path: run for run in variant.beyond}, folder)
                yield (variant.experiment, variant.name, label), cell(variant, folder), beyond


def _settings(file: str) -> dict[str, Any]:
    """The specification of a record by dotted key, without the keys whose value is None."""
    settings = flat(RunSpec.from_dict(record.read(Path(file))["spec"]))
    return {key: value for key, value in settings.items() if value is not None}
