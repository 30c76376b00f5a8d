"""The order of the report: every artefact, with where its like stands in the paper, and what it shows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """One table or figure: kind and name are those of `highways table` and `highways figure`.

    place: of its like in the paper; empty for what goes beyond it.
    text: what to see; for a figure it is the alternative text.
    """

    kind: str
    name: str
    title: str
    text: str
    place: str = ""

    @property
    def command(self) -> str:
        return f"snakemake {self.kind}_{self.name}"


PAPER = (
    Item(
        "figure",
        "propagation",
        "How far the output error travels",
        "Heat maps of the rms error over step and layer. Under vanilla PC and μPC a front moves down one layer "
        "per step and weakens on its way; under HEP every layer with a highway has an error at once.",
        "fig:energy-propagation, section 3",
    ),
    Item(
        "figure",
        "architecture",
        "The error highways",
        "A row of layers between a clamped image and a clamped label: predictions go up, errors go back one layer "
        "per step, and highways reach from the output error to the hidden layers.",
        "fig:hep_diagram, section 4",
    ),
    Item(
        "table",
        "depth",
        "Accuracy against depth",
        "Every cell of the paper's table beside ours.",
        "tab:depth_best, section 6",
    ),
    Item(
        "figure",
        "depth",
        "Accuracy against depth",
        "Test accuracy over depth for vanilla PC, HEP and BP on both data sets, ours filled and the paper's open. "
        "Vanilla PC falls from depth 8 on.",
        "tab:depth_best, section 6",
    ),
    Item(
        "figure",
        "strength",
        "Highway strength",
        "Test accuracy of HEP over the highway strength α.",
        "fig:alpha-sweep, section 6",
    ),
    Item("table", "density", "Highway density", "A highway on every k-th layer only.", "tab:everyk, section 6"),
    Item(
        "figure",
        "density",
        "Highway density",
        "Test accuracy of HEP over the spacing k of the highways.",
        "tab:everyk, section 6",
    ),
    Item(
        "figure",
        "propagation_adam",
        "How far the error travels under Adam",
        "The heat maps of the first figure with Adam on the states: the front moves faster, and the errors differ "
        "less over depth.",
        "fig:energy-propagation-adam-stable, appendix A",
    ),
    Item(
        "figure",
        "convergence",
        "Energy of some layers under gradient descent",
        "Energy over steps: layers near the output level off, those below are still climbing at the end.",
        "fig:energy-convergence-gd, appendix A",
    ),
    Item(
        "figure",
        "convergence_adam",
        "Energy of some layers under Adam",
        "Energy over steps under Adam: the layers of HEP level off.",
        "fig:energy-convergence-adam, appendix A",
    ),
    Item(
        "table",
        "optimizer",
        "Error by layer and optimizer",
        "The paper's table in both networks.",
        "tab:energy-propagation-optimizer, appendix A",
    ),
    Item("table", "settings", "Settings", "What the paper states, and ours.", "appendix B"),
)

READINGS = (
    Item(
        "table",
        "conventions",
        "The readings that were tried",
        "Each reading, each cell, the distance to the paper.",
    ),
    Item(
        "figure",
        "scales",
        "Size of the states over training",
        "Rms of every hidden state over epochs, a column per reading: where the output's input is normalised the "
        "states shrink.",
    ),
    Item("figure", "training", "Training", "Validation accuracy over epochs, a panel per data set and depth."),
)

CONTROLS = (
    Item(
        "table",
        "controls",
        "What the highways add",
        "DFA with the same matrices, HEP without the chain, and more.",
    ),
    Item(
        "figure",
        "gradients",
        "Direction of the weight steps",
        "Cosine of every matrix's step to that of backprop, before and after training, for PC, HEP and DFA.",
    ),
)

REMEDIES = (
    Item(
        "table",
        "remedies",
        "The remedies on one benchmark",
        "Every rule with one budget of tuning: accuracy, processor time, what it keeps beside the weights, and "
        "whether it is local. Rules whose network has forward skips are marked and stand below.",
    ),
    Item(
        "figure",
        "remedies",
        "The remedies against depth",
        "Test accuracy of every rule over depth, a panel per family, with BP and vanilla PC in grey in each: "
        "rules that are backpropagation in other words, rules with feedback matrices, predictive coding, and "
        "networks with forward skips.",
    ),
    Item(
        "figure",
        "remedy_gradients",
        "Where the steps of each rule point",
        "Cosine of every matrix's step to that of backprop, a panel per rule: dashed before training, solid after "
        "it. A rule that is backpropagation in other words lies at 1.",
    ),
    Item(
        "table",
        "predictions",
        "What we expected",
        "Predictions written down before any remedy was run, judged as the claims of the paper are.",
    ),
)

PROPAGATION = (
    Item(
        "figure",
        "transient",
        "The law of the transient",
        "The first error of each layer lies on a line: the backprop error times a power of the step size.",
    ),
    Item(
        "figure",
        "steady",
        "The steady state",
        "The error of each layer after the last step, beside that at rest: the product of Jacobians.",
    ),
    Item(
        "figure",
        "propagation_training",
        "During training",
        "The heat maps of PC and HEP at some epochs of training.",
    ),
    Item(
        "figure",
        "propagation_rules",
        "All rules",
        "The heat maps of every learning rule on one network; a rule without relaxation has its errors at once.",
    ),
    Item(
        "figure",
        "floor",
        "What of the floor is rounding",
        "The error of each layer in single precision, in double precision, and in a form without rounding of the "
        "states.",
    ),
    Item(
        "table", "adam_steps", "Adam at other step sizes", "The step sizes that give the paper's two Adam columns."
    ),
)

SECTIONS = {
    "The paper's tables and figures": PAPER,
    "The readings of the paper": READINGS,
    "Controls": CONTROLS,
    "The remedies": REMEDIES,
    "Signal propagation beyond the paper": PROPAGATION,
}
