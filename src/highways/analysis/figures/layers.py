"""Figures of what the layers do over training, from the diagnostics of the records."""

from collections.abc import Iterable

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from highways.analysis.data.cells import Cell, cells
from highways.analysis.data.frame import layers
from highways.analysis.data.notes import DATASET_TITLES, kernel_notes, place_label
from highways.analysis.figures import drawing, style
from highways.experiments.plan import plan
from highways.experiments.readings import Reading, finalists
from highways.experiments.results import Folder
from highways.experiments.runs import Config, Run
from highways.experiments.variants import Variant

_LAYER_COLOURS = colormaps["viridis"]


def compared(config: Config) -> list[Variant]:
    """The ablations named after their method, which change no setting: the ones that `gradients` compares."""
    return [variant for variant in plan(config).of("ablations") if variant.name == variant.method]


def gradients(config: Config, folder: Folder) -> Figure:
    """The cosine of every matrix's gradient to that of backprop, before and after training, per place."""
    found = cells(compared(config), folder)
    drawing.demand("gradients", found.values())
    places = list(dict.fromkeys(variant.place for variant in found))
    figure, panels = drawing.panels(len(places), 2, (6.4, 2.2 * len(places) + 0.5))
    for row, place in enumerate(places):
        for column, moment in enumerate(("before training", "after training")):
            axes = panels[2 * row + column]
            axes.set(title=f"{DATASET_TITLES[place[0]]}, L = {place[1]}: {moment}")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.axhline(0, color=style.REFERENCE, linewidth=0.8)
            for variant, cell in found.items():
                if variant.place == place:
                    _cosines(axes, variant, cell, folder, last=column == 1)
            drawing.say_if_empty(axes)
        panels[2 * row].set_ylabel("Cosine to backprop")
    lowest = min(axes.dataLim.y0 for axes in panels)
    for axes in panels:
        axes.set_ylim(min(-0.3, lowest - 0.05), 1.05)
    for axes in panels[-2:]:
        axes.set_xlabel("Matrix W_l: l")
    drawing.legend(
        figure, list(dict.fromkeys(variant.method for variant in found)), paper_too=False, markers=False
    )
    style.finish(
        figure,
        [
            "Thin: one line per seed. Bold: their mean. On one batch of training images, at the weights that each "
            "method has reached. A matrix whose gradient is zero has no cosine.",
            *drawing.absent({f"{one.title}, {place_label(*one.place)}": cell for one, cell in found.items()}),
        ],
    )
    return figure


def _cosines(axes: Axes, variant: Variant, cell: Cell, folder: Folder, *, last: bool) -> None:
    """One line per seed, and their mean, at the first or the last moment of the records."""
    frame = of_cell(cell, variant.runs, folder)
    table = at_moment(frame[frame["quantity"] == "backprop_cosine"], last=last)
    colour = style.colour(variant.method)
    for seed in table.columns:
        axes.plot(
            table.index, table[seed], color=colour, linewidth=0.5, alpha=0.6, gid=f"seed:{variant.name}:{seed}"
        )
    if not table.empty:
        axes.plot(table.index, table.mean(axis="columns"), color=colour, gid=f"mean:{variant.name}")


def of_cell(cell: Cell, runs: Iterable[Run], folder: Folder) -> pd.DataFrame:
    """The per-layer diagnostics of the records that the cell reports; `runs` must include their runs."""
    used = set(cell.records)
    return layers({run.path: run for run in runs if run.path in used}, folder)


def at_moment(quantity: pd.DataFrame, *, last: bool) -> pd.DataFrame:
    """Values of one quantity at the first or last moment of each record: a row per layer, a column per seed."""
    moment = quantity.groupby("seed")["epoch"].transform("max" if last else "min")
    return quantity[quantity["epoch"] == moment].pivot(index="layer", columns="seed", values="value")


def scales(config: Config, folder: Folder) -> Figure:
    """The rms of every hidden feedforward state over training: one row per depth, one column per reading."""
    columns = finalists(config)
    drawn = {(column, row): variant for column, (_, own) in enumerate(columns) for row, variant in enumerate(own)}
    found = cells(drawn.values(), folder)
    drawing.demand("scales", found.values())
    rows = len(columns[0][1])
    figure, panels = drawing.panels(rows, len(columns), (1.6 * len(columns) + 0.8, 1.7 * rows + 0.5))
    for (column, row), variant in drawn.items():
        reading, cell = columns[column][0], found[variant]
        axes = panels[row * len(columns) + column]
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        accuracy = "" if cell.mean is None else f": {cell.mean:.1f} %"
        axes.set_title(f"{_in_words(reading)}\nL = {variant.depth}{accuracy}", fontsize=7)
        _scales(axes, variant, folder)
        drawing.say_if_empty(axes)
        if column == 0:
            axes.set_ylabel("rms of z_l")
        if row == rows - 1:
            axes.set_xlabel("Epoch")
    bar = ScalarMappable(Normalize(0, 1), _LAYER_COLOURS)
    figure.colorbar(bar, ax=panels, label="Hidden layer: (l - 1) / (L - 2)", shrink=0.6)
    notes = [
        "HEP, first seed; feedforward states of one batch of training images. In the titles: test accuracy (%)."
    ]
    named = {f"{_in_words(columns[c][0])}, L = {one.depth}": found[one] for (c, _), one in drawn.items()}
    style.finish(figure, [*notes, *kernel_notes(named)])
    return figure


def _scales(axes: Axes, variant: Variant, folder: Folder) -> None:
    frame = layers({run.path: run for run in variant.runs}, folder)
    frame = frame[(frame["quantity"] == "rms_state") & (frame["seed"] == variant.seeds[0])]
    for layer, line in frame.groupby("layer"):
        place = (int(str(layer)) - 1) / max(variant.depth - 2, 1)
        axes.plot(line["epoch"], line["value"], color=_LAYER_COLOURS(place), linewidth=0.9, gid=f"layer:{layer}")


def _in_words(reading: Reading) -> str:
    """The settings of a reading that tell it apart, in two lines."""
    settings = reading.settings
    first = [str(settings["activation"])]
    first += [word for key, word in (("normalise_output_input", "output norm"), ("bias", "bias")) if settings[key]]
    return f"{', '.join(first)}\nS {settings['highway_layers']}, σ_v {settings['sigma_v']:g}"
