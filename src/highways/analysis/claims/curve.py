"""The specification curve: the gap between HEP and vanilla PC under every reading, as table and figure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from highways import paper
from highways.analysis.claims import criteria
from highways.analysis.claims.evidence import Sample, sample, stand_in
from highways.analysis.claims.parts import Claim
from highways.analysis.data.cells import Cell
from highways.analysis.data.notes import cell_label, cell_notes, counted, place_label, plain, signed
from highways.analysis.data.rendering import Table
from highways.analysis.figures import drawing, style
from highways.analysis.tables.conventions import reading_cells
from highways.experiments.plan import plan
from highways.experiments.readings import CURVE, Reading, readings, settings_of
from highways.experiments.results import Folder
from highways.experiments.runs import CellKey, Config
from highways.methods import METHODS

CLAIM = "hep_trains"  # the claim of paper.yaml that is judged under every reading
_MARKS: dict[str, dict[Any, str]] = {  # the options that the figure marks: label by setting and value
    "activation": {
        "post": "φ(W n(z))  post",
        "pre": "W φ(n(z))  pre",
        "both": "φ(W φ(n(z)))  both",
        "pre_norm": "W n(φ(z))  pre_norm",
    },
    "normalise_output_input": {True: "z_{L-1} normalised"},
    "highway_layers": {"all": "highway to layer 1"},
    "sigma_v": {0.001: "σ_v = 0.001 (printed)", 0.01: "σ_v = 0.01"},
}


@dataclass(frozen=True, eq=False)
class Judged:
    """A reading with its cells and, by place, the verdict on the claim there."""

    reading: Reading
    cells: Mapping[CellKey, Cell]
    verdicts: Mapping[tuple[str, int], str]

    def gaps(self, place: tuple[str, int]) -> dict[int, float]:
        """HEP minus PC in points of test accuracy, by seed, where both have one."""
        hep, pc = (self.cells[(*place, method)].accuracies for method in ("hep", "pc"))
        return {seed: hep[seed] - pc[seed] for seed in hep if seed in pc}

    def gap(self, place: tuple[str, int]) -> float | None:
        """HEP's mean minus PC's, in points; None where a cell has no mean."""
        hep, pc = (self.cells[(*place, method)].mean for method in ("hep", "pc"))
        return None if hep is None or pc is None else hep - pc

    @property
    def default(self) -> bool:
        return self.reading.default


@dataclass(frozen=True)
class _Under:
    """The accuracies of one reading, with the interface `Accuracies` of the rules."""

    cells: Mapping[CellKey, Cell]

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None:
        key = (dataset, depth, method)
        return sample(self.cells[key], stand_in(paper.accuracy(*key), {}, depth))

    def title(self, method: str) -> str:
        return METHODS[method].title


def _claim() -> Claim:
    return next(claim for claim in paper.claims() if claim["id"] == CLAIM)


def places(config: Config) -> list[tuple[str, int]]:
    """The places of the curve: data set and depth."""
    return list(dict.fromkeys(variant.place for variant in plan(config).of(CURVE)))


def judged(config: Config, folder: Folder) -> list[Judged]:
    """Every reading with its verdicts, the smallest gap at the first place first, those without a gap last."""
    claim = _claim()
    found = []
    for reading in readings(config, CURVE):
        cells = reading_cells(reading, folder)
        verdicts = {}
        for dataset, depth in places(config):
            (part,) = criteria.better({**claim, "datasets": [dataset], "depths": [depth]}, _Under(cells))
            verdicts[dataset, depth] = part.verdict
        found.append(Judged(reading, cells, verdicts))
    first = places(config)[0]

    def order(one: Judged) -> float:
        gap = one.gap(first)
        return math.inf if gap is None else gap

    return sorted(found, key=order)


def counts(config: Config, found: list[Judged]) -> list[str]:
    """In how many readings the claim holds, fails or is undecided: one sentence per place."""
    sentences = []
    for place in places(config):
        verdicts = [one.verdicts[place] for one in found]
        parts = [f"{word} in {verdicts.count(word)}" for word in dict.fromkeys(verdicts)]
        by = _claim()["by"]
        sentences.append(
            f"{place_label(*place)}: HEP at least {by:g} points better than vanilla PC: "
            f"{', '.join(sorted(parts))} of {counted(len(found), 'reading')}."
        )
    return sentences


def curve_table(config: Config, folder: Folder) -> Table:
    """Vanilla PC and HEP under every reading, with the gap and the verdict on the main claim."""
    found = judged(config, folder)
    varied = [key for key in settings_of(config) if len({one.reading.settings[key] for one in found}) > 1]
    rows, data, named = [], [], {}
    for one in found:
        words = {key: plain(one.reading.settings[key]) for key in varied}
        row = {**words, "Default": "default" if one.default else ""}
        for place in places(config):
            gap = one.gap(place)
            label = place_label(*place)
            for method in ("pc", "hep"):
                cell = one.cells[(*place, method)]
                row[f"{label} {METHODS[method].title}"] = cell.text
                named[f"{cell_label((*place, method))} ({', '.join(words.values())})"] = cell
            row[f"{label} gap"] = "—" if gap is None else signed(gap)
            row[f"{label} verdict"] = one.verdicts[place]
            data += [_long(one, varied, place, method) for method in ("pc", "hep")]
        rows.append(row)
    return Table(
        "readings",
        "The main claim under every reading: test accuracy (%) of vanilla PC and HEP, and their gap",
        pd.DataFrame(rows).set_index(varied[0]),
        pd.DataFrame(data),
        (
            *counts(config, found),
            "A reading decides nothing here; its verdict is that of the claim on these cells alone.",
            *cell_notes(named),
        ),
    )


def _long(one: Judged, varied: list[str], place: tuple[str, int], method: str) -> dict[str, Any]:
    cell = one.cells[(*place, method)]
    settings = {key: plain(one.reading.settings[key]) for key in varied}
    return {
        **settings,
        "dataset": place[0],
        "depth": place[1],
        "method": method,
        **cell.numbers,
        "gap": one.gap(place),
        "verdict": one.verdicts[place],
        "status": cell.status,
    }


def curve_figure(config: Config, folder: Folder) -> Figure:
    """A column per reading: the gap of each seed per place, the paper's as a band, the options as marks."""
    found = judged(config, folder)
    drawing.demand("readings", [cell for one in found for cell in one.cells.values()])
    here = places(config)
    marks = [(key, value, text) for key, texts in _MARKS.items() for value, text in texts.items()]
    heights = [2.0] * len(here) + [0.17 * len(marks)]
    # The layout needs the resolution of the picture, on which the width of the labels depends.
    figure = Figure(figsize=(5.6, sum(heights) + 0.7), layout="constrained", dpi=style.DPI)
    panels = list(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights))
    for axes, place in zip(panels, here, strict=False):
        _gaps(axes, found, place)
    _options(panels[-1], found, marks)
    panels[-1].set_xlabel("Readings, by the gap in the first panel")
    notes = [
        "Gap: test accuracy of HEP minus that of vanilla PC. Small points: one per seed; bars: difference of the "
        "means. Bands: the paper's difference, ± the root of its summed variances. Dotted: the 20 points of the "
        "claim. Framed: the reading of the tables.",
        *counts(config, found),
    ]
    style.finish(figure, notes)
    return figure


