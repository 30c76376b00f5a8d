"""The figures of signal propagation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from highways.analysis.data.propagation import NOT_RUN, Array, about, arrival, law, of_columns
from highways.analysis.figures import drawing, style
from highways.experiments import relaxations as plan
from highways.experiments.relaxations import PANELS, ROWS
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.methods import METHODS
from highways.propagation.trace import Trace

_FLOOR, _CEILING = 1e-17, 1.0
_COLOURS = colormaps["magma"].with_extremes(under="#202020", bad="#B8B8B8")
_LAYER = "Layer ℓ (0: first hidden, {}: output)"


def mean_errors(found: Sequence[Trace]) -> Array:
    """Rms error over steps and layers, (n, L), a mean over the seeds."""
    mean: Array = np.mean([trace.errors for trace in found], axis=0)
    return mean


def _demand(name: str, found: Iterable[Sequence[Trace]]) -> None:
    if not any(found):
        raise drawing.NothingRun(f"figure {name}: none of its traces is there; run the target figure_{name}")


def maps(name: str, optimizer: str) -> Callable[[Config, Folder], Figure]:
    """A function that draws the error over layers and steps: a row per network, a column per model."""

    def figure(config: Config, folder: Folder) -> Figure:
        found = of_columns(plan.panels(config, optimizer), folder)
        titles = [
            f"({letter}) {PANELS[column]}, {ROWS[row]}"
            for letter, (row, column) in zip("abcabc", found, strict=True)
        ]
        drawn = _maps(name, config, list(found.values()), titles, len(ROWS), (7.2, 4.6))
        n = drawing.between(len(seeds) for seeds in found.values() if seeds)
        chosen = plan.optimizers(config)[optimizer].title
        note = f"Optimizer of the states: {chosen}. Mean of the rms error over {n} seeds. {_GREY}"
        style.finish(drawn, about(config, note))
        return drawn

    return figure


_GREY = f"Light grey: the error is exactly 0. Dark grey: below {_FLOOR:g}."


def _map(axes: Axes, title: str, seeds: Sequence[Trace], steps: int) -> None:
    axes.set(title=title, xscale="log", xlim=(1, steps + 1))
    if not seeds:
        axes.annotate(NOT_RUN, (0.5, 0.5), xycoords="axes fraction", ha="center", color=style.REFERENCE)
        return
    times, errors = seeds[0].steps, mean_errors(seeds)
    edges = np.append(times[1:], steps + 1)  # the colour of a step lasts until the next recorded one
    layers = np.arange(errors.shape[1] + 1) - 0.5
    values = np.where(errors[1:] == 0, np.nan, errors[1:]).T
    axes.pcolormesh(
        edges, layers, values, norm=LogNorm(_FLOOR, _CEILING), cmap=_COLOURS, rasterized=True, gid="map"
    )
    axes.grid(visible=False)


def _maps(
    name: str,
    config: Config,
    found: Sequence[Sequence[Trace]],
    titles: Sequence[str],
    rows: int,
    size: tuple[float, float],
) -> Figure:
    """A grid of maps, one per list of seeds; NothingRun where all are empty."""
    _demand(name, found)
    depth = next(trace.errors.shape[1] for seeds in found for trace in seeds)
    columns = -(-len(found) // rows)
    figure, panels = drawing.panels(rows, columns, size, count=len(found))
    for axes, title, seeds in zip(panels, titles, found, strict=True):
        _map(axes, title, seeds, config["propagation"]["steps"])
    for axes in panels[::columns]:
        axes.set_ylabel(_LAYER.format(depth - 1))
    for axes in panels[-columns:]:
        axes.set_xlabel("Step")
    bar = ScalarMappable(LogNorm(_FLOOR, _CEILING), _COLOURS)
    figure.colorbar(bar, ax=list(panels), label="rms error", extend="min", shrink=0.7)
    return figure


def _positive(values: Array) -> Array:
    """The values with NaN for every one that is not positive, for logarithmic axes."""
    kept: Array = np.where(values > 0, values, np.nan)
    return kept


def convergence(name: str, optimizer: str) -> Callable[[Config, Folder], Figure]:
    """A function that draws the energy of some layers over the steps."""

    def figure(config: Config, folder: Folder) -> Figure:
        chosen = plan.optimizers(config)[optimizer]
        block = config["propagation"]
        found = of_columns(plan.panels(config, optimizer), folder)
        _demand(name, found.values())
        drawn, panels = drawing.panels(len(ROWS), len(PANELS), (7.2, 4.8))
        layers = sorted(block["layers"])
        shades = [colormaps["viridis"](i / max(1, len(layers) - 1)) for i in range(len(layers))]
        width = config["network"]["width"]
        for axes, ((row, column), seeds) in zip(panels, found.items(), strict=True):
            axes.set(title=f"{PANELS[column]}, {ROWS[row]}", xscale="log", yscale="log", ylim=(1e-34, 1e2))
            for layer, shade in zip(layers, shades, strict=True):
                units = 10 if layer == block["depth"] - 1 else width
                for trace in seeds:
                    energy = 0.5 * units * trace.errors[1:, layer] ** 2
                    axes.plot(
                        trace.steps[1:],
                        _positive(energy),
                        color=shade,
                        linewidth=0.8,
                        gid=f"layer:{layer}",
                    )
            drawing.say_if_empty(axes)
        for axes in panels[:: len(PANELS)]:
            axes.set_ylabel("Energy of the layer, ½‖ε‖²")
        for axes in panels[-len(PANELS) :]:
            axes.set_xlabel("Step")
        handles = [drawing.handle(shade, f"ℓ = {layer}") for layer, shade in zip(layers, shades, strict=True)]
        drawn.legend(handles=handles, loc="outside right upper")
        style.finish(
            drawn,
            about(
                config,
                f"Optimizer of the states: {chosen.title}. "
                "One line per seed and layer; a layer without energy has no line.",
            ),
        )
        return drawn

    return figure


def transient(config: Config, folder: Folder) -> Figure:
    """The first error of each layer under gradient descent, beside λ^(L-i) times the backprop error."""
    found = of_columns(plan.arrivals(config), folder)
    _demand("transient", found.values())
    drawn, panels = drawing.panels(1, len(found), (7.2, 2.9))
    size = config["propagation"]["step_size"]
    for axes, (network, seeds) in zip(panels, found.items(), strict=True):
        title = PANELS["mupc"] if network == "mupc" else f"{PANELS['pc']}, {ROWS[network]}"
        axes.set(title=title, yscale="log", xlabel="Layer ℓ")
        for trace in seeds:
            axes.plot(arrival(trace), ".", color=style.colour("pc"), markersize=3, gid="seed:measured")
            axes.plot(law(trace), color="black", linewidth=0.7, gid="seed:law")
            axes.plot(trace.backprop, color=style.colour("backprop"), linewidth=0.7, gid="seed:backprop")
        drawing.say_if_empty(axes)
    panels[0].set_ylabel("rms")
    handles = [
        drawing.handle(style.colour("pc"), "first error of the layer, measured", marker=".", linestyle=""),
        drawing.handle("black", "λ^(L-i) × backprop error"),
        drawing.handle(style.colour("backprop"), "backprop error"),
    ]
    drawn.legend(handles=handles, loc="outside upper center", ncols=3)
    style.finish(drawn, [f"Gradient descent with λ = {size:g}; untrained, one image. Lines: one per seed."])
    return drawn


def steady(config: Config, folder: Folder) -> Figure:
    """The errors after the last step beside those at rest: the product of Jacobians, with HEP's highways."""
    found = of_columns(plan.settled(config), folder)
    _demand("steady", found.values())
    drawn, panels = drawing.panels(4, len(PANELS), (7.2, 7.0))
    for axes, ((optimizer, row, column), seeds) in zip(panels, found.items(), strict=True):
        axes.set(
            title=f"{PANELS[column]}, {ROWS[row]}, {plan.optimizers(config)[optimizer].title}",
            yscale="log",
            ylim=(1e-26, 10),
        )
        axes.title.set_fontsize(7)
        for trace in seeds:
            axes.plot(
                _positive(trace.errors[-1]),
                color=style.colour("hep"),
                linewidth=0.9,
                gid="seed:measured",
            )
            axes.plot(trace.steady, color="black", linewidth=0.7, linestyle="--", gid="seed:steady")
        drawing.say_if_empty(axes)
    for axes in panels[:: len(PANELS)]:
        axes.set_ylabel("rms error")
    for axes in panels[-len(PANELS) :]:
        axes.set_xlabel("Layer ℓ")
    handles = [
        drawing.handle(style.colour("hep"), "after the last step"),
        drawing.handle("black", "at rest: e_i = J_i^T e_{i+1} - αV_i ε_L", linestyle="--"),
    ]
    drawn.legend(handles=handles, loc="outside upper center", ncols=2)
    style.finish(
        drawn,
        about(
            config,
            "Where both lines agree the states have settled. Jacobians at the states of the last step. "
            "One line per seed.",
        ),
    )
    return drawn


