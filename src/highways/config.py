"""The configuration of the workflow, and the runs that it asks for. Imports no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highways.fields import SpecError
from highways.methods import METHODS
from highways.spec import RunSpec

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One cell of the benchmark.

    path: place of the record below the folder of runs, without an ending.
    spec: what to run. Where `selection` is set, its learning rate is a placeholder.
    selection: name of the learning-rate selection that supplies the rate once the sweep has run.
    """

    path: str
    spec: RunSpec
    selection: str | None = None


def load(path: str | Path) -> dict[str, Any]:
    """Read and check a YAML configuration; SpecError names the file and the key."""
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    try:
        return validate(document)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def validate(document: Any) -> dict[str, Any]:
    """Check the keys and types of a configuration, then every run that it asks for; returns it unchanged."""
    from highways.schema import first_problem

    problem = first_problem("config", document)
    if problem is not None:
        raise SpecError(problem)
    config: dict[str, Any] = document
    _check_names(config)
    all_runs(config)
    return config


def _check_names(config: Config) -> None:
    """Names that would otherwise be passed over in silence."""
    named = [("learning_rate_sweep.methods", name) for name in config["learning_rate_sweep"]["methods"]]
    named += [("exceptions", row["method"]) for row in config["exceptions"]]
    for key, name in named:
        if name not in METHODS:
            raise SpecError(f"{key}: method {name!r} does not exist; it takes {', '.join(METHODS)}")
    depths = [row["depth"] for row in config["settings"]]
    for depth in depths:
        if depths.count(depth) > 1:
            raise SpecError(f"settings: two rows for depth {depth}; keep one")


def all_runs(config: Config) -> dict[str, Run]:
    """Every run that the configuration asks for, each once, by path; SpecError where two share a path."""
    runs: dict[str, Run] = {}
    for part in (table_runs(config), strength_runs(config), density_runs(config)):
        for run in part:
            if runs.setdefault(run.path, run) != run:
                raise SpecError(
                    f"two different runs would share the record {run.path}; a method with highways has no "
                    "learning rate in its path, so take it out of learning_rate_sweep.methods"
                )
    return runs


def table_runs(config: Config) -> Iterator[Run]:
    """The runs behind the table of accuracy against depth, learning-rate sweeps included."""
    for dataset in config["datasets"]:
        for depth in config["depths"]:
            for method in config["methods"]:
                yield from cell_runs(config, dataset, depth, method)


def cell_runs(config: Config, dataset: str, depth: int, method: str) -> Iterator[Run]:
    """All runs of one cell: one per seed, and for a swept method one per learning rate and sweep seed."""
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


def selection_name(config: Config, dataset: str, depth: int, method: str) -> str:
    """Place of a learning-rate selection below the folder of selections, without an ending."""
    return f"{config['experiment']}/{dataset}/L{depth:03d}/{method}"


def sweep_runs(config: Config, selection: str) -> list[Run]:
    """The sweep runs that decide the selection of that name."""
    return [
        run
        for run in table_runs(config)
        if run.selection is None and run.path.startswith(f"{selection}/") and run.spec.method in _swept(config)
    ]


def _swept(config: Config) -> list[str]:
    return list(config["learning_rate_sweep"]["methods"])


def strength_runs(config: Config) -> Iterator[Run]:
    """The runs behind the figure of accuracy against the highway strength alpha."""
    sweep = config["strength_sweep"]
    for alpha in sweep["alphas"]:
        for seed in config["seeds"]:
            yield _run(config, cell_spec(config, sweep["dataset"], sweep["depth"], "hep", seed, alpha=alpha))


def density_runs(config: Config) -> Iterator[Run]:
    """The runs behind the table of accuracy against the spacing k of the highways."""
    sweep = config["density_sweep"]
    for every in sweep["every"]:
        for seed in config["seeds"]:
            yield _run(config, cell_spec(config, sweep["dataset"], sweep["depth"], "hep", seed, every=every))


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
    settings = next((row for row in config["settings"] if row["depth"] == depth), None)
    if settings is None:
        known = ", ".join(str(row["depth"]) for row in config["settings"])
        raise SpecError(f"settings: no row for depth {depth}; add one beside those for {known}")
    exceptions: dict[str, Any] = {}
    for row in config["exceptions"]:
        if (row["method"], row["depth"]) == (method, depth):
            exceptions |= {key: value for key, value in row.items() if key not in ("method", "depth")}
    network = {**config["network"], "depth": depth}
    if "initialisation" in exceptions:
        network["initialisation"] = exceptions.pop("initialisation")
    training = config["training"]
    document: dict[str, Any] = {
        "dataset": dataset,
        "method": method,
        "network": network,
        "learning": {
            "lr": settings["lr"] if lr is None else lr,
            "weight_decay": training["weight_decay"],
            "eps": training["weight_eps"],
            **exceptions,
        },
        "conventions": dict(config["conventions"]),
        "epochs": training["epochs"],
        "batch_size": training["batch_size"],
        "seed": seed,
        "dtype": training["dtype"],
    }
    if METHODS[method].inference:
        inference = {key: settings[key] for key in ("optimizer", "step_size", "steps")}
        document["inference"] = {**inference, "eps": config["state_eps"]}
    if METHODS[method].highway:
        document["highway"] = {**config["highway"], "alpha": settings["alpha"] if alpha is None else alpha}
        if every is not None:
            document["highway"]["every"] = every
    try:
        return RunSpec.from_dict(document)
    except SpecError as error:
        raise SpecError(f"{dataset}, depth {depth}, {method}, seed {seed}: {error}") from None


def _run(config: Config, spec: RunSpec) -> Run:
    return Run(f"{config['experiment']}/{spec.path}", spec)
