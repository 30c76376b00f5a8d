"""The relaxations that a configuration asks for, in the groups that tables and figures show. Imports no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from highways.experiments.plan import plan
from highways.experiments.runs import Config, Run, cell_spec
from highways.propagation.spec import RELAXATIONS, Propagation
from highways.specs.registry import METHODS
from highways.specs.run import Inference, Learning, RunSpec

ROWS = {"paper": "RMSNorm net", "plain": "plain net"}  # the networks of the figures
PANELS = {"pc": "vanilla PC", "mupc": "μPC", "hep": "HEP"}  # the columns; μPC relaxes on its own network
ARITHMETICS = {
    "float32": ("float32", "plain"),
    "float64": ("float64", "plain"),
    "no floor": ("float64", "deviations"),
}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of the states; title is its name in figures."""

    title: str
    inference: Inference


def optimizers(config: Config) -> dict[str, Optimizer]:
    """Gradient descent and the two Adams of the paper, by the names of paper.yaml."""
    block = config["propagation"]
    steps, size = block["steps"], block["step_size"]
    return {
        "gd": Optimizer("gradient descent", Inference("euler", size, steps)),
        "adam_1e-8": Optimizer("Adam, ε = 1e-8", Inference("adam", size, steps, 1e-8)),
        "adam_1e-2": Optimizer("Adam, ε = 1e-2", Inference("adam", size, steps, 1e-2)),
    }


def panels(config: Config, optimizer: str) -> dict[tuple[str, str], list[Propagation]]:
    """The relaxations of every panel of a figure, one per seed, by (row, column)."""
    inference = optimizers(config)[optimizer].inference
    return {
        (row, column): _seeds(config, *(("mupc", "pc") if column == "mupc" else (row, column)), inference)
        for row in ROWS
        for column in PANELS
    }


def optimizer_columns(config: Config) -> dict[tuple[str, str], list[Propagation]]:
    """The relaxations of vanilla PC, by (network, optimizer)."""
    drawn = {name: panels(config, name) for name in optimizers(config)}
    return {(row, name): found[row, "pc"] for row in ROWS for name, found in drawn.items()}


def step_sizes(config: Config) -> dict[tuple[float, float], list[Propagation]]:
    """Vanilla PC under Adam in the plain network, by epsilon and step size."""
    block = config["propagation"]
    return {
        (eps, size): _seeds(config, "plain", "pc", Inference("adam", size, block["steps"], eps))
        for eps in (1e-8, 1e-2)
        for size in block["adam_step_sizes"]
    }


def arithmetics(config: Config) -> dict[tuple[str, str], list[Propagation]]:
    """Vanilla PC under gradient descent, by network and arithmetic."""
    gd = panels(config, "gd")
    return {
        (row, name): [replace(one, form=form, run=replace(one.run, dtype=dtype)) for one in gd[row, "pc"]]
        for row in ROWS
        for name, (dtype, form) in ARITHMETICS.items()
    }


def arrivals(config: Config) -> dict[str, list[Propagation]]:
    """Vanilla PC and μPC under gradient descent in the form `deviations` (no rounding floor), by network."""
    gd = panels(config, "gd")
    wanted = {"paper": gd["paper", "pc"], "plain": gd["plain", "pc"], "mupc": gd["paper", "mupc"]}
    return {name: [replace(one, form="deviations") for one in seeds] for name, seeds in wanted.items()}


def settled(config: Config) -> dict[tuple[str, str, str], list[Propagation]]:
    """The panels under the optimizers that can reach equilibrium, by (optimizer, row, column)."""
    return {(name, *panel): seeds for name in ("gd", "adam_1e-2") for panel, seeds in panels(config, name).items()}


def by_method(config: Config) -> dict[str, list[Propagation]]:
    """All methods but those of `left_out` on the network `paper` under gradient descent, by method."""
    inference, without = optimizers(config)["gd"].inference, left_out()
    return {method: _seeds(config, "paper", method, inference) for method in METHODS if method not in without}


def left_out() -> dict[str, str]:
    """The methods that cannot be traced on the network `paper`, with the reason."""
    own = {method: "a network of its own" for method, entry in METHODS.items() if entry.network is not None}
    relaxing = {method for method, entry in METHODS.items() if entry.inference}
    unknown = dict.fromkeys(relaxing - set(RELAXATIONS), "its relaxation is not implemented here")
    return {method: {**own, **unknown}[method] for method in METHODS if method in own or method in unknown}


def training_moments(config: Config) -> dict[tuple[str, int], list[Propagation]]:
    """The relaxations after the epochs of `during_training`, by (method, epoch)."""
    inference = optimizers(config)["gd"].inference
    return {
        (run.spec.method, epoch): [Propagation(_relaxing(run.spec, inference), trained=run.spec, epoch=epoch)]
        for run in trained_runs(config)
        for epoch in config["propagation"]["during_training"]["epochs"]
    }


def trained_runs(config: Config) -> list[Run]:
    """The runs whose weights `training_moments` needs; `selection` is set where settings are to be chosen."""
    if config["propagation"] is None:
        return []
    during, dataset = config["propagation"]["during_training"], config["propagation"]["dataset"]
    found = []
    for method in during["methods"]:
        variant = plan(config).first(dataset, during["depth"], method)
        if variant is None:
            spec = cell_spec(config, dataset, during["depth"], method, during["seed"])
            found.append(Run(spec.path, spec))
        else:
            selection = None if variant.choice is None else variant.folder
            spec = variant.spec(during["seed"])
            found.append(Run(f"{variant.folder}/seed{spec.seed}", spec, selection))
    return found


def untrained(
    config: Config, network: str, method: str, depth: int, seed: int, inference: Inference
) -> Propagation:
    """The relaxation of an untrained network with the settings of its depth."""
    spec = cell_spec(config, config["propagation"]["dataset"], depth, method, seed)
    return Propagation(_relaxing(spec, inference), network)


def _seeds(config: Config, network: str, method: str, inference: Inference) -> list[Propagation]:
    block = config["propagation"]
    return [untrained(config, network, method, block["depth"], seed, inference) for seed in block["seeds"]]


def _relaxing(spec: RunSpec, inference: Inference) -> RunSpec:
    """The spec in double precision, with fixed values for the settings that only training uses."""
    relaxes = inference if METHODS[spec.method].inference else None
    return replace(spec, inference=relaxes, learning=Learning(lr=1.0), epochs=1, batch_size=1, dtype="float64")


Groups = Callable[[Config], Mapping[Any, list[Propagation]]]


def flat(groups: Groups) -> Callable[[Config], list[Propagation]]:
    """A function that lists the relaxations of a grouping, each once."""

    def relaxations(config: Config) -> list[Propagation]:
        if config["propagation"] is None:
            return []
        return list({one.path: one for seeds in groups(config).values() for one in seeds}.values())

    return relaxations


_GROUPS: tuple[Groups, ...] = (
    optimizer_columns,
    step_sizes,
    arrivals,
    settled,
    training_moments,
    by_method,
    arithmetics,
)


def all_propagations(config: Config) -> dict[str, Propagation]:
    """Every relaxation that the configuration asks for, each once, by path."""
    return {one.path: one for groups in _GROUPS for one in flat(groups)(config)}