def during_training(config: Config, folder: Folder) -> Figure:
    """The error maps at some epochs of training: a row per method, a column per epoch."""
    during = config["propagation"]["during_training"]
    found = of_columns(plan.training_moments(config), folder)
    titles = [f"{METHODS[method].title}, epoch {epoch}" for method, epoch in found]
    size = (1.7 * len(during["epochs"]) + 1.0, 4.4)
    drawn = _maps("propagation_training", config, list(found.values()), titles, len(during["methods"]), size)
    note = (
        f"Depth {during['depth']}, the network that is trained, seed {during['seed']}; "
        f"gradient descent, step size {config['propagation']['step_size']:g}, one image. {_GREY}"
    )
    style.finish(drawn, [note])
    return drawn


def by_method(config: Config, folder: Folder) -> Figure:
    """The error maps of all methods on the untrained network of the paper."""
    found = of_columns(plan.by_method(config), folder)
    titles = [f"{METHODS[method].title}{_how(method)}" for method in found]
    drawn = _maps("propagation_methods", config, list(found.values()), titles, 2, (9.2, 5.4))
    note = (
        "The error that each layer would learn from, untrained; relaxation by gradient descent. A method without "
        f"it has its errors at once, by one sweep or by its own inference at its default settings. {_GREY}"
    )
    without = ", ".join(f"{METHODS[method].title} ({reason})" for method, reason in plan.left_out().items())
    style.finish(drawn, [note, *([f"Left out: {without}."] if without else [])])
    return drawn


