"""Marks and notes on weak tuning: the best candidate at chance or at a grid's edge, and results beyond it."""

import json
from collections.abc import Iterator, Mapping

from highways.analysis.data.cells import Cell
from highways.analysis.data.frame import load
from highways.analysis.data.notes import plain
from highways.experiments.own_data import classes_of
from highways.experiments.results import Folder
from highways.experiments.runs import short
from highways.experiments.variants import Variant

EDGE, NOMINAL = "‡", "§"
_ABOVE = 2.0  # points above guessing, below which a validation accuracy is chance

Named = Mapping[str, tuple[Variant, Cell]]


def tuned(variant: Variant) -> bool:
    """Whether the settings of a variant are chosen on short runs, as the budget of the benchmark asks."""
    return variant.choice is not None and not variant.shares_seeds


def mark(variant: Variant, cell: Cell) -> str:
    """§ if no candidate was above chance, ‡ if the best is at an edge of its grid; empty if not tuned."""
    if not tuned(variant) or cell.selection is None or not cell.n:
        return ""
    if 100 * cell.selection.best < _chance(variant):
        return f" {NOMINAL}"
    return f" {EDGE}" if cell.selection.edges else ""


def _chance(variant: Variant) -> float:
    return 100 / classes_of(variant.config, variant.dataset) + _ABOVE


def choices(cells: Named, folder: Folder) -> list[str]:
    """Notes on the marks present, and on the results of candidates one step beyond the grid."""
    marked: dict[str, list[str]] = {EDGE: [], NOMINAL: []}
    levels = {
        f"{_chance(variant):g}" for variant, cell in cells.values() if mark(variant, cell).strip() == NOMINAL
    }
    for name, (variant, cell) in cells.items():
        if own := mark(variant, cell).strip():
            marked[own].append(name)
    notes = []
    if marked[NOMINAL]:
        names, level = "; ".join(marked[NOMINAL]), " or ".join(sorted(levels))
        notes.append(f"{NOMINAL} Tuned in name only: no candidate reached {level} % on validation. {names}.")
    if marked[EDGE]:
        notes.append(
            f"{EDGE} The best of the grid is at its edge, which is named below; a better one may lie beyond."
        )
    steps = list(_beyond(cells, folder))
    if steps:
        notes.append(
            f"One step beyond, validation accuracy beside that of the choice, which stays: {'; '.join(steps)}."
        )
    return notes


def _beyond(cells: Named, folder: Folder) -> Iterator[str]:
    for name, (variant, cell) in cells.items():
        chosen = "" if cell.selection is None else f" ({100 * cell.selection.best:.1f})"
        for row in load({run.path: run for run in variant.beyond}, folder).to_dict("records"):
            settings = json.loads(row["settings"])
            words = ", ".join(f"{short(key)} {plain(value)}" for key, value in settings.items())
            reached = f"{100 * row['validation_accuracy']:.1f}" if row["status"] == "ok" else row["status"]
            yield f"{name} {words}: {reached}{chosen}"
