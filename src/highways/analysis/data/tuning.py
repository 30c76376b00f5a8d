"""What the tuning of a rule is worth: choices at chance, at the edge of their grid, and what lies beyond."""

import json
from collections.abc import Iterator, Mapping

from highways.analysis.data.cells import Cell
from highways.analysis.data.frame import load
from highways.analysis.data.notes import plain
from highways.experiments.baselines import Remedy
from highways.experiments.own_data import classes_of
from highways.experiments.results import Folder

EDGE, NOMINAL = "‡", "§"
_ABOVE = 2.0  # points above guessing, below which a validation accuracy is chance

Named = Mapping[str, tuple[Remedy, Cell]]


def mark(remedy: Remedy, cell: Cell) -> str:
    """Of a choice that its tuning does not support: no candidate was above chance, or an edge was the best."""
    if not remedy.tuned or cell.selection is None or not cell.n:
        return ""
    if 100 * cell.selection.best < _chance(remedy):
        return f" {NOMINAL}"
    return f" {EDGE}" if cell.selection.edges else ""


def _chance(remedy: Remedy) -> float:
    return 100 / classes_of(remedy.config, remedy.cell[0]) + _ABOVE


def choices(cells: Named, folder: Folder) -> list[str]:
    """What these marks mean, and what lies one step beyond an edge."""
    marked: dict[str, list[str]] = {EDGE: [], NOMINAL: []}
    levels = {f"{_chance(remedy):g}" for remedy, cell in cells.values() if mark(remedy, cell).strip() == NOMINAL}
    for name, (remedy, cell) in cells.items():
        if own := mark(remedy, cell).strip():
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
    for name, (remedy, cell) in cells.items():
        chosen = "" if cell.selection is None else f" ({100 * cell.selection.best:.1f})"
        for row in load({run.path: run for run in remedy.beyond()}, folder).to_dict("records"):
            settings = json.loads(row["settings"])
            words = ", ".join(f"{key.rpartition('.')[2]} {plain(value)}" for key, value in settings.items())
            reached = f"{100 * row['validation_accuracy']:.1f}" if row["status"] == "ok" else row["status"]
            yield f"{name} {words}: {reached}{chosen}"
