"""Accuracy against the learning rate, in multiples of the printed one: table and figure."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from highways import paper
from highways.analysis.data.cells import Cell, cells_at
from highways.analysis.data.notes import cell_label, cell_notes, conventions_note, place_label, spread_note
from highways.analysis.data.rendering import Table
from highways.analysis.figures import drawing, style
from highways.experiments.own_data import classes_of
from highways.experiments.rates import Rate, rates
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.methods import METHODS

Cells = Mapping[Rate, Cell]


def rate_cells(config: Config, folder: Folder) -> dict[Rate, Cell]:
    """The cell of every rate."""
    return {rate: cells_at(rate.config, folder, [rate.cell])[rate.cell] for rate in rates(config)}


def rate_table(config: Config, folder: Folder) -> Table:
    """Test accuracy and steadiness at every multiple of the printed rate: a row per cell."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    data, named = [], {}
    for rate, cell in rate_cells(config, folder).items():
        dataset, depth, method = rate.cell
        printed = paper.accuracy(*rate.cell)
        row = rows.setdefault((place_label(dataset, depth), METHODS[method].title), {})
        row["Paper"] = "—" if printed is None else printed.text
        row[f"{rate.factor:g} ×"] = cell.text
        row[f"Drop, {rate.factor:g} ×"] = "—" if cell.drop is None else f"{cell.drop:.1f}"
        named[f"{cell_label(rate.cell)} {rate.factor:g} ×"] = cell
        key = {"dataset": dataset, "depth": depth, "method": method, "factor": rate.factor, "lr": rate.lr}
        data.append({**key, **cell.numbers, "largest_drop": cell.drop, "status": cell.status})
    factors = [f"{factor:g} ×" for factor in config["rate_sweep"]["factors"]]
    columns = ["Paper", *factors, *(f"Drop, {factor}" for factor in factors)]
    index = pd.MultiIndex.from_tuples(rows, names=["Place", "Method"])
    return Table(
        "rates",
        "Test accuracy (%) against the learning rate, in multiples of the printed one",
        pd.DataFrame(list(rows.values()), index=index, columns=columns),
        pd.DataFrame(data),
        (
            spread_note(config),
            "The seeds of a place are those of `rate_sweep` in the configuration.",
            "Drop: the most by which validation accuracy falls below its best so far, in points, over all seeds.",
            "No rate is chosen here: every multiple is reported, and the table of depth keeps the printed rates.",
            conventions_note(config),
            *cell_notes(named),
        ),
    )


def rate_figure(config: Config, folder: Folder) -> Figure:
    """Test accuracy against the multiple of the printed rate: a panel per place, a line per method."""
    cells = rate_cells(config, folder)
    drawing.demand("rates", cells.values())
    sweep = config["rate_sweep"]
    datasets = list(dict.fromkeys(place["dataset"] for place in sweep["cells"]))
    depths = sorted({place["depth"] for place in sweep["cells"]})
    size = (2.3 * len(depths) + 0.6, 2.1 * len(datasets) + 0.6)
    figure, panels = drawing.panels(len(datasets), len(depths), size)
    places = [(dataset, depth) for dataset in datasets for depth in depths]
    for axes, place in zip(panels, places, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sweep["factors"], [f"{factor:g}" for factor in sweep["factors"]])
        axes.minorticks_off()
        axes.set(ylim=drawing.PERCENT, title=place_label(*place))
        drawing.chance(axes, classes_of(config, place[0]))
        for method in sweep["methods"]:
            _band(axes, (*place, method))
            own = {rate.factor: cell for rate, cell in cells.items() if rate.cell == (*place, method)}
            drawing.series(axes, method, own)
        drawing.say_if_empty(axes)
    for axes in panels[:: len(depths)]:
        axes.set_ylabel(drawing.ACCURACY)
    for axes in panels[-len(depths) :]:
        axes.set_xlabel("Learning rate / printed rate")
    drawing.legend(figure, sweep["methods"], paper_too=False)
    named = {f"{cell_label(rate.cell)} {rate.factor:g} ×": cell for rate, cell in cells.items()}
    bands = "Bands: the paper's mean ± std at the printed rate."
    style.finish(figure, [f"{drawing.spread(cells.values())} {bands}", *drawing.absent(named)])
    return figure


def _band(axes: Axes, key: tuple[str, int, str]) -> None:
    printed = paper.accuracy(*key)
    if printed is not None:
        low, high = printed.mean - printed.std, printed.mean + printed.std
        axes.axhspan(low, high, color=style.colour(key[2]), alpha=0.15, linewidth=0, gid=f"paper:{key[2]}")
        axes.axhline(printed.mean, color=style.colour(key[2]), linewidth=0.6, alpha=0.6, linestyle="--")
