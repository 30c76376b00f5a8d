"""The runs behind every table and figure of a configuration. Imports no torch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from highways.experiments.own_data import images_of
from highways.specs.fields import SpecError
from highways.specs.registry import METHODS
from highways.specs.run import DATASETS, Conventions, RunSpec

Config = Mapping[str, Any]
CellKey = tuple[str, int, str]  # data set, depth, method


@dataclass(frozen=True)
class Run:
    """One cell of the benchmark.

    path: place of the record below the folder of runs, without an ending.
    spec: what to run. Where `selection` is set, its values of the swept keys are placeholders.
    selection: name of the selection that supplies these values once the sweep has run.
    swept: dotted keys of the spec.
    """

    path: str
    spec: RunSpec
    selection: str | None = None
    swept: tuple[str, ...] = ("learning.lr",)


def table_runs(config: Config) -> Iterator[Run]:
    """The runs behind the table of accuracy against depth, learning-rate sweeps included."""
    for dataset in config["datasets"]:
        for depth in config["depths"]:
            for method in config["methods"]:
                yield from cell_runs(config, dataset, depth, method)


def cell_runs(config: Config, dataset: str, depth: int, method: str) -> Iterator[Run]:
    """All runs of one cell: one per seed, and for a swept method one per learning rate and sweep seed."""
    config = _of_place(config, depth, method)
    sweep = config["learning_rate_sweep"]
    if method not in sweep["methods"]:
        for seed in config["seeds"]:
            yield _run(config, cell_spec(config, dataset, depth, method, seed))
        return
    for seed in sweep["seeds"]:
        for lr in sweep["learning_rates"]:
            yield _run(config, cell_spec(config, dataset, depth, method, seed, lr=lr))
    for seed in config["seeds"]:
        if seed not in sweep["seeds"]:  # a sweep seed has already been run at the chosen rate
            spec = cell_spec(config, dataset, depth, method, seed, lr=sweep["learning_rates"][0])
            name = selection_name(config, dataset, depth, method)
            yield Run(f"{name}/selected/seed{seed}", spec, selection=name)


def exceptions(config: Config, depth: int, method: str) -> dict[str, Any]:
    """What a method changes at one depth; of two rows the later one counts."""
    found: dict[str, Any] = {}
    for row in config["exceptions"]:
        if (row["method"], row["depth"]) == (method, depth):
            found |= {key: value for key, value in row.items() if key not in ("method", "depth")}
    return found


def _of_place(config: Config, depth: int, method: str) -> Config:
    """The configuration with the rates to sweep and the first folder of records of a method at one depth."""
    changes = exceptions(config, depth, method)
    rates = changes.get("learning_rates", config["learning_rate_sweep"]["learning_rates"])
    return {
        **config,
        "experiment": changes.get("experiment", config["experiment"]),
        "learning_rate_sweep": {**config["learning_rate_sweep"], "learning_rates": rates},
    }


def selection_name(config: Config, dataset: str, depth: int, method: str) -> str:
    """Place of a learning-rate selection below the folder of selections, without an ending."""
    return f"{config['experiment']}/{dataset}/L{depth:03d}/{method}"


def sweep_runs(runs: Iterable[Run], selection: str) -> list[Run]:
    """The sweep runs that decide the selection of that name."""
    return [run for run in runs if run.selection is None and run.path.startswith(f"{selection}/")]


def sweep_config(config: Config, name: str) -> Config:
    """The configuration of a sweep's runs: its own seeds and epochs, or with null those of the table.

    Runs of another length are not the table's, so they have a first folder of their own.
    """
    sweep = config[f"{name}_sweep"]
    derived: dict[str, Any] = {**config, "seeds": sweep.get("seeds") or config["seeds"]}
    if sweep.get("epochs") is not None:
        derived |= {"training": {**config["training"], "epochs": sweep["epochs"]}, "experiment": name}
    return derived


def strength_runs(config: Config) -> Iterator[Run]:
    """The runs behind the figure of accuracy against the highway strength alpha."""
    sweep, config = config["strength_sweep"], sweep_config(config, "strength")
    for alpha in sweep["alphas"]:
        for seed in config["seeds"]:
            yield _run(config, cell_spec(config, sweep["dataset"], sweep["depth"], "hep", seed, alpha=alpha))


def density_runs(config: Config) -> Iterator[Run]:
    """The runs behind the table of accuracy against the spacing k of the highways."""
    sweep, config = config["density_sweep"], sweep_config(config, "density")
    for every in sweep["every"]:
        for seed in config["seeds"]:
            yield _run(config, cell_spec(config, sweep["dataset"], sweep["depth"], "hep", seed, every=every))


_LEARNING = ("schedule", "warmup_fraction", "horizon")
# Conventions that a method without highways, or without inference, does not depend on.
_OF_HIGHWAYS = ("highway_layers",)
_OF_INFERENCE = (*_OF_HIGHWAYS, "state_gradient", "initial_state")


def idle(method: str) -> tuple[str, ...]:
    """The conventions that do not concern a method; its specs leave them at their defaults."""
    rule = METHODS[method]
    if rule.network is not None:
        return tuple(field.name for field in fields(Conventions))
    if not rule.inference:
        return _OF_INFERENCE  # dfa has feedback to every hidden layer
    return () if rule.highway else _OF_HIGHWAYS


def cell_spec(
    config: Config,
    dataset: str,
    depth: int,
    method: str,
    seed: int,
    *,
    alpha: float | None = None,
    every: int | None = None,
    lr: float | None = None,
) -> RunSpec:
    """The spec of one run with the settings of its depth; SpecError where the configuration has none."""
    if method not in METHODS:
        raise SpecError(f"methods: {method!r} does not exist; it takes {', '.join(METHODS)}")
    if METHODS[method].cost is None:
        raise SpecError(
            f"methods: {method!r} has no cost, from which the time limits of its jobs follow; "
            "give its entry of METHODS one (specs/registry.py)"
        )
    settings = next((row for row in config["settings"] if row["depth"] == depth), None)
    if settings is None:
        known = ", ".join(str(row["depth"]) for row in config["settings"])
        raise SpecError(f"settings: no row for depth {depth}; add one beside those for {known}")
    changes = exceptions(config, depth, method)
    network = {**config["network"], "depth": depth}
    if "initialisation" in changes:
        network["initialisation"] = changes["initialisation"]
    training = config["training"]
    document: dict[str, Any] = {
        "dataset": dataset,
        "method": method,
        "network": network,
        "learning": {
            "lr": settings["lr"] if lr is None else lr,
            "weight_decay": training["weight_decay"],
            "eps": training["weight_eps"],
            **{key: value for key, value in changes.items() if key in _LEARNING},
        },
        "conventions": {key: value for key, value in config["conventions"].items() if key not in idle(method)},
        "epochs": changes.get("epochs", training["epochs"]),
        "batch_size": training["batch_size"],
        "seed": seed,
        "dtype": training["dtype"],
    }
    if METHODS[method].options is not None:
        document["rule"] = config.get("rule", {})
    if METHODS[method].inference:
        inference = {key: settings[key] for key in ("optimizer", "step_size", "steps")}
        document["inference"] = {**inference, "eps": config["state_eps"]}
    if METHODS[method].highway:
        document["highway"] = {**config["highway"], "alpha": settings["alpha"] if alpha is None else alpha}
        if every is not None:
            document["highway"]["every"] = every
    if dataset not in DATASETS:
        document["data"] = asdict(images_of(config, dataset))
    try:
        return RunSpec.from_dict(document)
    except SpecError as error:
        raise SpecError(f"{dataset}, depth {depth}, {method}, seed {seed}: {error}") from None


def kernel(config: Config, spec: RunSpec) -> str:
    """The kernel that the settings of a depth ask for; it is no part of a spec, and the record names it."""
    asked = (row.get("kernel") for row in config["settings"] if row["depth"] == spec.network.depth)
    return next(asked, None) or "auto"


def _run(config: Config, spec: RunSpec) -> Run:
    return Run(f"{config['experiment']}/{spec.path}", spec)
