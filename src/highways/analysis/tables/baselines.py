"""The other methods that the paper names, as baselines on one benchmark."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from highways.analysis.data.cells import Cell, cells
from highways.analysis.data.frame import usable
from highways.analysis.data.notes import (
    DAGGER,
    cell_notes,
    conventions_note,
    counted,
    label,
    place_label,
    plain,
    protocol_notes,
    spread_note,
    units_note,
)
from highways.analysis.data.rendering import Table
from highways.analysis.data.tuning import choices, mark, tuned
from highways.experiments.cost import extra_parameters
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config, short
from highways.experiments.variants import Changes, Variant

PLAIN, SKIPS = "no forward skips", "with forward skips: another network"
_NO_VALUE = "—"

Cells = Mapping[Variant, Cell]


def baseline_cells(config: Config, folder: Folder) -> dict[Variant, Cell]:
    """The cell of every baseline at every place, in the order of the configuration."""
    return cells(plan(config).of("baselines"), folder)


def skips(variant: Variant) -> bool:
    """Whether the network has forward skips, which the network of the benchmark has not."""
    return variant.example.parametrisation.skips


def start(variant: Variant) -> str:
    """The initialisation and learning-rate schedule in words; BP has its own at depth 128 (appendix B)."""
    spec = variant.example
    return f"{spec.network.initialisation} start, {spec.learning.schedule} rate"


def by_name(found: Cells) -> list[dict[Variant, Cell]]:
    """The cells of each baseline; those with forward skips come last."""
    named: dict[str, dict[Variant, Cell]] = {}
    for variant, cell in found.items():
        named.setdefault(variant.name, {})[variant] = cell
    return sorted(named.values(), key=lambda own: skips(next(iter(own))))


def cell_name(variant: Variant) -> str:
    return f"{label(variant)}, {place_label(*variant.place)}"


def baseline_table(config: Config, folder: Folder) -> Table:
    """Test accuracy of every baseline, with what it costs: one row per baseline, one column per place."""
    found = baseline_cells(config, folder)
    rows, data = [], []
    for own in by_name(found):
        first = next(iter(own))
        depths = dict.fromkeys(variant.depth for variant in own)
        rows.append(
            {
                "Network": SKIPS if skips(first) else PLAIN,
                "Method": label(first),
                **{place_label(*one.place): cell.text + mark(one, cell) for one, cell in own.items()},
                **{_seconds_head(depth): _seconds_text(_at(own, depth)) for depth in depths},
                "Local": first.row.get("local", _NO_VALUE),
                **{_extra_head(depth): _extra_text(_at(own, depth)) for depth in depths},
            }
        )
        data += [_long(variant, cell) for variant, cell in own.items()]
    places = plan(config).places("baselines")
    named = {cell_name(variant): cell for variant, cell in found.items()}
    all_depths = sorted({depth for _, depth in places})
    heads = ["Network", "Method", *(place_label(*place) for place in places)]
    heads += [*map(_seconds_head, all_depths), "Local", *map(_extra_head, all_depths)]
    frame = pd.DataFrame(rows, columns=heads).fillna(_NO_VALUE).set_index(["Network", "Method"])
    return Table(
        "baselines",
        "The baselines on one benchmark: test accuracy (%) and cost",
        frame,
        pd.DataFrame(data),
        (
            f"{spread_note(found)} Seeds are those of each column; {_NO_VALUE}: not planned.",
            *_protocol(found),
            *protocol_notes(found, named),
            *marks(found),
            *choices({cell_name(one): (one, cell) for one, cell in found.items()}, folder),
            _cost_note(found.values()),
            "Extra parameters: feedback matrices beside the weights, and whether they are learned.",
            *units_note(config),
            conventions_note(config),
            *cell_notes(named),
        ),
    )


def marks(found: Cells) -> list[str]:
    """Notes on re-implemented methods (†), on forward skips, and on starts that only some methods have."""
    secondary = dict.fromkeys(label(variant) for variant in found if variant.row.get("secondary"))
    skipping = dict.fromkeys(label(variant) for variant in found if skips(variant))
    notes = []
    if secondary:
        names = ", ".join(secondary)
        notes.append(f"{DAGGER} Re-implemented from secondary descriptions, with no code found: {names}.")
    if skipping:
        notes.append(
            f"With forward skips: {', '.join(skipping)}. Their network has identity skips between hidden layers, "
            "which no other network here has. Their accuracies do not compare with those of the other methods."
        )
    for place in dict.fromkeys(variant.place for variant in found):
        starts: dict[str, list[str]] = {}
        for variant in found:
            if variant.place == place:
                starts.setdefault(start(variant), []).append(label(variant))
        _, *others = sorted(starts, key=lambda one: -len(starts[one]))
        notes += [f"At {place_label(*place)} {', '.join(starts[own])} alone: {own}." for own in others]
    return notes


def core_seconds(found: Iterable[Cell]) -> float | None:
    """Processor seconds per epoch, a mean over the usable runs of the cells; None without one."""
    runs = pd.concat([cell.runs for cell in found])
    timed = runs[usable(runs) & (runs["epochs"] > 0)]
    return float((timed["cpu_seconds"] / timed["epochs"]).mean()) if len(timed) else None


def feedback(variant: Variant, cell: Cell) -> tuple[int, bool] | None:
    """The count of extra parameters at the chosen settings, and whether they are learned; None if unknown."""
    chosen: Iterable[Changes] = [{}] if variant.choice is None else variant.choice.candidates
    if cell.selection is not None:
        chosen = [cell.selection.settings]
    found = {extra_parameters(variant.example.changed(settings)) for settings in chosen}
    return found.pop() if len(found) == 1 else None


def _at(own: Cells, depth: int) -> dict[Variant, Cell]:
    return {variant: cell for variant, cell in own.items() if variant.depth == depth}


def _seconds_head(depth: int) -> str:
    return f"Core-s per epoch, L={depth}"


def _seconds_text(own: Cells) -> str:
    seconds = core_seconds(own.values())
    return _NO_VALUE if seconds is None else f"{seconds:,.1f}"


def _extra_head(depth: int) -> str:
    return f"Extra parameters, L={depth}"


def _extra_text(own: Cells) -> str:
    """The extra parameters in the first cell: on another data set another spacing may be chosen."""
    found = feedback(*next(iter(own.items())))
    if found is None:
        return _NO_VALUE
    count, learned = found
    return f"{count:,} {'learned' if learned else 'fixed'}" if count else "0"


def _long(variant: Variant, cell: Cell) -> dict[str, Any]:
    dataset, depth, method = variant.cell
    count, learned = feedback(variant, cell) or (None, None)
    return {
        "baseline": variant.name,
        "title": variant.title,
        "method": method,
        "dataset": dataset,
        "depth": depth,
        "forward_skips": skips(variant),
        "secondary": bool(variant.row.get("secondary")),
        "local": variant.row.get("local"),
        "tuned": tuned(variant),
        **cell.numbers,
        "settings": None if cell.selection is None else json.dumps(cell.selection.settings),
        "core_seconds_per_epoch": core_seconds([cell]),
        "extra_parameters": count,
        "extra_learned": learned,
        "status": cell.status,
    }


def _cost_note(found: Iterable[Cell]) -> str:
    runs = pd.concat([cell.runs for cell in found])
    machines = sorted(runs["device"].dropna().unique().tolist())
    where = f", on {'; '.join(machines)}" if machines else ""
    return (
        "Core-s per epoch: processor time of a record over its epochs, data and diagnostics included, a mean over "
        f"the runs of all data sets at that depth{where}. Other work on a machine raises it."
    )


def _protocol(found: Cells) -> list[str]:
    """Notes on the choice of settings: the tuning, its candidates, and the methods without tuning."""
    own = {label(variant): variant for variant in found}
    notes = []
    grids = {name: variant for name, variant in own.items() if tuned(variant)}
    if grids:
        choices = [variant.choice for variant in grids.values() if variant.choice is not None]
        seeds = sorted({seed for choice in choices for seed in choice.seeds})
        lengths = sorted({choice.epochs for choice in choices if choice.epochs is not None})
        notes = [
            f"Tuned on seed {plain(seeds)} for {counted(lengths[-1], 'epoch')}: each learning rate with each "
            f"value of one setting of the method's own, at most {max(len(one.candidates) for one in choices)} "
            "candidates; the best on validation accuracy is frozen for the seeds of the cell.",
            f"Candidates: {'; '.join(f'{name} {_grid(variant)}' for name, variant in grids.items())}.",
        ]
    fixed = {name: variant for name, variant in own.items() if not tuned(variant)}
    if fixed:
        swept = {name: len(one.choice.candidates) for name, one in fixed.items() if one.choice is not None}
        only = "".join(f" {name} has the best of {n} rates, swept at full length." for name, n in swept.items())
        notes.append(f"Not tuned here: {', '.join(fixed)} have the settings of the paper's table.{only}")
    return notes


def _grid(variant: Variant) -> str:
    """The candidates of a method in words, and in brackets the settings that its row fixes."""
    among, fixed = (
        [f"{short(key)} {plain(value)}" for key, value in settings.items()]
        for settings in (variant.row["select"]["among"], variant.row["set"])
    )
    candidates = " × ".join(among)
    return f"{candidates} ({', '.join(fixed)})" if fixed else candidates