def _gaps(axes: Axes, found: list[Judged], place: tuple[str, int]) -> None:
    printed = [paper.accuracy(*place, method) for method in ("hep", "pc")]
    if printed[0] is not None and printed[1] is not None:
        middle, half = printed[0].mean - printed[1].mean, math.hypot(printed[0].std, printed[1].std)
        axes.axhspan(middle - half, middle + half, color=style.REFERENCE, alpha=0.15, linewidth=0, gid="paper")
    claim = _claim()
    axes.axhline(0, color=style.REFERENCE, linewidth=0.8, gid="zero")
    axes.axhline(claim["by"], color=style.REFERENCE, linewidth=0.9, linestyle=":", gid="claim")
    colour = style.colour("hep")
    for column, one in enumerate(found):
        seeds = one.gaps(place)
        axes.plot([column] * len(seeds), list(seeds.values()), ".", color=colour, alpha=0.6, gid=f"seeds:{column}")
        gap = one.gap(place)
        if gap is not None:
            axes.plot([column - 0.3, column + 0.3], [gap, gap], color=colour, gid=f"gap:{column}")
    axes.set(ylabel="Gap (points)", title=place_label(*place), xlim=(-0.6, len(found) - 0.4), ylim=(-25, 95))


def _options(axes: Axes, found: list[Judged], marks: list[tuple[str, Any, str]]) -> None:
    """Draw a row per option, with a dot for each reading that has it, and a frame around the default."""
    for row, (key, value, _) in enumerate(marks):
        columns = [column for column, one in enumerate(found) if one.reading.settings[key] == value]
        axes.plot(
            columns, [row] * len(columns), "o", color=style.REFERENCE, markersize=3.5, gid=f"option:{key}:{value}"
        )
    for column, one in enumerate(found):
        if one.default:
            axes.axvspan(column - 0.45, column + 0.45, facecolor="none", edgecolor=style.REFERENCE, gid="default")
    axes.set_yticks(range(len(marks)), [text for *_, text in marks])
    axes.set_ylim(len(marks) - 0.5, -0.5)
    axes.set_xticks([])
    axes.grid(visible=False)
