"""The configuration of the workflow: reading and checking it, and all the runs it asks for. Imports no torch."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from highways.experiments import own_data
from highways.experiments.ablations import control_runs
from highways.experiments.baselines import remedy_runs
from highways.experiments.rates import rate_runs
from highways.experiments.readings import curve_runs, reading_runs
from highways.experiments.relaxations import all_propagations
from highways.experiments.runs import Config, Run, density_runs, idle, strength_runs, table_runs
from highways.methods import METHODS
from highways.propagation.spec import Propagation
from highways.specs.fields import SpecError


def load(path: str | Path) -> dict[str, Any]:
    """Read a YAML configuration, or a part of one over the reference, and check it; SpecError names the key."""
    from highways.experiments.config_files import completed, read, reference

    document, base = read(path), reference()
    try:
        if not isinstance(document, Mapping):
            raise SpecError("empty" if document is None else "no configuration; it takes keys with values")
        return validate(document if base is not None and base.samefile(path) else completed(document))
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
    runs = all_runs(config)
    try:
        return runs, all_propagations(config)
    except SpecError as error:
        raise SpecError(f"propagation: {error}") from None


def _check_names(config: Config) -> None:
    """Names that would otherwise be passed over in silence."""
    own_data.check(config)
    named = [("learning_rate_sweep.methods", name) for name in config["learning_rate_sweep"]["methods"]]
    named += [("exceptions", row["method"]) for row in config["exceptions"]]
    named += [("remedies.rules", entry["method"]) for entry in config["remedies"]["rules"]]
    named += [("controls.arms", arm["method"]) for arm in config["controls"]["arms"]]
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
    _check_remedies(config)
    _check_arms(config)
    _check_once("remedies.rules", (entry["name"] for entry in config["remedies"]["rules"]))
    _check_once("controls.arms", (arm["name"] for arm in config["controls"]["arms"]))
    _check_once("convention_search", (stage["name"] for stage in config["convention_search"]))
    depths = [row["depth"] for row in config["settings"]]
    for depth in depths:
        if depths.count(depth) > 1:
            raise SpecError(f"settings: two rows for depth {depth}; keep one")


def _check_remedies(config: Config) -> None:
    """What an entry may set: nothing that its place says, and nothing that would be passed over in silence."""
    for entry in config["remedies"]["rules"]:
        where = f"remedies.rules: {entry['name']}"
        given = {key: entry[key] for key in ("set", "vary", "learning_rates") if key in entry}
        if not entry.get("tuned", True) and given:
            raise SpecError(
                f"{where}: {', '.join(given)} not with tuned: false, which takes the runs of the paper's table"
            )
        for key in entry.get("set", {}):
            if key in _PLACED:
                raise SpecError(f"{where}: set: {key} {_PLACED[key]}")
            if key.removeprefix("conventions.") in idle(entry["method"]):
                raise SpecError(f"{where}: set: {key} changes nothing in a {entry['method']} run; leave it out")
        for key in entry.get("vary", {}):
            if not key.startswith(("learning.", "rule.")) or key == "learning.lr":
                raise SpecError(
                    f"{where}: vary: {key} cannot be chosen; it takes a key of learning or rule, lr aside"
                )
            if key in entry.get("set", {}):
                raise SpecError(f"{where}: {key} stands under set and under vary; keep one")


def _check_arms(config: Config) -> None:
    """A control changes something."""
    for arm in config["controls"]["arms"]:
        method = METHODS[arm["method"]]
        vain = [f"conventions.{name}" for name in arm.get("conventions", {}) if name in idle(arm["method"])]
        unused = [
            *([] if method.highway else ["highway"]),
            *([] if method.inference else ["steps_factor", "settings"]),
        ]
        vain += [key for key in unused if key in arm]
        if vain:
            raise SpecError(
                f"controls.arms: {arm['name']}: {vain[0]} changes nothing in a {arm['method']} run; leave it out"
            )


# What a remedy's entry cannot set, and why.
_PLACED = {
    "dataset": "is that of the cell; give the entry cells",
    "method": "is the entry's own key",
    "network.depth": "is that of the cell; give the entry cells",
    "seed": "is that of the cell, one for every run; give the entry cells",
    "learning.lr": "is chosen among learning_rates; give the entry its own",
}


def _check_once(block: str, names: Iterable[str]) -> None:
    """Two entries of one name would share their records."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SpecError(f"{block}: two entries are called {name!r}; rename one")
        seen.add(name)


# The blocks that ask for runs, as messages call them.
_BLOCKS: dict[str, Callable[[Config], Iterable[Run]]] = {
    "depths": table_runs,
    "strength_sweep": strength_runs,
    "density_sweep": density_runs,
    "convention_search": reading_runs,
    "specification_curve": curve_runs,
    "rate_sweep": rate_runs,
    "controls": control_runs,
    "remedies": remedy_runs,
}


def all_runs(config: Config) -> dict[str, Run]:
    """Every run that the configuration asks for, each once, by path; SpecError names the block."""
    runs: dict[str, Run] = {}
    for block, make in _BLOCKS.items():
        try:
            made = list(make(config))
        except SpecError as error:
            raise SpecError(f"{block}: {error}") from None
        for run in made:
            if runs.setdefault(run.path, run) != run:
                raise SpecError(
                    f"{block}: two different runs would share the record {run.path}; a method with highways has "
                    "no learning rate in its path, so take it out of learning_rate_sweep.methods"
                )
    return runs
