"""Accuracy against the learning rate, in multiples of the printed one: table and figure."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from highways import paper
from highways.analysis.data.cells import Cell, cells
from highways.analysis.data.notes import cell_label, cell_notes, conventions_note, place_label, spread_note
from highways.analysis.data.rendering import Table
from highways.analysis.figures import drawing, style
from highways.experiments.own_data import classes_of
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.experiments.variants import Variant
from highways.methods import METHODS

Cells = Mapping[Variant, Cell]


def rate_cells(config: Config, folder: Folder) -> dict[Variant, Cell]:
    """The cell of every method at every multiple of the rate, at every place."""
    variants = plan(config).by_place("rates")
    methods = list(dict.fromkeys(variant.method for variant in variants))
    order = plan(config).places("rates")
    variants.sort(key=lambda one: (order.index(one.place), methods.index(one.method)))
    return cells(variants, folder)


def _factor(variant: Variant) -> float:
    factor: float = variant.factors["learning.lr"]
    return factor


def _factors(found: Cells) -> list[float]:
    return sorted({_factor(variant) for variant in found})


def rate_table(config: Config, folder: Folder) -> Table:
    """Test accuracy and largest validation drop at every multiple of the printed rate: a row per cell."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    data, named = [], {}
    found = rate_cells(config, folder)
    for rate, cell in found.items():
        dataset, depth, method = rate.cell
        printed = paper.accuracy(*rate.cell)
        row = rows.setdefault((place_label(dataset, depth), METHODS[method].title), {})
        row["Paper"] = "—" if printed is None else printed.text
        row[f"{_factor(rate):g} ×"] = cell.text
        row[f"Drop, {_factor(rate):g} ×"] = "—" if cell.drop is None else f"{cell.drop:.1f}"
        named[f"{cell_label(rate.cell)} {_factor(rate):g} ×"] = cell
        key = {"dataset": dataset, "depth": depth, "method": method, "factor": _factor(rate)}
        key["lr"] = rate.example.learning.lr
        data.append({**key, **cell.numbers, "largest_drop": cell.drop, "status": cell.status})
    factors = [f"{factor:g} ×" for factor in _factors(found)]
    columns = ["Paper", *factors, *(f"Drop, {factor}" for factor in factors)]
    index = pd.MultiIndex.from_tuples(rows, names=["Place", "Method"])
    return Table(
        "rates",
        "Test accuracy (%) against the learning rate, in multiples of the printed one",
        pd.DataFrame(list(rows.values()), index=index, columns=columns),
        pd.DataFrame(data),
        (
            spread_note(found),
            "The seeds of a place are those of the experiment `rates` in the configuration.",
            "Drop: the most by which validation accuracy falls below its best so far, in points, over all seeds.",
            "No rate is chosen here: every multiple is reported, and the table of depth keeps the printed rates.",
            conventions_note(config),
            *cell_notes(named),
        ),
    )


def rate_figure(config: Config, folder: Folder) -> Figure:
    """Test accuracy against the multiple of the printed rate: a panel per place, a line per method."""
    found = rate_cells(config, folder)
    drawing.demand("rates", found.values())
    datasets, depths, methods = drawing.axes_of(rate.cell for rate in found)
    factors = _factors(found)
    size = (2.3 * len(depths) + 0.6, 2.1 * len(datasets) + 0.6)
    figure, panels = drawing.panels(len(datasets), len(depths), size)
    places = [(dataset, depth) for dataset in datasets for depth in depths]
    for axes, place in zip(panels, places, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
        axes.minorticks_off()
        axes.set(ylim=drawing.PERCENT, title=place_label(*place))
        drawing.chance(axes, classes_of(config, place[0]))
        for method in methods:
            _band(axes, (*place, method))
            own = {_factor(rate): cell for rate, cell in found.items() if rate.cell == (*place, method)}
            drawing.series(axes, method, own)
        drawing.say_if_empty(axes)
    for axes in panels[:: len(depths)]:
        axes.set_ylabel(drawing.ACCURACY)
    for axes in panels[-len(depths) :]:
        axes.set_xlabel("Learning rate / printed rate")
    drawing.legend(figure, methods, paper_too=False)
    named = {f"{cell_label(rate.cell)} {_factor(rate):g} ×": cell for rate, cell in found.items()}
    bands = "Bands: the paper's mean ± std at the printed rate."
    style.finish(figure, [f"{drawing.spread(found.values())} {bands}", *drawing.absent(named)])
    return figure


def _band(axes: Axes, key: tuple[str, int, str]) -> None:
    printed = paper.accuracy(*key)
    if printed is not None:
        low, high = printed.mean - printed.std, printed.mean + printed.std
        axes.axhspan(low, high, color=style.colour(key[2]), alpha=0.15, linewidth=0, gid=f"paper:{key[2]}")
        axes.axhline(printed.mean, color=style.colour(key[2]), linewidth=0.6, alpha=0.6, linestyle="--")
