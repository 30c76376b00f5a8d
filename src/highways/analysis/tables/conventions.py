"""Which reading of the paper reproduces it: the convention search as a table."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pandas as pd

from highways import paper
from highways.analysis.data.cells import CHANCE, Cell, cell
from highways.analysis.data.notes import cell_label, kernel_notes, plain
from highways.analysis.data.rendering import Table
from highways.experiments.readings import Reading, readings, settings_of, stages
from highways.experiments.results import Folder
from highways.experiments.runs import CellKey, Config
from highways.methods import METHODS

SMALLEST_SPREAD = 0.1  # points; the paper prints one decimal, and once a spread of 0.0
_NO_VALUE = "—"
_HEADS = {
    "activation": "Activation",
    "normalise_output_input": "Output norm",
    "state_gradient": "Gradient",
    "bias": "Bias",
    "highway_layers": "S",
    "sigma_v": "σ_v",
}


def conventions(config: Config, folder: Folder) -> Table:
    """Every reading of every stage with its distance to the paper, the nearest first."""
    tried = readings(config)
    varied = [key for key in settings_of(config) if len({r.settings[key] for r in tried}) > 1]
    by_name: dict[str, Cell] = {}
    rows, data = [], []
    for stage in stages(config):
        here = [reading for reading in tried if reading.stage == stage]
        later = tried[tried.index(here[-1]) + 1 :]
        found = [(reading, reading_cells(reading, folder)) for reading in here]
        measured = [(*pair, distance(pair[1])) for pair in found]
        measured.sort(key=lambda entry: (entry[2] is None, entry[2] and entry[2][0]))
        rows.append({"Stage": stage, **dict.fromkeys(varied, ""), "Distance": "paper"} | _published(here[0]))
        for reading, cells, far in measured:
            fate = _fate(reading, later)
            rows.append(
                {
                    "Stage": stage,
                    **{key: plain(reading.settings[key]) for key in varied},
                    "Distance": _NO_VALUE if far is None else f"{far[0]:.1f}",
                    "Points": _NO_VALUE if far is None else f"{far[1]:.1f}",
                    **{cell_label(key): own.text for key, own in cells.items()},
                    "Fate": fate,
                }
            )
            data += [_long(reading, varied, key, own, far, fate) for key, own in cells.items()]
            name = f"{stage}, {plain({key: reading.settings[key] for key in varied})}"
            by_name |= {f"{name}, {cell_label(key)}": own for key, own in cells.items()}
    places = sorted({key for reading in tried for key in reading.variants}, key=lambda key: (key[1], key[0]))
    labels = [cell_label(key) for method in METHODS for key in places if key[2] == method]
    columns = ["Stage", *varied, "Distance", "Points", *labels, "Fate"]
    frame = pd.DataFrame(rows, columns=columns).fillna("").set_index("Stage").rename(columns=_HEADS)
    return Table(
        "conventions",
        "Which reading of the paper reproduces it: test accuracy (%) and distance to the paper",
        frame,
        pd.DataFrame(data),
        (*_notes(config), *kernel_notes(by_name)),
    )


def distance(cells: Mapping[CellKey, Cell]) -> tuple[float, float] | None:
    """Distance of cells to the paper's: root mean square in units of its std, and mean absolute in points.

    None where a cell, ours or the paper's, has no number. A cell whose runs all diverged counts as chance.
    """
    spreads, points = [], []
    for key, own in cells.items():
        printed = paper.accuracy(*key)
        ours = CHANCE if own.status == "diverged" else own.mean
        if printed is None or ours is None:
            return None
        points.append(abs(ours - printed.mean))
        spreads.append((ours - printed.mean) / max(printed.std, SMALLEST_SPREAD))
    return fmean(value**2 for value in spreads) ** 0.5, fmean(points)


def reading_cells(reading: Reading, folder: Folder) -> dict[CellKey, Cell]:
    """The cells of a reading, by data set, depth and method."""
    return {key: cell(variant, folder) for key, variant in reading.variants.items()}


def _published(reading: Reading) -> dict[str, str]:
    printed = {key: paper.accuracy(*key) for key in reading.variants}
    return {cell_label(key): p.text for key, p in printed.items() if p is not None}


def _fate(reading: Reading, later: list[Reading]) -> str:
    if reading.default:
        return "in config.yaml"
    return "kept" if any(reading.settings == other.settings for other in later) else ""


def _long(
    reading: Reading,
    varied: list[str],
    key: CellKey,
    cell: Cell,
    far: tuple[float, float] | None,
    fate: str,
) -> dict[str, Any]:
    printed = paper.accuracy(*key)
    return {
        "stage": reading.stage,
        **{name: plain(reading.settings[name]) for name in varied},
        "dataset": key[0],
        "depth": key[1],
        "method": key[2],
        "mean": cell.mean,
        "std": cell.std,
        "n": cell.n,
        "values": ";".join(f"{value:g}" for value in cell.accuracies.values()),
        "paper_mean": None if printed is None else printed.mean,
        "paper_std": None if printed is None else printed.std,
        "status": cell.status,
        "distance": None if far is None else round(far[0], 3),
        "points": None if far is None else round(far[1], 3),
        "fate": fate,
    }


def _notes(config: Config) -> tuple[str, ...]:
    first = {reading.stage: next(iter(reading.variants.values())) for reading in readings(config)}
    lengths = [f"{stage}: {one.example.epochs} epochs, seeds {plain(one.seeds)}" for stage, one in first.items()]
    return (
        "Distance: root mean square over the cells of (ours − paper) in units of the paper's own spread "
        f"(at least {SMALLEST_SPREAD}, since it prints one decimal). Points: mean of |ours − paper|.",
        "A stage with fewer epochs than the paper's 12 measures early progress, not the final accuracy: its "
        "distances compare readings with each other only.",
        f"{'; '.join(lengths)}.",
        "kept: tried again in a later stage. A reading whose cells are not all run has no distance.",
        "PC does not depend on the highways, nor BP on the inference: readings that differ in these alone share "
        "their runs.",
    )
