"""Figures of what the layers do over training, from the diagnostics of the records."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from highways.analysis import drawing, style
from highways.analysis.cells import cells_at
from highways.analysis.frame import layers
from highways.analysis.notes import DATASET_TITLES
from highways.controls import Arm, gradient_arms
from highways.runs import Config, cell_runs


def gradients(config: Config, folder: Path) -> Figure:
    """The cosine of every matrix's gradient to that of backprop, before and after training, per place."""
    drawn = gradient_arms(config)
    cells = {arm: cells_at(arm.config, folder, [arm.cell])[arm.cell] for arm in drawn}
    drawing.demand("gradients", cells.values())
    places = list(dict.fromkeys(arm.cell[:2] for arm in drawn))
    figure, panels = drawing.panels(len(places), 2, (6.4, 2.2 * len(places) + 0.5))
    for row, place in enumerate(places):
        for column, moment in enumerate(("before training", "after training")):
            axes = panels[2 * row + column]
            axes.set(ylim=(-0.3, 1.05), title=f"{DATASET_TITLES[place[0]]}, L = {place[1]}: {moment}")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.axhline(0, color=style.REFERENCE, linewidth=0.8)
            for arm in drawn:
                if arm.cell[:2] == place:
                    _cosines(axes, arm, folder, last=column == 1)
        panels[2 * row].set_ylabel("Cosine to backprop")
    for axes in panels[-2:]:
        axes.set_xlabel("Matrix W_l: l")
    drawing.legend(figure, list(dict.fromkeys(arm.cell[2] for arm in drawn)), paper_too=False, markers=False)
    style.finish(
        figure,
        [
            "Thin: one line per seed. Bold: their mean. On one batch of training images, at the weights that each "
            "method has reached. A matrix whose gradient is zero has no cosine."
        ],
    )
    return figure


def _cosines(axes: Axes, arm: Arm, folder: Path, *, last: bool) -> None:
    """One line per seed, and their mean, at the first or the last moment of the records."""
    frame = layers({run.path: run for run in cell_runs(arm.config, *arm.cell)}, folder)
    frame = frame[frame["quantity"] == "backprop_cosine"]
    moment = frame.groupby("seed")["epoch"].transform("max" if last else "min")
    table = frame[frame["epoch"] == moment].pivot(index="layer", columns="seed", values="value")
    colour = style.colour(arm.cell[2])
    for seed in table.columns:
        axes.plot(table.index, table[seed], color=colour, linewidth=0.5, alpha=0.6, gid=f"seed:{arm.name}:{seed}")
    if not table.empty:
        axes.plot(table.index, table.mean(axis="columns"), color=colour, gid=f"mean:{arm.name}")
