"""The configuration of the workflow: reading and checking it, and all the runs it asks for. Imports no torch."""

from pathlib import Path
from typing import Any

from highways.controls import control_runs
from highways.fields import SpecError
from highways.methods import METHODS
from highways.propagation.plan import all_propagations
from highways.propagation.spec import Propagation
from highways.readings import reading_runs
from highways.remedies import remedy_runs
from highways.runs import Config, Run, density_runs, strength_runs, table_runs


def load(path: str | Path) -> dict[str, Any]:
    """Read and check a YAML configuration; SpecError names the file and the key."""
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    try:
        return validate(document)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def validate(document: Any) -> dict[str, Any]:
    """Check the keys and types of a configuration, then all it asks for; returns it unchanged."""
    expand(document)
    config: dict[str, Any] = document
    return config


def expand(document: Any) -> tuple[dict[str, Run], dict[str, Propagation]]:
    """Check a configuration as `validate` does; all the runs and relaxations that it asks for, by path."""
    from highways.schema import first_problem

    problem = first_problem("config", document)
    if problem is not None:
        raise SpecError(problem)
    config: dict[str, Any] = document
    _check_names(config)
    return all_runs(config), all_propagations(config)


def _check_names(config: Config) -> None:
    """Names that would otherwise be passed over in silence."""
    named = [("learning_rate_sweep.methods", name) for name in config["learning_rate_sweep"]["methods"]]
    named += [("exceptions", row["method"]) for row in config["exceptions"]]
    named += [("remedies.rules", entry["method"]) for entry in config["remedies"]["rules"]]
    for key, name in named:
        if name not in METHODS:
            raise SpecError(f"{key}: method {name!r} does not exist; it takes {', '.join(METHODS)}")
    block = config["propagation"]
    for layer in block["layers"]:
        if not 0 <= layer < block["depth"]:
            last = block["depth"] - 1
            raise SpecError(f"propagation.layers: {layer} is out of range; it takes 0 to {last}, the output")
    for method in block["during_training"]["methods"]:
        if method in config["learning_rate_sweep"]["methods"]:
            raise SpecError(
                f"propagation.during_training.methods: {method!r} has a learning-rate sweep, so no one run whose "
                "weights could be kept; take it out"
            )
    for epoch in block["during_training"]["epochs"]:
        if epoch < 0:
            raise SpecError(f"propagation.during_training.epochs: {epoch} is out of range; it takes 0 or more")
    depths = [row["depth"] for row in config["settings"]]
    for depth in depths:
        if depths.count(depth) > 1:
            raise SpecError(f"settings: two rows for depth {depth}; keep one")


def all_runs(config: Config) -> dict[str, Run]:
    """Every run that the configuration asks for, each once, by path; SpecError where two share a path."""
    runs: dict[str, Run] = {}
    for make in (table_runs, strength_runs, density_runs, reading_runs, control_runs, remedy_runs):
        for run in make(config):
            if runs.setdefault(run.path, run) != run:
                raise SpecError(
                    f"two different runs would share the record {run.path}; a method with highways has no "
                    "learning rate in its path, so take it out of learning_rate_sweep.methods"
                )
    return runs
