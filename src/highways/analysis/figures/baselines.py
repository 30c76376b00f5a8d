"""Figures of the baselines: accuracy against depth, and where the steps of each method point."""

import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from highways.analysis.data.cells import Cell
from highways.analysis.data.notes import DATASET_TITLES, label
from highways.analysis.figures import drawing, style
from highways.analysis.figures.layers import at_moment, of_cell
from highways.analysis.tables.baselines import Cells, baseline_cells, by_name, marks, skips
from highways.experiments.own_data import classes_of
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.experiments.variants import Variant

OTHERS, SKIPS = "Other methods", "With forward skips: another network"
REFERENCES = {"backprop": "-", "pc": "--"}
_COLUMNS = 4
_TICKS = (10, 50, 80, 90, 95, 97, 98)
_MOMENTS = {"before": "--", "after": "-"}  # line style before and after training
# The cosines drawn, with title and colour. The last two exist only for methods with a first phase.
_COSINES = {
    "backprop_cosine": ("step of the method to BP's", style.look(1).colour),
    "first_backprop_cosine": ("its first phase to BP's", style.look(3).colour),
    "first_cosine": ("its first phase to its second", style.look(4).colour),
}


def family(variant: Variant) -> str:
    """The panel of a baseline: the `family` of its row, or one common panel for those with forward skips."""
    return SKIPS if skips(variant) else str(variant.row.get("family", OTHERS))


def baseline_accuracies(config: Config, folder: Folder) -> Figure:
    """Test accuracy against depth on the first data set, a panel per family."""
    cells = _on_first_dataset(config, folder)
    drawing.demand("baselines", cells.values())
    lines = {next(iter(own)).name: own for own in by_name(cells)}
    references = {name: lines.pop(name) for name in REFERENCES if name in lines}
    named = [family(next(iter(own))) for own in lines.values()]
    order = [*(title for title in named if title not in (OTHERS, SKIPS)), OTHERS, SKIPS]
    families: dict[str, list[dict[Variant, Cell]]] = {title: [] for title in order}
    for own in lines.values():
        families[family(next(iter(own)))].append(own)
    shown = {title: members for title, members in families.items() if members}
    rows = -(-len(shown) // 2)
    figure, panels = drawing.panels(rows, 2, (7.2, 3.1 * rows + 0.3), count=len(shown), sharex=False)
    for axes, (title, members) in zip(panels, shown.items(), strict=True):
        _against_depth(axes, members, references)
        drawing.chance(axes, classes_of(config, _dataset(cells)))
        axes.set_title(title)
    for axes in panels[::2]:
        axes.set_ylabel(drawing.ACCURACY)
    handles = [
        drawing.handle(style.REFERENCE, label(next(iter(own))), linestyle=REFERENCES[name])
        for name, own in references.items()
    ]
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    notes = [
        f"{DATASET_TITLES[_dataset(cells)]}. {drawing.spread(cells.values())} Methods stand side by side. "
        "The axis is logarithmic in the error, 100 minus the accuracy."
    ]
    style.finish(figure, [*notes, *marks(cells), *drawing.absent(_named(cells))])
    return figure


def _on_first_dataset(config: Config, folder: Folder) -> dict[Variant, Cell]:
    """The cells on the first data set of the baselines, the only one that the figures show."""
    found = baseline_cells(config, folder)
    return {variant: cell for variant, cell in found.items() if variant.dataset == _dataset(found)}


def _dataset(found: Cells) -> str:
    return next(iter(found)).dataset


def _against_depth(axes: Axes, members: list[dict[Variant, Cell]], references: Mapping[str, Cells]) -> None:
    """One panel: the references in grey, and a line per method with its own legend."""
    depths = sorted({variant.depth for own in [*members, *references.values()] for variant in own})
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.minorticks_off()
    axes.set_xlim(depths[0] / 1.3, depths[-1] * 1.3)
    axes.set_xlabel("Depth L (weight matrices)")
    axes.set_yscale("function", functions=(_by_error, _from_error))
    axes.set_ylim(-30, 99)
    axes.set_yticks(_TICKS, [str(tick) for tick in _TICKS])
    for name, own in references.items():
        line = {one.depth: cell.mean for one, cell in own.items() if cell.mean is not None}
        axes.plot(
            list(line),
            list(line.values()),
            color=style.REFERENCE,
            linestyle=REFERENCES[name],
            linewidth=0.9,
            gid=f"reference:{name}",
        )
    handles = []
    for number, own in enumerate(members):
        first, shift = next(iter(own)), 2 ** (0.1 * (number - (len(members) - 1) / 2))
        look = style.look(number)
        drawing.series(axes, first.name, {one.depth * shift: cell for one, cell in own.items()}, look)
        handles.append(drawing.handle(look.colour, label(first), marker=look.marker))
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=7)


