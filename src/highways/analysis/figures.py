"""The paper's figures, and the training curves behind them, with the published values drawn as references."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from highways import paper
from highways.analysis import style
from highways.analysis.cells import Cell, CellKey, density_cells, depth_cells, strength_cells
from highways.analysis.frame import curves
from highways.analysis.notes import DATASET_TITLES, cell_label
from highways.methods import METHODS
from highways.record import RecordError
from highways.runs import Config, table_runs

_CHANCE = 10.0  # all data sets have ten classes
_PERCENT = (0, 103)  # room for the marker of a run near 100
_ACCURACY = "Test accuracy (%)"
_SPREAD = "Small points: one per seed. Large markers and bars: mean ± sample std (ddof = 1)"


class NothingRun(RecordError):  # noqa: N818
    """None of the runs of a figure has a usable record; the message names the target that makes them."""


def strength(config: Config, folder: Path) -> Figure:
    """Test accuracy against the highway strength alpha."""
    sweep = config["strength_sweep"]
    dataset, depth = sweep["dataset"], sweep["depth"]
    cells = strength_cells(config, folder)
    _demand("strength", cells.values())
    chosen = next(float(row["alpha"]) for row in config["settings"] if row["depth"] == depth)
    figure, (axes,) = _panels(1, 1, (5.0, 3.2))
    axes.set(
        xscale="log",
        ylim=_PERCENT,
        xlabel="Highway strength α",
        ylabel=_ACCURACY,
        title=f"{DATASET_TITLES[dataset]}, depth L = {depth}: highway strength",
    )
    _chance(axes)
    axes.axvline(chosen, color=style.REFERENCE, linewidth=0.9, linestyle=":", gid="chosen")
    axes.annotate(
        f"α = {chosen:g} in the table",
        (chosen, 0.2),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, 0),
        textcoords="offset points",
        color=style.REFERENCE,
        fontsize=7,
    )
    _series(axes, "hep", cells)
    printed = {
        row.alpha: value
        for row in paper.settings()
        if row.depth == depth and (value := paper.accuracy(dataset, depth, "hep"))
    }
    _published(axes, "hep", printed)
    _legend(figure, ["hep"], paper_too=bool(printed))
    named = {f"α = {alpha:g}": cell for alpha, cell in cells.items()}
    style.finish(figure, [_spread(cells.values()), *_absent(named)])
    return figure


def density(config: Config, folder: Path) -> Figure:
    """Test accuracy against the spacing k of the highways."""
    sweep = config["density_sweep"]
    dataset, depth = sweep["dataset"], sweep["depth"]
    cells = density_cells(config, folder)
    _demand("density", cells.values())
    figure, (axes,) = _panels(1, 1, (4.2, 3.0))
    axes.set(
        xlabel="A highway on every k-th hidden layer: k",
        ylabel=_ACCURACY,
        title=f"{DATASET_TITLES[dataset]}, depth L = {depth}: highway density",
    )
    _series(axes, "hep", {float(k): cell for k, cell in cells.items()})
    printed = {
        float(k): value for k in paper.spacings(dataset, depth) if (value := paper.density(dataset, depth, k))
    }
    _published(axes, "hep", printed)
    axes.set_xticks(sorted({*cells, *printed}))
    _legend(figure, ["hep"], paper_too=bool(printed))
    named = {f"k = {k}": cell for k, cell in cells.items()}
    style.finish(figure, [_spread(cells.values()), *_absent(named)])
    return figure


def accuracy_versus_depth(config: Config, folder: Path) -> Figure:
    """Test accuracy against depth, one panel per data set."""
    cells = depth_cells(config, folder)
    _demand("depth", cells.values())
    datasets, methods = config["datasets"], config["methods"]
    figure, panels = _panels(1, len(datasets), (max(4.0, 3.5 * len(datasets)), 3.1))
    ticks = sorted({*config["depths"], *(n for dataset in datasets for n in paper.depths(dataset))})
    for axes, dataset in zip(panels, datasets, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(depth) for depth in ticks])
        axes.minorticks_off()
        axes.set(ylim=_PERCENT, xlabel="Depth L (weight matrices)", title=f"{DATASET_TITLES[dataset]}, by depth")
        _chance(axes)
        for position, method in enumerate(methods):
            # Methods stand side by side: at small depth their accuracies coincide.
            shift = 2 ** (0.12 * (position - (len(methods) - 1) / 2))
            column = {n * shift: cells[dataset, n, method] for n in config["depths"]}
            _series(axes, method, column)
            printed = {
                n * shift: value for n in paper.depths(dataset) if (value := paper.accuracy(dataset, n, method))
            }
            _published(axes, method, printed)
    panels[0].set_ylabel(_ACCURACY)
    _legend(figure, methods, paper_too=any(paper.depths(dataset) for dataset in datasets))
    style.finish(figure, [_spread(cells.values()), *_absent(_labelled(cells))])
    return figure


def training(config: Config, folder: Path) -> Figure:
    """Validation accuracy per epoch, one panel per data set and depth; of a swept method the chosen rate."""
    cells = depth_cells(config, folder)
    _demand("training", cells.values())
    epochs = curves({run.path: run for run in table_runs(config)}, folder)
    datasets, methods = config["datasets"], config["methods"]
    run = {depth for (_, depth, _), cell in cells.items() if cell.finished}
    depths = [depth for depth in config["depths"] if depth in run]
    size = (max(3.4, 1.75 * len(depths) + 0.6), 1.6 * len(datasets) + 0.7)
    figure, panels = _panels(len(datasets), len(depths), size)
    places = [(dataset, depth) for dataset in datasets for depth in depths]
    for axes, (dataset, depth) in zip(panels, places, strict=True):
        axes.set(ylim=_PERCENT, title=f"{DATASET_TITLES[dataset]}\nL = {depth}")
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        for method in methods:
            _curves(axes, method, epochs[epochs["path"].isin(cells[dataset, depth, method].records)])
        if not axes.lines:
            axes.annotate(
                "no usable record", (0.5, 0.5), xycoords="axes fraction", ha="center", color=style.REFERENCE
            )
    for axes in panels[:: len(depths)]:
        axes.set_ylabel("Validation\naccuracy (%)")
    for axes in panels[-len(depths) :]:
        axes.set_xlabel("Epoch")
    _legend(figure, methods, paper_too=False, markers=False)
    spread = f"Thin: one line per seed. Bold: their mean, while all of them last; n = {_counts(cells.values())}."
    style.finish(figure, [spread, *_absent(_labelled(cells))])
    return figure


def _panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    return figure, list(grid.flat)


def _demand(name: str, cells: Iterable[Cell]) -> None:
    if not any(cell.finished for cell in cells):
        raise NothingRun(f"figure {name}: none of its runs has a usable record; run the target figure_{name}")


def _series(axes: Axes, method: str, cells: Mapping[float, Cell]) -> None:
    """Each seed as a point, mean and spread, and a cross at the bottom for every run that diverged."""
    colour = style.colour(method)
    seeds = [(x, value) for x, cell in cells.items() for value in cell.accuracies.values()]
    axes.plot(
        [x for x, _ in seeds],
        [value for _, value in seeds],
        ".",
        color=colour,
        alpha=0.5,
        gid=f"seeds:{method}",
    )
    run = {x: cell for x, cell in cells.items() if cell.n}
    bars = axes.errorbar(
        list(run),
        [cell.mean or 0.0 for cell in run.values()],
        yerr=[cell.std or 0.0 for cell in run.values()],
        color=colour,
        marker=style.marker(method),
        capsize=2,
        elinewidth=1,
    )
    bars.lines[0].set_gid(f"mean:{method}")
    diverged = [x for x, cell in cells.items() for _ in cell.diverged]
    axes.plot(
        diverged,
        [0.02] * len(diverged),
        "x",
        color=colour,
        transform=axes.get_xaxis_transform(),
        gid=f"diverged:{method}",
    )


def _published(axes: Axes, method: str, printed: Mapping[float, paper.Published]) -> None:
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


def _chance(axes: Axes) -> None:
    axes.axhline(_CHANCE, color=style.REFERENCE, linewidth=0.8, linestyle=(0, (1, 2)), gid="chance")
    axes.annotate(
        "guessing: 1 of 10 classes",
        (0, _CHANCE),
        xycoords=axes.get_yaxis_transform(),
        xytext=(3, -2),
        textcoords="offset points",
        va="top",
        color=style.REFERENCE,
        fontsize=6.5,
    )


def _curves(axes: Axes, method: str, epochs: pd.DataFrame) -> None:
    colour = style.colour(method)
    if epochs.empty:
        return
    table = 100 * epochs.pivot(index="epoch", columns="seed", values="validation_accuracy")
    for seed in table.columns:
        axes.plot(table.index, table[seed], color=colour, linewidth=0.6, alpha=0.6, gid=f"seed:{method}:{seed}")
    complete = table.dropna()  # a mean over the survivors alone would jump where a run ends
    axes.plot(complete.index, complete.mean(axis="columns"), color=colour, gid=f"mean:{method}")


def _legend(figure: Figure, methods: Iterable[str], *, paper_too: bool, markers: bool = True) -> None:
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


def _spread(cells: Iterable[Cell]) -> str:
    cells = list(cells)
    crosses = " Crosses: runs that diverged." if any(cell.diverged for cell in cells) else ""
    return f"{_SPREAD}, n = {_counts(cells)} seeds.{crosses}"


def _counts(cells: Iterable[Cell]) -> str:
    counts = sorted({cell.finished for cell in cells if cell.finished})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))


def _absent(cells: Mapping[str, Cell]) -> list[str]:
    """What the figure lacks, in small print."""
    parts = {
        status: [name for name, cell in cells.items() if cell.status == status]
        for status in ("not run", "invalid")
    }
    parts["partly run"] = [
        f"{name} ({cell.finished} of {len(cell.seeds)} seeds)"
        for name, cell in cells.items()
        if cell.status == "partial"
    ]
    return [f"{status}: {', '.join(names)}" for status, names in parts.items() if names]


def _labelled(cells: Mapping[CellKey, Cell]) -> dict[str, Cell]:
    """Cells by label; a depth at which no method was run is one label."""
    depths: dict[tuple[str, int], list[CellKey]] = {}
    for key in cells:
        depths.setdefault(key[:2], []).append(key)
    labelled = {}
    for (dataset, depth), keys in depths.items():
        if all(cells[key].status == "not run" for key in keys):
            labelled[f"{DATASET_TITLES[dataset]} L={depth}"] = cells[keys[0]]
        else:
            labelled |= {cell_label(key): cells[key] for key in keys}
    return labelled


FIGURES: dict[str, Callable[[Config, Path], Figure]] = {
    "strength": strength,
    "density": density,
    "depth": accuracy_versus_depth,
    "training": training,
}
