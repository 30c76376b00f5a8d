"""The readings of what the paper leaves open: variants that differ in conventions or in sigma_v.

The search (block `conventions`) runs in stages: many readings on cheap cells, then the most promising on more
cells. The block `readings` judges the main claim under every reading at depth. Imports no torch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from highways.experiments.plan import plan
from highways.experiments.runs import CellKey, Config
from highways.experiments.variants import Variant
from highways.specs.run import Conventions

SEARCH, CURVE = "conventions", "readings"


@dataclass(frozen=True, eq=False)
class Reading:
    """A reading of the paper, with its variants by (data set, depth, method)."""

    variants: Mapping[CellKey, Variant]

    @property
    def _any(self) -> Variant:
        return next(iter(self.variants.values()))

    @property
    def stage(self) -> str:
        """The stage of the search: the name of its row, else that of its experiment."""
        return str(self._any.row.get("name", self._any.experiment))

    @property
    def settings(self) -> dict[str, Any]:
        """The value of every convention and of sigma_v, by name."""
        config, given = self._any.config, {**self._any.row["set"], **self._any.given}
        return {key: given.get(_dotted(key), value) for key, value in settings_of(config).items()}

    @property
    def default(self) -> bool:
        """Whether its settings are those of the configuration itself."""
        return self.settings == settings_of(self._any.config)


def _dotted(key: str) -> str:
    return "highway.sigma_v" if key == "sigma_v" else f"conventions.{key}"


def settings_of(config: Config) -> dict[str, Any]:
    return {**asdict(Conventions(**config["conventions"])), "sigma_v": config["highway"]["sigma_v"]}


def readings(config: Config, experiment: str = SEARCH) -> list[Reading]:
    """The readings of a block, in the order of the configuration; a reading in two stages appears twice."""
    found: dict[Any, dict[CellKey, Variant]] = {}
    for variant in plan(config).of(experiment):
        key = (
            variant.row.get("name"),
            tuple(sorted((name, repr(value)) for name, value in variant.given.items())),
        )
        found.setdefault(key, {})[variant.cell] = variant
    return [Reading(variants) for variants in found.values()]


def stages(config: Config) -> list[str]:
    """The stages of the search, in order."""
    return list(dict.fromkeys(reading.stage for reading in readings(config)))


def finalists(config: Config) -> list[tuple[Reading, list[Variant]]]:
    """The readings of the last stage, each with its HEP cells on the first data set: for the figure of scales."""
    names = stages(config)
    last = [reading for reading in readings(config) if reading.stage == names[-1]]
    return [(reading, _hep_on_first(reading)) for reading in last]


def _hep_on_first(reading: Reading) -> list[Variant]:
    variants = list(reading.variants.values())
    return [one for one in variants if (one.dataset, one.method) == (variants[0].dataset, "hep")]
