"""The paper's tables with our numbers beside the published ones."""

from typing import Any

import pandas as pd

from highways import paper
from highways.analysis.data.cells import Cell, density_cells, depth_cells
from highways.analysis.data.notes import (
    DATASET_TITLES,
    cell_label,
    cell_notes,
    conventions_note,
    protocol_notes,
    spread_note,
    units_note,
)
from highways.analysis.data.rendering import Table
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.methods import METHODS

_NO_VALUE = "—"


def accuracy_versus_depth(config: Config, folder: Folder) -> Table:
    """Test accuracy by data set, depth and method."""
    cells = depth_cells(config, folder)
    datasets, asked = dict.fromkeys(key[0] for key in cells), {key[2] for key in cells}
    published = any(paper.depths(dataset) for dataset in datasets)
    methods = [m for m in METHODS if m in asked or (published and m in paper.methods())]
    rows, data = [], []
    for dataset in datasets:
        for depth in sorted({*(key[1] for key in cells if key[0] == dataset), *paper.depths(dataset)}):
            row = {"Data set": DATASET_TITLES[dataset], "L": depth}
            for method in methods:
                cell = cells.get((dataset, depth, method), _not_asked_for(cells))
                printed = paper.accuracy(dataset, depth, method)
                title = METHODS[method].title
                row |= {title: cell.text, f"{title} (paper)": _published(printed)}
                key = {"dataset": dataset, "depth": depth, "method": method}
                data.append({**key, **_long(cell, printed)})
            rows.append(row)
    return Table(
        "depth",
        "Test accuracy (%) versus depth L",
        pd.DataFrame(rows).set_index(["Data set", "L"]),
        pd.DataFrame(data),
        _notes(config, {cell_label(key): cell for key, cell in cells.items()}, "depth", "accuracy"),
    )


def density(config: Config, folder: Folder) -> Table:
    """Test accuracy when only every k-th hidden layer has a highway."""
    dataset, depth = plan(config).of("density")[0].place
    cells = density_cells(config, folder)
    ours, theirs, data = {}, {}, []
    for k in sorted({*cells, *paper.spacings(dataset, depth)}):
        cell = cells.get(k, _not_asked_for(cells))
        printed = paper.density(dataset, depth, k)
        ours[f"k={k}"], theirs[f"k={k}"] = cell.text, _published(printed)
        data.append({"dataset": dataset, "depth": depth, "every": k, **_long(cell, printed)})
    return Table(
        "density",
        f"Test accuracy (%) when every k-th hidden layer has a highway: {DATASET_TITLES[dataset]}, L={depth}",
        pd.DataFrame([ours, theirs], index=pd.Index(["Ours", "Paper"], name="Accuracy")),
        pd.DataFrame(data),
        _notes(config, {f"k={k}": cell for k, cell in cells.items()}, "density", "density"),
    )


def _not_asked_for(cells: dict[Any, Cell]) -> Cell:
    """An empty cell, for a cell of the paper that the configuration does not ask for."""
    known = next(iter(cells.values()))
    return Cell(known.seeds, known.runs.iloc[:0])


def _published(printed: paper.Published | None) -> str:
    return _NO_VALUE if printed is None else printed.text


def _long(cell: Cell, printed: paper.Published | None) -> dict[str, Any]:
    return {
        **cell.numbers,
        "paper_mean": None if printed is None else printed.mean,
        "paper_std": None if printed is None else printed.std,
        "status": cell.status,
    }


def _notes(config: Config, cells: dict[str, Cell], experiment: str, block: str) -> tuple[str, ...]:
    return (
        spread_note(plan(config).of(experiment)),
        f"Paper: as printed ({paper.place(block)}), mean ± std over three seeds; it does not define the std.",
        *protocol_notes(plan(config).of(experiment), cells),
        *units_note(config),
        conventions_note(config),
        *cell_notes(cells),
    )
