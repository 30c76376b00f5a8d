"""The paper's figures, and the training curves behind them, with the published values drawn as references."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from highways import paper
from highways.analysis.data.cells import density_cells, depth_cells, strength_cells
from highways.analysis.data.frame import curves
from highways.analysis.data.notes import DATASET_TITLES, units_note
from highways.analysis.figures import drawing, style
from highways.experiments.own_data import classes_of
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config, depth_settings


def strength(config: Config, folder: Folder) -> Figure:
    """Test accuracy against the highway strength alpha."""
    first = plan(config).of("strength")[0]
    dataset, depth = first.place
    cells = strength_cells(config, folder)
    drawing.demand("strength", cells.values())
    chosen = depth_settings(config, depth).get("alpha")
    figure, (axes,) = drawing.panels(1, 1, (5.0, 3.2))
    axes.set(
        xscale="log",
        ylim=drawing.PERCENT,
        xlabel="Highway strength α",
        ylabel=drawing.ACCURACY,
        title=f"{DATASET_TITLES[dataset]}, depth L = {depth}: highway strength{drawing.length(first)}",
    )
    drawing.chance(axes, classes_of(config, dataset))
    if chosen is not None:
        axes.axvline(chosen, color=style.REFERENCE, linewidth=0.9, linestyle=":", gid="chosen")
        axes.annotate(
            f"α = {chosen:g} in the table",
            (chosen, 0.02),  # below chance, where the fewest points are
            xycoords=axes.get_xaxis_transform(),
            xytext=(3, 0),
            textcoords="offset points",
            color=style.REFERENCE,
            fontsize=7,
        )
    drawing.series(axes, "hep", cells)
    printed = {
        row.alpha: value
        for row in paper.settings()
        if row.depth == depth and (value := paper.accuracy(dataset, depth, "hep"))
    }
    drawing.published(axes, "hep", printed)
    drawing.legend(figure, ["hep"], paper_too=bool(printed))
    named = {f"α = {alpha:g}": cell for alpha, cell in cells.items()}
    style.finish(figure, [drawing.spread(cells.values()), *units_note(config), *drawing.absent(named)])
    return figure


def density(config: Config, folder: Folder) -> Figure:
    """Test accuracy against the spacing k of the highways."""
    first = plan(config).of("density")[0]
    dataset, depth = first.place
    cells = density_cells(config, folder)
    drawing.demand("density", cells.values())
    figure, (axes,) = drawing.panels(1, 1, (4.2, 3.0))
    axes.set(
        xlabel="A highway on every k-th hidden layer: k",
        ylabel=drawing.ACCURACY,
        title=f"{DATASET_TITLES[dataset]}, depth L = {depth}: highway density{drawing.length(first)}",
    )
    drawing.series(axes, "hep", {float(k): cell for k, cell in cells.items()})
    printed = {
        float(k): value for k in paper.spacings(dataset, depth) if (value := paper.density(dataset, depth, k))
    }
    drawing.published(axes, "hep", printed)
    axes.set_xticks(sorted({*cells, *printed}))
    drawing.legend(figure, ["hep"], paper_too=bool(printed))
    named = {f"k = {k}": cell for k, cell in cells.items()}
    style.finish(figure, [drawing.spread(cells.values()), *drawing.absent(named)])
    return figure


def accuracy_versus_depth(config: Config, folder: Folder) -> Figure:
    """Test accuracy against depth, one panel per data set."""
    cells = depth_cells(config, folder)
    drawing.demand("depth", cells.values())
    datasets, depths, methods = drawing.axes_of(cells)
    figure, panels = drawing.panels(1, len(datasets), (max(4.0, 3.5 * len(datasets)), 3.1))
    ticks = sorted({*depths, *(n for dataset in datasets for n in paper.depths(dataset))})
    for axes, dataset in zip(panels, datasets, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(depth) for depth in ticks])
        axes.minorticks_off()
        axes.set(
            ylim=drawing.PERCENT, xlabel="Depth L (weight matrices)", title=f"{DATASET_TITLES[dataset]}, by depth"
        )
        drawing.chance(axes, classes_of(config, dataset))
        for position, method in enumerate(methods):
            # Methods stand side by side: at small depth their accuracies coincide.
            shift = 2 ** (0.12 * (position - (len(methods) - 1) / 2))
            column = {n * shift: cells[dataset, n, method] for n in depths if (dataset, n, method) in cells}
            drawing.series(axes, method, column)
            printed = {
                n * shift: value for n in paper.depths(dataset) if (value := paper.accuracy(dataset, n, method))
            }
            drawing.published(axes, method, printed)
    panels[0].set_ylabel(drawing.ACCURACY)
    drawing.legend(figure, methods, paper_too=any(paper.depths(dataset) for dataset in datasets))
    style.finish(figure, [drawing.spread(cells.values()), *drawing.absent(drawing.labelled(cells))])
    return figure


def training(config: Config, folder: Folder) -> Figure:
    """Validation accuracy per epoch, one panel per data set and depth; of a swept method the chosen rate."""
    cells = depth_cells(config, folder)
    drawing.demand("training", cells.values())
    epochs = curves({run.path: run for one in plan(config).of("depth") for run in one.runs}, folder)
    datasets, asked, methods = drawing.axes_of(cells)
    run = {depth for (_, depth, _), cell in cells.items() if cell.finished}
    depths = [depth for depth in asked if depth in run]
    size = (max(3.4, 1.75 * len(depths) + 0.6), 1.6 * len(datasets) + 0.7)
    figure, panels = drawing.panels(len(datasets), len(depths), size)
    places = [(dataset, depth) for dataset in datasets for depth in depths]
    for axes, (dataset, depth) in zip(panels, places, strict=True):
        axes.set(ylim=drawing.PERCENT, title=f"{DATASET_TITLES[dataset]}\nL = {depth}")
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        for method in methods:
            if (dataset, depth, method) in cells:
                records = cells[dataset, depth, method].records
                drawing.curves(axes, method, epochs[epochs["path"].isin(records)])
        drawing.say_if_empty(axes)
    for axes in panels[:: len(depths)]:
        axes.set_ylabel("Validation\naccuracy (%)")
    for axes in panels[-len(depths) :]:
        axes.set_xlabel("Epoch")
    drawing.legend(figure, methods, paper_too=False, markers=False)
    spread = (
        f"Thin: one line per seed. Bold: their mean, while all of them last; n = {drawing.counts(cells.values())}."
    )
    style.finish(figure, [spread, *drawing.absent(drawing.labelled(cells))])
    return figure
