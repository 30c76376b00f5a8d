"""The configuration of the workflow: reading and checking it, and all the runs it asks for. Imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from highways.experiments import own_data, shapes
from highways.experiments.plan import plan
from highways.experiments.relaxations import all_propagations, trained_runs
from highways.experiments.runs import Config, Run
from highways.methods import METHODS
from highways.propagation.spec import Propagation
from highways.specs.fields import SpecError

# Names of tables and figures that no experiment makes; an experiment may not use them.
TAKEN = (
    *("adam_steps", "architecture", "baseline_gradients", "convergence", "convergence_adam", "floor", "gradients"),
    *("optimizer", "predictions", "propagation", "propagation_adam", "propagation_methods"),
    *("propagation_training", "scales", "settings", "steady", "training", "transient", "verdict"),
)


def load(path: str | Path) -> dict[str, Any]:
    """Read and check a YAML configuration, merged over the reference if partial; SpecError names the key."""
    from highways.experiments.config_files import completed, read, reference

    document, base = read(path), reference()
    try:
        if not isinstance(document, Mapping):
            raise SpecError("empty" if document is None else "no configuration; it takes keys with values")
        return validate(document if base is not None and base.samefile(path) else completed(document))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def validate(document: Any) -> dict[str, Any]:
    """Check a configuration and every run and relaxation that it asks for; returns it unchanged."""
    expand(document)
    config: dict[str, Any] = document
    return config


def expand(document: Any) -> tuple[dict[str, Run], dict[str, Propagation]]:
    """Check a configuration; returns its runs and its relaxations, each by path. SpecError names the key."""
    from highways.schema import first_problem

    problem = first_problem("config", document)
    if problem is not None:
        raise SpecError(problem)
    config: dict[str, Any] = document
    own_data.check(config)
    _check_once("settings", "depth", config["settings"])
    _check_once("experiments", "name", config["experiments"])
    for block in config["experiments"]:
        if block["name"] in TAKEN:
            raise SpecError(f"experiments: {block['name']} is the name of another table or figure; rename it")
    shapes.check(plan(config))
    runs = all_runs(config)
    try:
        _check_propagation(config)
        return runs, all_propagations(config)
    except SpecError as error:
        raise SpecError(f"propagation: {error}") from None


def all_runs(config: Config) -> dict[str, Run]:
    """Every run that the configuration asks for, each once, by path; SpecError names the experiment."""
    return dict(plan(config).runs)


def _check_propagation(config: Config) -> None:
    """SpecError for layers, methods or epochs of the block `propagation` that cannot be traced."""
    block = config["propagation"]
    if block is None:
        return
    for layer in block["layers"]:
        if not 0 <= layer < block["depth"]:
            raise SpecError(f"layers: {layer} is out of range; it takes 0 to {block['depth'] - 1}, the output")
    during = block["during_training"]
    for method in during["methods"]:
        if method not in METHODS:
            raise SpecError(
                f"during_training.methods: method {method!r} does not exist; it takes {', '.join(METHODS)}"
            )
    for run in trained_runs(config):
        if run.selection is not None:
            raise SpecError(
                f"during_training.methods: the settings of {run.spec.method!r} are chosen, so there is no one run "
                "whose weights could be kept; take it out"
            )
    for epoch in during["epochs"]:
        if epoch < 0:
            raise SpecError(f"during_training.epochs: {epoch} is out of range; it takes 0 or more")


def _check_once(block: str, key: str, entries: list[Mapping[str, Any]]) -> None:
    """SpecError for two entries with the same `key`, which would share records or hide a row of settings."""
    seen = set()
    for entry in entries:
        if entry[key] in seen:
            raise SpecError(f"{block}: two entries have the {key} {entry[key]!r}; keep one")
        seen.add(entry[key])
