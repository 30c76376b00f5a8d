"""The default figure of an experiment: accuracy over the setting that it varies."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from highways.analysis.data.cells import Cell, cell
from highways.analysis.data.lines import lines, settings, varied
from highways.analysis.data.notes import DATASET_TITLES, place_label
from highways.analysis.figures import drawing, style
from highways.experiments.own_data import classes_of
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config, short
from highways.experiments.variants import Variant

DEPTH = "network.depth"
LINES = 8


def experiment_figure(name: str, config: Config, folder: Folder) -> Figure:
    """Test accuracy over a varied number, else over the depth: a line per method and setting.

    A panel is a data set where the depth is the axis, else a data set and depth. Without an axis, or with
    more than LINES lines, the figure has a row per cell instead.
    """
    variants = plan(config).of(name)
    axis = abscissa(variants)
    drawn = {line: {one: cell(one, folder) for one in own} for line, own in lines(variants, axis).items()}
    drawing.demand(name, [found for own in drawn.values() for found in own.values()])
    cells = {
        f"{line}, {place_label(*one.place)}": found for line, own in drawn.items() for one, found in own.items()
    }
    figure = _curves(config, variants, axis, drawn) if axis and len(drawn) <= LINES else _rows(cells)
    style.finish(figure, [drawing.spread(cells.values()), *drawing.absent(cells)])
    return figure


def abscissa(variants: list[Variant]) -> str:
    """The key of the x axis: a number that is varied, else the depth; empty where neither varies."""
    for key in varied(variants):
        values = {settings(variant).get(key) for variant in variants}
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values - {None}):
            return key
        if all(key in variant.factors for variant in variants):
            return key
    return DEPTH if len({variant.depth for variant in variants}) > 1 else ""


def _at(variant: Variant, axis: str) -> float | None:
    """The x of a variant on the axis of that key; None where its method does not use the key."""
    if axis == DEPTH:
        return variant.depth
    value = variant.scaled.get(axis, variant.varied.get(axis))
    return None if value is None else float(value)


def _panel(variant: Variant, axis: str) -> str:
    """The title of a variant's panel."""
    return DATASET_TITLES[variant.dataset] if axis == DEPTH else place_label(*variant.place)


Drawn = dict[str, dict[Variant, Cell]]


def _curves(config: Config, variants: list[Variant], axis: str, drawn: Drawn) -> Figure:
    keys = {_panel(variant, axis): variant.dataset for variant in variants}
    columns = min(len(keys), 3)
    rows = -(-len(keys) // columns)
    figure, panels = drawing.panels(rows, columns, (max(4.4, 3.1 * columns), 2.6 * rows + 0.7), count=len(keys))
    ticks = sorted({at for variant in variants if (at := _at(variant, axis)) is not None})
    for axes, key in zip(panels, keys, strict=True):
        _ticks(axes, ticks)
        axes.set(
            ylim=drawing.PERCENT,
            xlabel="Depth L (weight matrices)" if axis == DEPTH else _axis_title(variants, axis),
            title=key,
        )
        drawing.chance(axes, classes_of(config, keys[key]))
        for number, own in enumerate(drawn.values()):
            here = {one: found for one, found in own.items() if _panel(one, axis) == key}
            _line(axes, number, axis, here)
        drawing.say_if_empty(axes)
    for axes in panels[::columns]:
        axes.set_ylabel(drawing.ACCURACY)
    handles = [
        drawing.handle(style.look(number).colour, line, marker=style.look(number).marker)
        for number, line in enumerate(drawn)
    ]
    longest = max(map(len, drawn))
    figure.legend(handles=handles, loc="outside upper center", ncols=max(1, min(len(handles), 60 // longest)))
    return figure


def _ticks(axes: Axes, ticks: list[float]) -> None:
    if ticks[0] > 0 and ticks[-1] >= 4 * ticks[0]:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=90 if len(ticks) > 6 else 0)
    axes.minorticks_off()


def _axis_title(variants: list[Variant], axis: str) -> str:
    scaled = any(axis in variant.factors for variant in variants)
    return f"{short(axis)} / that of the depth" if scaled else short(axis)


def _line(axes: Axes, number: int, axis: str, here: dict[Variant, Cell]) -> None:
    """Draw one line; a method that does not use the key of the axis has a horizontal line at its mean."""
    look = style.look(number)
    points = {at: found for one, found in here.items() if (at := _at(one, axis)) is not None}
    if points:
        drawing.series(axes, str(number), points, look)
    for one, found in here.items():
        if _at(one, axis) is None and found.mean is not None:
            axes.axhline(found.mean, color=look.colour, linewidth=1.0, linestyle="--", gid=f"level:{number}")


def _rows(cells: dict[str, Cell]) -> Figure:
    """A row per cell that was run."""
    run = {name: cell for name, cell in cells.items() if cell.finished}
    # The layout needs the resolution of the picture, on which the width of the labels depends.
    size = (6.4, max(1.6, 0.2 * len(run) + 0.8))
    figure = Figure(figsize=size, layout="constrained", dpi=style.DPI)
    axes = figure.subplots()
    lowest = min(value for cell in run.values() for value in (*cell.accuracies.values(), 100.0))
    axes.set(xlim=(max(0.0, lowest - 5), 101), xlabel=drawing.ACCURACY)
    colour = style.look(0).colour
    for row, found in enumerate(run.values()):
        values = list(found.accuracies.values())
        axes.plot(values, [row] * len(values), ".", color=colour, alpha=0.5, gid=f"seeds:{row}")
        if found.mean is not None:
            axes.errorbar([found.mean], [row], xerr=found.std, color=colour, marker="s", capsize=2)
    axes.set_yticks(range(len(run)), [style.literal(textwrap.fill(name, 52)) for name in run])
    axes.set_ylim(len(run) - 0.5, -0.5)
    return figure
