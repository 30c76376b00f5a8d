"""The convention search: which reading of what the paper leaves open reproduces it. Imports no torch.

A reading sets conventions, and sigma_v, which the authors' earlier code has otherwise than the paper. The search
goes in stages: many readings on cheap cells first, the ones worth it on more cells after that.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from highways.experiments.runs import CellKey, Config, Run, cell_runs, idle
from highways.methods import METHODS
from highways.specs.run import Conventions


@dataclass(frozen=True, eq=False)
class Reading:
    """A reading in one stage of the search.

    given: the settings that the stage gives, by key of `conventions`, or sigma_v.
    cells: what the stage tries it on.
    """

    base: Config
    stage: Mapping[str, Any]
    given: Mapping[str, Any]
    cells: tuple[CellKey, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that tells readings apart."""
        return settings_of(self.config("hep"))

    def config(self, method: str) -> Config:
        """The configuration of the reading for a method; what the method does not depend on stays as it was.

        Where it is the configuration's own reading, at all its epochs, the runs are those of the paper's table.
        """
        unused = idle(method) if METHODS[method].highway else (*idle(method), "sigma_v")
        given = {key: value for key, value in self.given.items() if key not in unused}
        conventions = {key: value for key, value in given.items() if key != "sigma_v"}
        derived = {
            **self.base,
            "seeds": self.stage["seeds"],
            "training": {**self.base["training"], "epochs": self.stage["epochs"]},
            "conventions": {**self.base["conventions"], **conventions},
            "highway": {**self.base["highway"], "sigma_v": given.get("sigma_v", self.base["highway"]["sigma_v"])},
        }
        if derived["training"] == self.base["training"] and settings_of(derived) == settings_of(self.base):
            return derived
        name = "-".join(_word(key, given[key]) for key in settings_of(derived) if key in given)
        return {**derived, "experiment": f"conventions/{self.stage['name']}/{name}"}


def settings_of(config: Config) -> dict[str, Any]:
    return {**vars(Conventions(**config["conventions"])), "sigma_v": config["highway"]["sigma_v"]}


def readings(config: Config) -> list[Reading]:
    """All readings of all stages of the search, in the order of the configuration."""
    return [reading for stage in config["convention_search"] for reading in _readings(config, stage)]


def curve(config: Config) -> list[Reading]:
    """The readings under which the main claim is judged; they decide nothing."""
    return _readings(config, config["specification_curve"])


def _readings(config: Config, stage: Mapping[str, Any]) -> list[Reading]:
    places = [(cell["dataset"], cell["depth"]) for cell in stage["cells"]]
    cells = tuple((*place, method) for place in places for method in stage["methods"])
    return [Reading(config, stage, given, cells) for given in _expanded(stage["readings"])]


def reading_runs(config: Config) -> Iterator[Run]:
    """The runs of the whole search."""
    yield from _runs_of(readings(config))


def curve_runs(config: Config) -> Iterator[Run]:
    """The runs of the specification curve."""
    yield from _runs_of(curve(config))


def _runs_of(tried: list[Reading]) -> Iterator[Run]:
    for reading in tried:
        for dataset, depth, method in reading.cells:
            yield from cell_runs(reading.config(method), dataset, depth, method)


def finalists(config: Config) -> list[tuple[Reading, list[CellKey]]]:
    """The readings of the last stage, each with its HEP cells on the first data set: for the figure of scales."""
    stage = config["convention_search"][-1]
    dataset = stage["cells"][0]["dataset"]
    last = [reading for reading in readings(config) if reading.stage is stage]
    return [(reading, [key for key in reading.cells if key[0] == dataset and key[2] == "hep"]) for reading in last]


def finalist_runs(config: Config) -> Iterator[Run]:
    """The runs behind the figure of scales."""
    for reading, cells in finalists(config):
        for key in cells:
            yield from cell_runs(reading.config("hep"), *key)


def _expanded(blocks: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A block whose values are lists stands for all their combinations."""
    for block in blocks:
        values = [value if isinstance(value, list) else [value] for value in block.values()]
        for combination in itertools.product(*values):
            yield dict(zip(block, combination, strict=True))


def _word(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return key if value else f"no_{key}"
    return value if isinstance(value, str) else f"{key}{value!r}"
