"""Controls that decide what the highways add to predictive coding. Imports no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from highways.experiments.runs import CellKey, Config, Run, cell_runs


@dataclass(frozen=True, eq=False)
class Arm:
    """One control at one depth: a configuration of its own, run as any cell."""

    name: str
    title: str
    config: Config
    cell: CellKey


def arms(config: Config) -> list[Arm]:
    """Every control at every place, or at its own places, in the order of the configuration."""
    controls = config["controls"]
    return [
        Arm(
            arm["name"],
            arm["title"],
            _arm_config(config, arm, place),
            (place["dataset"], place["depth"], arm["method"]),
        )
        for arm in controls["arms"]
        for place in arm.get("cells", controls["cells"])
    ]


def control_runs(config: Config) -> Iterator[Run]:
    """The runs of all controls."""
    for arm in arms(config):
        yield from cell_runs(arm.config, *arm.cell)


def gradient_arms(config: Config) -> list[Arm]:
    """The arms named after their method: what the figure of gradients compares."""
    return [arm for arm in arms(config) if arm.name == arm.cell[2]]


def gradient_runs(config: Config) -> Iterator[Run]:
    """The runs of those arms."""
    for arm in gradient_arms(config):
        yield from cell_runs(arm.config, *arm.cell)


def _arm_config(config: Config, arm: Mapping[str, Any], place: Mapping[str, Any]) -> Config:
    """The configuration of a control; an arm that changes nothing is a cell of the paper's table."""
    derived: dict[str, Any] = {**config, "seeds": place["seeds"]}
    changes = {key: value for key, value in arm.items() if key not in ("name", "title", "method", "cells")}
    for section in ("highway", "conventions"):
        derived[section] = {**config[section], **changes.get(section, {})}
    factor = changes.get("steps_factor", 1)
    derived["settings"] = [
        {**row, "steps": factor * row["steps"], **changes.get("settings", {})} for row in config["settings"]
    ]
    training = {key: changes[key] for key in ("epochs", "batch_size") if key in changes}
    derived["training"] = {**config["training"], **training}
    if "learning_rates" in changes:
        derived["learning_rate_sweep"] = {
            "methods": [arm["method"]],
            "seeds": changes.get("sweep_seeds", config["learning_rate_sweep"]["seeds"]),
            "learning_rates": changes["learning_rates"],
        }
    if changes or arm["method"] not in config["methods"]:
        derived["experiment"] = f"controls/{arm['name']}"
        own: dict[str, Any] = {key: changes[key] for key in ("epochs", "learning_rates") if key in changes}
        row = {"method": arm["method"], "depth": place["depth"], "experiment": derived["experiment"], **own}
        derived["exceptions"] = [*config["exceptions"], {**row, **changes.get("exception", {})}]
    return derived
