"""The list of all tables and figures, in the order of the report, for the workflow, report and command line.

Imports neither pandas nor matplotlib, since the workflow imports this module whenever it parses.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from highways.experiments import relaxations
from highways.experiments.plan import plan
from highways.experiments.readings import finalists
from highways.experiments.relaxations import flat
from highways.experiments.runs import Config, Run
from highways.propagation.spec import Propagation
from highways.specs.fields import SpecError

ENDINGS = {"table": (".csv", ".md", ".html", ".tex"), "figure": (".png", ".pdf")}


def nothing(config: Config) -> tuple[()]:
    return ()


def _finalist_runs(config: Config) -> list[Run]:
    return [run for _, variants in finalists(config) for variant in variants for run in variant.runs]


@dataclass(frozen=True)
class Item:
    """One table or figure: kind and name are those of `highways table` and `highways figure`.

    text: what the item shows; also the alternative text of a figure.
    make: the function that makes it, as module.function of this package. It is called with a configuration
        and a folder: that of the traces if `traces` is given, else that of the runs.
    place: label and section of its counterpart in the paper; empty without one.
    experiment: the experiment that it shows; a configuration without that has no such item.
    runs: the runs that it uses, by default all of its experiment. traces: those it uses, by default none.
    """

    kind: str
    name: str
    title: str
    text: str
    make: str
    place: str = ""
    experiment: str = ""
    runs: Callable[[Config], Iterable[Run]] | None = None
    traces: Callable[[Config], Iterable[Propagation]] = nothing

    @property
    def command(self) -> str:
        return f"snakemake {self.kind}_{self.name}"

    @property
    def files(self) -> list[str]:
        """Its files below the folder of results."""
        return [f"{self.kind}s/{self.name}{ending}" for ending in ENDINGS[self.kind]]

    @property
    def function(self) -> Callable[..., Any]:
        module, _, name = self.make.rpartition(".")
        found: Callable[..., Any] = getattr(import_module(f"highways.analysis.{module}"), name)
        return partial(found, self.experiment) if self.make in _OF_ANY else found

    def runs_of(self, config: Config) -> list[Run]:
        """The runs that it is made from, each once."""
        if self.runs is not None:
            return list(self.runs(config))
        asked = (run for variant in plan(config).of(self.experiment) for run in (*variant.runs, *variant.beyond))
        return list({run.path: run for run in asked}.values())

    def of(self, config: Config) -> bool:
        """Whether a configuration asks for it."""
        if self.traces is not nothing:
            return config["propagation"] is not None
        return bool(plan(config).of(self.experiment))


_OF_ANY = ("tables.experiment.experiment_table", "figures.experiment.experiment_figure")

PAPER = (
    Item(
        "figure",
        "propagation",
        "How far the output error travels",
        "Heat maps of the rms error over step and layer. Under vanilla PC and μPC a front moves down one layer "
        "per step and weakens on its way; under HEP every layer with a highway has an error at once.",
        "figures.propagation.propagation",
        place="fig:energy-propagation, section 3",
        traces=flat(partial(relaxations.panels, optimizer="gd")),
    ),
    Item(
        "figure",
        "architecture",
        "The error highways",
        "A row of layers between a clamped image and a clamped label: predictions go up, errors go back one layer "
        "per step, and highways reach from the output error to the hidden layers.",
        "figures.architecture.architecture",
        place="fig:hep_diagram, section 4",
        experiment="depth",
        runs=nothing,
    ),
    Item(
        "table",
        "depth",
        "Accuracy against depth",
        "Every cell of the paper's table beside ours.",
        "tables.accuracy.accuracy_versus_depth",
        place="tab:depth_best, section 6",
        experiment="depth",
    ),
    Item(
        "figure",
        "depth",
        "Accuracy against depth",
        "Test accuracy over depth for vanilla PC, HEP and BP on both data sets, ours filled and the paper's open. "
        "Vanilla PC falls from depth 8 on.",
        "figures.accuracy.accuracy_versus_depth",
        place="tab:depth_best, section 6",
        experiment="depth",
    ),
    Item(
        "figure",
        "strength",
        "Highway strength",
        "Test accuracy of HEP over the highway strength α.",
        "figures.accuracy.strength",
        place="fig:alpha-sweep, section 6",
        experiment="strength",
    ),
    Item(
        "table",
        "density",
        "Highway density",
        "A highway on every k-th layer only.",
        "tables.accuracy.density",
        place="tab:everyk, section 6",
        experiment="density",
    ),
    Item(
        "figure",
        "density",
        "Highway density",
        "Test accuracy of HEP over the spacing k of the highways.",
        "figures.accuracy.density",
        place="tab:everyk, section 6",
        experiment="density",
    ),
    Item(
        "figure",
        "propagation_adam",
        "How far the error travels under Adam",
        "The heat maps of the first figure with Adam on the states: the front moves faster, and the errors differ "
        "less over depth.",
        "figures.propagation.propagation_adam",
        place="fig:energy-propagation-adam-stable, appendix A",
        traces=flat(partial(relaxations.panels, optimizer="adam_1e-2")),
    ),
    Item(
        "figure",
        "convergence",
        "Energy of some layers under gradient descent",
        "Energy over steps: layers near the output level off, those below are still climbing at the end.",
        "figures.propagation.convergence_gd",
        place="fig:energy-convergence-gd, appendix A",
        traces=flat(partial(relaxations.panels, optimizer="gd")),
    ),
    Item(
        "figure",
        "convergence_adam",
        "Energy of some layers under Adam",
        "Energy over steps under Adam: the layers of HEP level off.",
        "figures.propagation.convergence_adam",
        place="fig:energy-convergence-adam, appendix A",
        traces=flat(partial(relaxations.panels, optimizer="adam_1e-2")),
    ),
    Item(
        "table",
        "optimizer",
        "Error by layer and optimizer",
        "The paper's table in both networks.",
        "tables.propagation.optimizer_table",
        place="tab:energy-propagation-optimizer, appendix A",
        traces=flat(relaxations.optimizer_columns),
    ),
    Item(
        "table",
        "settings",
        "Settings",
        "What the paper states, and ours.",
        "tables.settings.settings",
        place="appendix B",
        experiment="depth",
        runs=nothing,
    ),
)

READINGS = (
    Item(
        "table",
        "conventions",
        "The readings that were tried",
        "Each reading, each cell, the distance to the paper.",
        "tables.conventions.conventions",
        experiment="conventions",
    ),
    Item(
        "table",
        "readings",
        "The main claim under every reading",
        "Vanilla PC and HEP under every reading at depth, their gap, and whether the main claim holds there.",
        "claims.curve.curve_table",
        experiment="readings",
    ),
    Item(
        "figure",
        "readings",
        "The gap between HEP and vanilla PC under every reading",
        "A column per reading, sorted by the gap: the gap of every seed, the paper's as a band, and below it the "
        "options of the reading as marks.",
        "claims.curve.curve_figure",
        experiment="readings",
    ),
    Item(
        "figure",
        "scales",
        "Size of the states over training",
        "Rms of every hidden state over epochs, a column per reading: where the output's input is normalised the "
        "states shrink.",
        "figures.layers.scales",
        experiment="conventions",
        runs=_finalist_runs,
    ),
    Item(
        "figure",
        "training",
        "Training",
        "Validation accuracy over epochs, a panel per data set and depth.",
        "figures.accuracy.training",
        experiment="depth",
    ),
)

ABLATIONS = (
    Item(
        "table",
        "kernels",
        "The kernels native and mixed",
        "Cells of the table by both kernels, and the difference of the means with its 95 % interval.",
        "claims.kernels.kernel_table",
        experiment="kernels",
    ),
    Item(
        "table",
        "ablations",
        "What the highways add",
        "DFA with the same matrices, HEP without the chain, and more.",
        "tables.ablations.ablations",
        experiment="ablations",
    ),
    Item(
        "table",
        "rates",
        "The learning rate in multiples of the printed one",
        "Accuracy at 1, 2, 4 and 8 times the printed rate, and how far validation accuracy falls below its best.",
        "figures.rates.rate_table",
        experiment="rates",
    ),
    Item(
        "figure",
        "rates",
        "Accuracy against the learning rate",
        "Test accuracy of vanilla PC and HEP over multiples of the printed rate, a panel per data set and depth; "
        "the bands are the paper's.",
        "figures.rates.rate_figure",
        experiment="rates",
    ),
    Item(
        "figure",
        "gradients",
        "Direction of the weight steps",
        "Cosine of every matrix's step to that of backprop, before and after training, for PC, HEP and DFA.",
        "figures.layers.gradients",
        experiment="ablations",
    ),
)

BASELINES = (
    Item(
        "table",
        "baselines",
        "The baselines on one benchmark",
        "Every method with one budget of tuning: accuracy, processor time, extra parameters, and whether it is "
        "local. Methods whose network has forward skips stand in a block of their own.",
        "tables.baselines.baseline_table",
        experiment="baselines",
    ),
    Item(
        "figure",
        "baselines",
        "The baselines against depth",
        "Test accuracy of every method over depth, a panel per family, with BP and vanilla PC in grey in each: "
        "methods that compute the steps of backpropagation, methods with feedback matrices, predictive coding, "
        "and networks with forward skips.",
        "figures.baselines.baseline_accuracies",
        experiment="baselines",
    ),
    Item(
        "figure",
        "baseline_gradients",
        "Direction of the steps of each method",
        "Cosine of every matrix's step to that of backprop, a panel per method: dashed before training, solid "
        "after it. A method that computes the steps of backpropagation lies at 1.",
        "figures.baselines.baseline_gradients",
        experiment="baselines",
    ),
    Item(
        "table",
        "predictions",
        "What we expected",
        "Predictions written down before any baseline was run, judged as the claims of the paper are.",
        "claims.predictions.predictions",
        experiment="baselines",
    ),
)

PROPAGATION = (
    Item(
        "figure",
        "transient",
        "The law of the transient",
        "The first error of each layer lies on a line: the backprop error times a power of the step size.",
        "figures.propagation.transient",
        traces=flat(relaxations.arrivals),
    ),
    Item(
        "figure",
        "steady",
        "The steady state",
        "The error of each layer after the last step, beside that at rest: the product of Jacobians.",
        "figures.propagation.steady",
        traces=flat(relaxations.settled),
    ),
    Item(
        "figure",
        "propagation_training",
        "During training",
        "The heat maps of PC and HEP at some epochs of training.",
        "figures.propagation.during_training",
        traces=flat(relaxations.training_moments),
    ),
    Item(
        "figure",
        "propagation_methods",
        "All methods",
        "The heat maps of every method on one network; a method without relaxation has its errors at once.",
        "figures.propagation.by_method",
        traces=flat(relaxations.by_method),
    ),
    Item(
        "figure",
        "floor",
        "What of the floor is rounding",
        "The error of each layer in single precision, in double precision, and in a form without rounding of the "
        "states.",
        "figures.propagation.floor",
        traces=flat(relaxations.arithmetics),
    ),
    Item(
        "table",
        "adam_steps",
        "Adam at other step sizes",
        "The step sizes that give the paper's two Adam columns.",
        "tables.propagation.step_table",
        traces=flat(relaxations.step_sizes),
    ),
)

SECTIONS = {
    "The paper's tables and figures": PAPER,
    "The readings of the paper": READINGS,
    "Ablations": ABLATIONS,
    "The baselines": BASELINES,
    "Signal propagation beyond the paper": PROPAGATION,
}


_NAMED = {(item.kind, item.name): item for items in SECTIONS.values() for item in items}
OWN = "Your experiments"
_ROWS_OF_A_FIGURE = 60


def sections(config: Config) -> dict[str, list[Item]]:
    """The tables and figures that a configuration asks for, under their headings.

    Each experiment has a table of its name, and a figure unless it has over _ROWS_OF_A_FIGURE variants.
    """
    found = {heading: [item for item in items if item.of(config)] for heading, items in SECTIONS.items()}
    headings = {item.experiment: heading for heading, items in SECTIONS.items() for item in items}
    own: list[Item] = []
    for block in config["experiments"]:
        name = block["name"]
        for item in _of_block(name, block.get("title", name)):
            if (item.kind, name) not in _NAMED and not (item.kind == "figure" and _too_many(config, name)):
                found.get(headings.get(name, OWN), own).append(item)
    return {heading: items for heading, items in {OWN: own, **found}.items() if items}


def _of_block(name: str, title: str) -> tuple[Item, Item]:
    table, figure = _OF_ANY
    return (
        Item("table", name, title, "A row per method and setting, a column per place.", table, experiment=name),
        Item("figure", name, title, "Test accuracy of every method.", figure, experiment=name),
    )


def _too_many(config: Config, experiment: str) -> bool:
    """Whether an experiment has more variants than a figure can show."""
    return len(plan(config).of(experiment)) > _ROWS_OF_A_FIGURE


def items(config: Config) -> dict[tuple[str, str], Item]:
    """The tables and figures that a configuration asks for, by kind and name."""
    return {(item.kind, item.name): item for own in sections(config).values() for item in own}


def item(config: Config, kind: str, name: str) -> Item:
    """The table or figure of that name; SpecError, which lists the known names, where it does not exist."""
    found = items(config)
    if (kind, name) not in found:
        raise SpecError(f"{kind}: {name!r} does not exist; it takes {', '.join(n for k, n in found if k == kind)}")
    return found[kind, name]
