"""Figure 1 of the paper, drawn from a spec: the layers, the clamped ones, and the paths of the error."""

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from highways.analysis.figures import drawing, style
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config, cell_spec
from highways.specs.run import RunSpec

_WIDTH, _HEIGHT = 0.62, 0.5
_SHOWN = 8  # weight matrices that fit in a column of a page


def architecture(config: Config, folder: Folder) -> Figure:
    """HEP in the first cell of the depth table with at least _SHOWN weight matrices, else in its last."""
    table = plan(config).of("depth")
    one = next((one for one in table if one.depth >= _SHOWN), table[-1])
    return draw(cell_spec(config, one.dataset, one.depth, "hep", 0))


def draw(spec: RunSpec) -> Figure:
    """The network of a spec; one of more than _SHOWN weight matrices has its middle left out."""
    depth = spec.network.depth
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axes = figure.subplots()
    shown = list(range(depth + 1)) if depth <= _SHOWN else [*range(4), None, *range(depth - 3, depth + 1)]
    places = {layer: float(x) for x, layer in enumerate(shown) if layer is not None}
    for x, layer in enumerate(shown):
        if layer is None:
            axes.text(x, 0, "⋯", ha="center", va="center", fontsize=14)
        else:
            _layer(axes, x, layer, depth)
    for left, right in pairwise(shown):
        x = shown.index(left)
        gap = (x + _WIDTH / 2, x + 1 - _WIDTH / 2)
        both = left is not None and right is not None
        _arrow(axes, (gap[0], 0.1), (gap[1], 0.1), style.REFERENCE, "prediction" if both else "")
        if right != 1:  # the input is clamped: no error moves it
            _arrow(axes, (gap[1], -0.12), (gap[0], -0.12), style.colour("pc"), "error" if both else "")
    for layer in spec.endpoints:
        if layer in places:
            bend = 0.28 + 0.02 * (depth - layer)
            start, end = (places[depth], _HEIGHT / 2), (places[layer], _HEIGHT / 2)
            _arrow(axes, start, end, style.colour("hep"), f"highway:{layer}", f"arc3,rad={bend:.2f}")
    axes.set(xlim=(-0.6, len(shown) - 0.4), ylim=(-0.7, 1.9))
    axes.set_axis_off()
    entries = (
        (style.REFERENCE, "prediction μ, one layer up"),
        (style.colour("pc"), "error ε, one layer back per step"),
        (style.colour("hep"), "highway αV: ε_L to the layers in S, at every step"),
    )
    handles = [drawing.handle(colour, label) for colour, label in entries]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    endpoints = f"S = {{{spec.endpoints[0]}, ..., {spec.endpoints[-1]}}}" if len(spec.endpoints) > 1 else "S"
    assert spec.highway is not None
    style.finish(
        figure,
        [
            f"L = {depth} weight matrices, width {spec.network.width}; {endpoints}, "
            f"k = {spec.highway.every}; α = {spec.highway.alpha:g}, V ~ N(0, {spec.highway.sigma_v:g}²).",
            "Grey boxes are clamped. There are no forward skips.",
        ],
    )
    return figure


def _layer(axes: Axes, x: float, layer: int, depth: int) -> None:
    clamped = layer in (0, depth)
    box = FancyBboxPatch(
        (x - _WIDTH / 2, -_HEIGHT / 2),
        _WIDTH,
        _HEIGHT,
        boxstyle="round,pad=0.02",
        facecolor="#D9D9D9" if clamped else "white",
        edgecolor="black",
        linewidth=0.9,
        gid=f"layer:{layer}",
    )
    axes.add_patch(box)
    name = "x" if layer == 0 else "y" if layer == depth else f"z$_{{{layer}}}$"
    axes.text(x, 0, name, ha="center", va="center", fontsize=10)
    if clamped:
        axes.text(x, -0.55, "image" if layer == 0 else "label", ha="center", fontsize=7, color=style.REFERENCE)


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    gid: str,
    bend: str = "arc3",
) -> None:
    arrow = FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=7, color=colour, connectionstyle=bend, linewidth=1.0, gid=gid
    )
    axes.add_patch(arrow)
