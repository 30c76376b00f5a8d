"""What the figures share: panels, series, reference values, legends and small print."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from highways import paper
from highways.analysis.data.cells import Cell
from highways.analysis.data.notes import cell_label, counted, kernel_notes, place_label
from highways.analysis.figures import style
from highways.experiments.runs import CellKey
from highways.experiments.variants import Variant
from highways.methods import METHODS
from highways.record import RecordError

PERCENT = (0, 103)  # room for the marker of a run near 100
ACCURACY = "Test accuracy (%)"
_SPREAD = "Small points: one per seed. Large markers and bars: mean ± sample std (ddof = 1)"


class NothingRun(RecordError):  # noqa: N818
    """None of the runs of a figure has a usable record; the message names the target that makes them."""


def panels(
    rows: int, columns: int, size: tuple[float, float], *, count: int | None = None, sharex: bool = True
) -> tuple[Figure, list[Axes]]:
    """A grid of panels, or the first `count` of them; the rest of the grid stays empty."""
    figure = Figure(figsize=size, layout="constrained")
    grid = list(figure.subplots(rows, columns, sharex=sharex, sharey=True, squeeze=False).flat)
    for axes in grid[count:] if count is not None else []:
        axes.remove()
    return figure, grid[:count]


def demand(name: str, cells: Iterable[Cell]) -> None:
    if not any(cell.finished for cell in cells):
        raise NothingRun(f"figure {name}: none of its runs has a usable record; run the target figure_{name}")


def length(variant: Variant) -> str:
    """Text for a title: the epochs of a variant where the configuration has another number, else empty."""
    epochs = variant.example.epochs
    return "" if epochs == variant.config["training"]["epochs"] else f", {counted(epochs, 'epoch')} only"


def axes_of(cells: Iterable[CellKey]) -> tuple[list[str], list[int], list[str]]:
    """The data sets, the depths in order, and the methods of some cells."""
    datasets, depths, methods = (list(dict.fromkeys(column)) for column in zip(*cells, strict=True))
    return datasets, sorted(depths), methods


def say_if_empty(axes: Axes) -> None:
    """Annotate a panel in which no run is drawn; the lines of runs have a gid with a colon."""
    if not any(":" in str(line.get_gid()) for line in axes.lines):
        axes.annotate("no usable record", (0.5, 0.5), xycoords="axes fraction", ha="center", color=style.REFERENCE)


def series(axes: Axes, name: str, cells: Mapping[float, Cell], look: style.Look | None = None) -> None:
    """Draw the cells at their x: a point per seed, mean ± std, and a cross at the bottom per diverged run.

    name: the line's name in gids; it must be a method, whose look the line has, unless `look` is given.
    """
    colour, marker = look or style.of_method(name)
    seeds = [(x, value) for x, cell in cells.items() for value in cell.accuracies.values()]
    axes.plot(
        [x for x, _ in seeds],
        [value for _, value in seeds],
        ".",
        color=colour,
        alpha=0.5,
        gid=f"seeds:{name}",
    )
    run = {x: cell for x, cell in cells.items() if cell.n}
    bars = axes.errorbar(
        list(run),
        [cell.mean or 0.0 for cell in run.values()],
        yerr=[cell.std or 0.0 for cell in run.values()],
        color=colour,
        marker=marker,
        capsize=2,
        elinewidth=1,
    )
    bars.lines[0].set_gid(f"mean:{name}")
    diverged = [x for x, cell in cells.items() for _ in cell.diverged]
    axes.plot(
        diverged,
        [0.02] * len(diverged),
        "x",
        color=colour,
        transform=axes.get_xaxis_transform(),
        gid=f"diverged:{name}",
    )


def published(axes: Axes, method: str, printed: Mapping[float, paper.Published]) -> None:
    bars = axes.errorbar(
        list(printed),
        [value.mean for value in printed.values()],
        yerr=[value.std for value in printed.values()],
        color=style.colour(method),
        marker=style.marker(method),
        markerfacecolor="none",
        markersize=7.5,
        linestyle="--",
        linewidth=0.8,
        elinewidth=0.8,
        capsize=3,
        zorder=3,
    )
    bars.lines[0].set_gid(f"paper:{method}")


def chance(axes: Axes, classes: int) -> None:
    """A line at the accuracy of guessing one of the classes."""
    axes.axhline(100 / classes, color=style.REFERENCE, linewidth=0.8, linestyle=(0, (1, 2)), gid="chance")
    axes.annotate(
        f"guessing: 1 of {classes} classes",
        (0, 100 / classes),
        xycoords=axes.get_yaxis_transform(),
        xytext=(3, -2),
        textcoords="offset points",
        va="top",
        color=style.REFERENCE,
        fontsize=6.5,
    )


def curves(axes: Axes, method: str, epochs: pd.DataFrame) -> None:
    colour = style.colour(method)
    if epochs.empty:
        return
    table = 100 * epochs.pivot(index="epoch", columns="seed", values="validation_accuracy")
    for seed in table.columns:
        axes.plot(table.index, table[seed], color=colour, linewidth=0.6, alpha=0.6, gid=f"seed:{method}:{seed}")
    complete = table.dropna()  # a mean over the survivors alone would jump where a run ends
    axes.plot(complete.index, complete.mean(axis="columns"), color=colour, gid=f"mean:{method}")


def legend(figure: Figure, methods: Iterable[str], *, paper_too: bool, markers: bool = True) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=style.colour(m),
            marker=style.marker(m) if markers else "",
            label=METHODS[m].title,
        )
        for m in methods
    ]
    if paper_too:
        handles.append(
            Line2D(
                [],
                [],
                color=style.REFERENCE,
                marker="o",
                markerfacecolor="none",
                markersize=7.5,
                linestyle="--",
                linewidth=0.8,
                label="paper (open), mean ± std, n = 3",
            )
        )
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def spread(cells: Iterable[Cell]) -> str:
    cells = list(cells)
    crosses = " Crosses: runs that diverged." if any(cell.diverged for cell in cells) else ""
    return f"{_SPREAD}, n = {counts(cells)} seeds.{crosses}"


def counts(cells: Iterable[Cell]) -> str:
    return between(cell.finished for cell in cells if cell.finished)


def between(numbers: Iterable[int]) -> str:
    """The smallest and the largest: 1 to 3, or 3."""
    found = sorted(numbers)
    return " to ".join(str(number) for number in dict.fromkeys((found[0], found[-1])))


def handle(colour: Any, label: str, **how: Any) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], color=colour, label=style.literal(label), **how)


def absent(cells: Mapping[str, Cell]) -> list[str]:
    """Notes on the cells that are not run, invalid or partly run, and on those by the kernel `mixed`."""
    parts = {
        status: [name for name, cell in cells.items() if cell.status == status]
        for status in ("not run", "invalid")
    }
    parts["partly run"] = [
        f"{name} ({cell.finished} of {len(cell.seeds)} seeds)"
        for name, cell in cells.items()
        if cell.status == "partial"
    ]
    return [f"{status}: {', '.join(names)}" for status, names in parts.items() if names] + kernel_notes(cells)


def labelled(cells: Mapping[CellKey, Cell]) -> dict[str, Cell]:
    """Cells by label; a depth at which no method was run has one label for all methods."""
    depths: dict[tuple[str, int], list[CellKey]] = {}
    for key in cells:
        depths.setdefault(key[:2], []).append(key)
    labelled = {}
    for (dataset, depth), keys in depths.items():
        if all(cells[key].status == "not run" for key in keys):
            labelled[place_label(dataset, depth)] = cells[keys[0]]
        else:
            labelled |= {cell_label(key): cells[key] for key in keys}
    return labelled