def _how(method: str) -> str:
    """The end of a panel title: how a method without relaxation computes its errors; else empty."""
    entry = METHODS[method]
    if entry.inference:
        return ""
    own = () if entry.options is None else fields(entry.options)
    return "\n(after its own inference)" if any(field.name == "step_size" for field in own) else "\n(one sweep)"


def floor(config: Config, folder: Folder) -> Figure:
    """Vanilla PC under gradient descent in several arithmetics: how much of the floor is rounding."""
    found = of_columns(plan.arithmetics(config), folder)
    _demand("floor", found.values())
    drawn, panels = drawing.panels(1, len(ROWS), (6.4, 2.9))
    shades = dict(zip(plan.ARITHMETICS, ("#E69F00", "#0072B2", "black"), strict=True))
    for axes, row in zip(panels, ROWS, strict=True):
        axes.set(title=f"{PANELS['pc']}, {ROWS[row]}", yscale="log", xlabel="Layer ℓ")
        for name, shade in shades.items():
            for trace in found[row, name]:
                axes.plot(_positive(trace.errors[-1]), color=shade, linewidth=0.9, gid=f"seed:{name}")
        drawing.say_if_empty(axes)
    panels[0].set_ylabel("rms error after the last step")
    drawn.legend(
        handles=[drawing.handle(shade, name) for name, shade in shades.items()],
        loc="outside upper center",
        ncols=3,
    )
    style.finish(
        drawn,
        [
            "Gradient descent. No floor: the states are kept as deviations from the sweep, so that "
            "differences are never rounded away. Where a line ends the errors are exactly 0."
        ],
    )
    return drawn


propagation = maps("propagation", "gd")
propagation_adam = maps("propagation_adam", "adam_1e-2")
convergence_gd = convergence("convergence", "gd")
convergence_adam = convergence("convergence_adam", "adam_1e-2")
