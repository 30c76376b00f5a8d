"""The remedies that the paper names, on its benchmark: their cells and their table."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from highways.analysis.data.cells import Cell, swept_cell, table_cell
from highways.analysis.data.frame import load, usable
from highways.analysis.data.notes import (
    cell_notes,
    conventions_note,
    counted,
    place_label,
    plain,
    protocol_notes,
    spread_note,
    units_note,
)
from highways.analysis.data.rendering import Table
from highways.analysis.data.tuning import choices, mark
from highways.experiments.baselines import DAGGER, RATES, VALUES, Remedy, remedies
from highways.experiments.cost import extra_parameters
from highways.experiments.results import Folder
from highways.experiments.runs import Config

PLAIN, SKIPS = "no forward skips", "with forward skips: another network"
_NO_VALUE = "—"

Cells = Mapping[Remedy, Cell]


def remedy_cells(config: Config, folder: Folder) -> dict[Remedy, Cell]:
    """The cell of every rule at every place, in the order of the configuration."""
    runs = {remedy: {run.path: run for run in remedy.runs()} for remedy in remedies(config)}
    frame = load({path: run for own in runs.values() for path, run in own.items()}, folder)
    return {remedy: _cell(remedy, frame[frame["path"].isin(own)]) for remedy, own in runs.items()}


def _cell(remedy: Remedy, rows: pd.DataFrame) -> Cell:
    if not remedy.tuned:
        return table_cell(remedy.config, remedy.cell[2], rows)
    # A run of the tuning is shorter than those of the cell, and so never one of them, whatever its seed.
    return replace(swept_cell((), rows), seeds=remedy.seeds)


def by_rule(cells: Cells) -> list[dict[Remedy, Cell]]:
    """The cells of each rule; rules with forward skips come last."""
    rules: dict[str, dict[Remedy, Cell]] = {}
    for remedy, cell in cells.items():
        rules.setdefault(remedy.name, {})[remedy] = cell
    return sorted(rules.values(), key=lambda own: next(iter(own)).skips)


def cell_name(remedy: Remedy) -> str:
    return f"{remedy.label}, {place_label(*remedy.cell[:2])}"


def remedy_table(config: Config, folder: Folder) -> Table:
    """Test accuracy of every rule, with what it costs: one row per rule, one column per place."""
    cells = remedy_cells(config, folder)
    rows, data = [], []
    for own in by_rule(cells):
        first = next(iter(own))
        depths = dict.fromkeys(remedy.cell[1] for remedy in own)
        rows.append(
            {
                "Network": SKIPS if first.skips else PLAIN,
                "Rule": first.label,
                **{place_label(*remedy.cell[:2]): cell.text + mark(remedy, cell) for remedy, cell in own.items()},
                **{_seconds_head(depth): _seconds_text(_at(own, depth)) for depth in depths},
                "Local": first.entry.get("local", _NO_VALUE),
                **{_extra_head(depth): _extra_text(_at(own, depth)) for depth in depths},
            }
        )
        data += [_long(remedy, cell) for remedy, cell in own.items()]
    places = list(dict.fromkeys(remedy.cell[:2] for remedy in cells))
    depths = dict.fromkeys(depth for _, depth in places)
    heads = ["Network", "Rule", *(place_label(*place) for place in places)]
    heads += [*map(_seconds_head, depths), "Local", *map(_extra_head, depths)]
    frame = pd.DataFrame(rows, columns=heads).fillna(_NO_VALUE).set_index(["Network", "Rule"])
    return Table(
        "remedies",
        "The remedies that the paper names, on its benchmark: test accuracy (%) and cost",
        frame,
        pd.DataFrame(data),
        (
            f"{spread_note(config)} Seeds are those of each column; {_NO_VALUE}: not planned.",
            *_protocol(config, cells),
            *protocol_notes(config, {cell_name(remedy): cell for remedy, cell in cells.items()}),
            *marks(cells),
            *choices({cell_name(one): (one, cell) for one, cell in cells.items()}, folder),
            _cost_note(cells.values()),
            "Extra parameters: feedback matrices beside the weights, and whether they are learned.",
            *units_note(config),
            conventions_note(config),
            *cell_notes({cell_name(remedy): cell for remedy, cell in cells.items()}),
        ),
    )


def marks(cells: Cells) -> list[str]:
    """What the marks on the titles, and the block of a rule, mean."""
    secondary = dict.fromkeys(remedy.label for remedy in cells if remedy.label != remedy.title)
    skips = dict.fromkeys(remedy.label for remedy in cells if remedy.skips)
    notes = []
    if secondary:
        names = ", ".join(secondary)
        notes.append(f"{DAGGER} Re-implemented from secondary descriptions, with no code found: {names}.")
    if skips:
        notes.append(
            f"With forward skips: {', '.join(skips)}. Their network has identity skips between hidden layers, "
            "which no other network here has. Their accuracies do not compare with those of the other methods."
        )
    for place in dict.fromkeys(remedy.cell[:2] for remedy in cells):
        starts: dict[str, list[str]] = {}
        for remedy in cells:
            if remedy.cell[:2] == place:
                starts.setdefault(remedy.start, []).append(remedy.label)
        _, *others = sorted(starts, key=lambda start: -len(starts[start]))
        notes += [f"At {place_label(*place)} {', '.join(starts[own])} alone: {own}." for own in others]
    return notes


def core_seconds(cells: Iterable[Cell]) -> float | None:
    """Processor time per epoch, a mean over the usable runs of the cells."""
    runs = pd.concat([cell.runs for cell in cells])
    timed = runs[usable(runs) & (runs["epochs"] > 0)]
    return float((timed["cpu_seconds"] / timed["epochs"]).mean()) if len(timed) else None


def feedback(remedy: Remedy, cell: Cell) -> tuple[int, bool] | None:
    """The extra parameters of a rule as it was chosen, and whether it learns them; None where it is not known."""
    chosen = [{}] if not remedy.tuned else [settings for _, settings in remedy.candidates()]
    if cell.selection is not None and remedy.tuned:
        chosen = [{key: value for key, value in cell.selection.settings.items() if key != "learning.lr"}]
    found = {extra_parameters(remedy.spec(1.0, settings, seed=0, epochs=1)) for settings in chosen}
    return found.pop() if len(found) == 1 else None


def _at(own: Cells, depth: int) -> dict[Remedy, Cell]:
    return {remedy: cell for remedy, cell in own.items() if remedy.cell[1] == depth}


def _seconds_head(depth: int) -> str:
    return f"Core-s per epoch, L={depth}"


def _seconds_text(own: Cells) -> str:
    seconds = core_seconds(own.values())
    return _NO_VALUE if seconds is None else f"{seconds:,.1f}"


def _extra_head(depth: int) -> str:
    return f"Extra parameters, L={depth}"


def _extra_text(own: Cells) -> str:
    """Those of the first data set at a depth: another one may have chosen another spacing."""
    found = feedback(*next(iter(own.items())))
    if found is None:
        return _NO_VALUE
    count, learned = found
    return f"{count:,} {'learned' if learned else 'fixed'}" if count else "0"


def _long(remedy: Remedy, cell: Cell) -> dict[str, Any]:
    dataset, depth, method = remedy.cell
    count, learned = feedback(remedy, cell) or (None, None)
    return {
        "rule": remedy.name,
        "title": remedy.title,
        "method": method,
        "dataset": dataset,
        "depth": depth,
        "forward_skips": remedy.skips,
        "secondary": remedy.label != remedy.title,
        "local": remedy.entry.get("local"),
        "tuned": remedy.tuned,
        **cell.numbers,
        "settings": None if cell.selection is None else json.dumps(cell.selection.settings),
        "core_seconds_per_epoch": core_seconds([cell]),
        "extra_parameters": count,
        "extra_learned": learned,
        "status": cell.status,
    }


def _cost_note(cells: Iterable[Cell]) -> str:
    runs = pd.concat([cell.runs for cell in cells])
    machines = sorted(runs["device"].dropna().unique().tolist())
    where = f", on {'; '.join(machines)}" if machines else ""
    return (
        "Core-s per epoch: processor time of a record over its epochs, data and diagnostics included, a mean over "
        f"the runs of all data sets at that depth{where}. Other work on a machine raises it."
    )


def _protocol(config: Config, cells: Cells) -> list[str]:
    """How the settings came about: the tuning, its candidates, and what is not tuned."""
    tuning = config["remedies"]["tuning"]
    grids = {remedy.label: _grid(remedy) for remedy in cells if remedy.tuned}
    fixed = dict.fromkeys(remedy.label for remedy in cells if not remedy.tuned)
    swept = config["learning_rate_sweep"]
    found = []
    if grids:
        found = [
            f"Tuned on seed {tuning['seed']} for {counted(tuning['epochs'], 'epoch')}: each learning rate with "
            f"each value of one setting of the rule's own (at most {RATES} × {VALUES}); the best on validation "
            "accuracy is frozen for the seeds of the cell.",
            f"Candidates: {'; '.join(f'{label} {grid}' for label, grid in grids.items())}.",
        ]
    if fixed:
        rates = [r.label for r in cells if not r.tuned and r.cell[2] in swept["methods"]]
        only = "".join(
            f" {label} has the best of {len(swept['learning_rates'])} rates, swept at full length."
            for label in dict.fromkeys(rates)
        )
        found.append(f"Not tuned here: {', '.join(fixed)} have the settings of the paper's table.{only}")
    return found


def _grid(remedy: Remedy) -> str:
    """The candidates of a rule, and in brackets what it fixes."""
    varied, fixed = (
        [f"{key.rpartition('.')[2]} {plain(value)}" for key, value in remedy.entry.get(kind, {}).items()]
        for kind in ("vary", "set")
    )
    candidates = " × ".join([f"lr {plain(remedy.learning_rates)}", *varied])
    return f"{candidates} ({', '.join(fixed)})" if fixed else candidates
