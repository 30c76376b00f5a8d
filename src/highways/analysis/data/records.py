"""All records that a configuration asks for in one frame: what each is used for, its settings, what it found."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from highways import record
from highways.analysis.data.cells import Cell, cells_at, density_cells, depth_cells, strength_cells
from highways.analysis.data.frame import load, usable
from highways.analysis.figures.rates import rate_cells
from highways.analysis.tables.baselines import remedy_cells
from highways.analysis.tables.conventions import reading_cells
from highways.experiments.ablations import arms
from highways.experiments.readings import curve, readings
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.specs.run import RunSpec

_USE = ["experiment", "row", "role"]
_RUN = ["dataset", "depth", "method", "seed"]
_FOUND = ["test_accuracy", "validation_accuracy", "best_epoch", "status", "kernel", "source", "file"]


def records(config: Config, folder: Folder) -> pd.DataFrame:
    """One row for each use of a usable record; `highways.records` says what the columns are."""
    used = [
        {"experiment": experiment, "row": row, "role": role, **one}
        for experiment, row, cell, beyond in _cells(config, folder)
        for role, rows in (("reported", cell.runs), ("candidate", cell.sweep), ("beyond", beyond))
        if rows is not None
        for one in rows[usable(rows)].to_dict("records")
    ]
    uses = pd.DataFrame(used, columns=[*_USE, *_RUN, *_FOUND]).astype({"best_epoch": "Int64"})
    # What is reported may have been a candidate too, and stands first.
    uses = uses.drop_duplicates(["experiment", "row", "file"], ignore_index=True)
    settings = pd.DataFrame([_settings(file) for file in uses["file"]]).convert_dtypes()
    return uses.join(settings.drop(columns=["network.depth", *_RUN], errors="ignore"))


def _cells(config: Config, folder: Folder) -> Iterator[tuple[str, str, Cell, pd.DataFrame | None]]:
    """Every cell with the names of its experiment and row, and what lies beyond the grid of its candidates."""
    for (_, _, method), cell in depth_cells(config, folder).items():
        yield "depth", method, cell, None
    for cell in strength_cells(config, folder).values():
        yield "strength", "hep", cell, None
    for cell in density_cells(config, folder).values():
        yield "density", "hep", cell, None
    for experiment, tried in (("conventions", readings(config)), ("readings", curve(config))):
        for reading in tried:
            for cell in reading_cells(reading, folder).values():
                yield experiment, reading.stage["name"], cell, None
    for rate, cell in rate_cells(config, folder).items():
        yield "rates", rate.cell[2], cell, None
    for arm in arms(config):
        yield "ablations", arm.name, cells_at(arm.config, folder, [arm.cell])[arm.cell], None
    for remedy, cell in remedy_cells(config, folder).items():
        yield "baselines", remedy.name, cell, load({run.path: run for run in remedy.beyond()}, folder)


def _settings(file: str) -> dict[str, Any]:
    """The keys of the specification of a record, dotted, with their values, as far as it has any."""
    return dict(_leaves(RunSpec.from_dict(record.read(Path(file))["spec"]).complete()))


def _leaves(document: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{where}{key}.")
        elif value is not None:
            yield f"{where}{key}", value