def _by_error(accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scale of the axis, -log10(100 - accuracy), which separates 95 from 97 as well as 10 from 50."""
    scaled: NDArray[np.float64] = -np.log10(np.maximum(100 - accuracy, 0.1))
    return scaled


def _from_error(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    accuracy: NDArray[np.float64] = 100 - 10**-scaled
    return accuracy


def _named(cells: Cells) -> dict[str, Cell]:
    """Cells by label; a method without any run has one label for all its depths."""
    named = {}
    for own in by_name(cells):
        first = next(iter(own))
        if all(cell.status == "not run" for cell in own.values()):
            named[label(first)] = own[first]
        else:
            named |= {f"{label(one)} L={one.depth}": cell for one, cell in own.items()}
    return named


def baseline_gradients(config: Config, folder: Folder) -> Figure:
    """The cosine of every matrix's step to that of backprop, before and after training, a panel per method."""
    cells = _on_first_dataset(config, folder)
    drawing.demand("baseline_gradients", cells.values())
    depth = common_depth(cells)
    run = [{one: cell for one, cell in own.items() if cell.finished} for own in by_name(cells)]
    shown = dict(_drawn(own, depth) for own in run if own)
    rows = -(-len(shown) // _COLUMNS)
    size = (7.4, 1.65 * rows + 0.6)
    figure, panels = drawing.panels(rows, _COLUMNS, size, count=len(shown), sharex=False)
    found = set()
    for axes, (variant, cell) in zip(panels, shown.items(), strict=True):
        found |= _cosines(axes, variant, cell, folder)
        axes.set_title(_title(variant, cell, depth), fontsize=7)
    for axes in panels[::_COLUMNS]:
        axes.set_ylabel("Cosine")
    for axes in panels[-_COLUMNS:]:
        axes.set_xlabel("Matrix W_l: l")
    handles = [drawing.handle(colour, title) for key, (title, colour) in _COSINES.items() if key in found]
    handles += [
        drawing.handle(style.REFERENCE, f"{moment} training", linestyle=line) for moment, line in _MOMENTS.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    notes = [
        f"{DATASET_TITLES[_dataset(cells)]}, L = {depth} unless the title says otherwise; in the titles test "
        "accuracy (%). Mean over the seeds, on one batch of training images, at the weights that each method has "
        "reached. A matrix whose step is zero has no cosine."
    ]
    style.finish(figure, [*notes, *marks(shown), *drawing.absent(_named(cells))])
    return figure


def common_depth(cells: Cells) -> int:
    """The largest depth with records of over half of its planned methods; else that with the most."""
    done: dict[int, list[bool]] = {}
    for variant, cell in cells.items():
        done.setdefault(variant.depth, []).append(cell.finished > 0)
    most = [depth for depth, found in done.items() if 2 * sum(found) > len(found)]
    return max(most) if most else max(done, key=lambda depth: sum(done[depth]))


def _drawn(own: Cells, depth: int) -> tuple[Variant, Cell]:
    """The cell of a method at that depth, else at its next lower one, else at its lowest."""
    depths = {variant.depth: variant for variant in own}
    here = max((found for found in depths if found <= depth), default=min(depths))
    return depths[here], own[depths[here]]


def _title(variant: Variant, cell: Cell, depth: int) -> str:
    other = "" if variant.depth == depth else f", L = {variant.depth}"
    accuracy = "" if cell.mean is None else f": {cell.mean:.1f}"
    return style.literal(textwrap.fill(f"{label(variant)}{other}{accuracy}", 28))


def _cosines(axes: Axes, variant: Variant, cell: Cell, folder: Folder) -> set[str]:
    """Draw the mean cosines before and after training; returns the keys of _COSINES that the records have."""
    axes.set_xlim(-1, variant.depth)  # what has no cosine shows as a gap
    axes.set_ylim(-1.08, 1.08)
    axes.set_yticks([-1, 0, 1])
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.axhline(0, color=style.REFERENCE, linewidth=0.8, gid="zero")
    frame = of_cell(cell, variant.runs, folder)
    found = set()
    for key, (_, colour) in _COSINES.items():
        kind = frame[frame["quantity"] == key]
        for moment, line in _MOMENTS.items():
            if not kind.empty:
                found.add(key)
                mean = at_moment(kind, last=moment == "after").mean(axis="columns")
                axes.plot(mean.index, mean, line, color=colour, linewidth=1.0, gid=f"{key}:{moment}")
    return found
