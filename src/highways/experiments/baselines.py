"""The remedies that the paper names, on its benchmark, with one budget of tuning for all. Imports no torch.

A tuned rule runs its candidates, learning rates times the values of one setting of its own, on a seed of their own
for a few epochs; the best on validation is then frozen for the seeds of the cell.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from highways.experiments.runs import CellKey, Config, Run, cell_runs, cell_spec, selection_name
from highways.specs.fields import SpecError
from highways.specs.run import RunSpec

RATES, VALUES = 6, 3  # the budget of tuning
DAGGER = "†"


@dataclass(frozen=True, eq=False)
class Remedy:
    """A rule at one place.

    entry: its entry in the configuration. tuned: whether its runs are the benchmark's own, else they are those of
    the paper's table.
    """

    name: str
    title: str
    entry: Mapping[str, Any]
    config: Config
    cell: CellKey

    @property
    def label(self) -> str:
        """The title, marked where the rule is a re-implementation from secondary descriptions."""
        return self.title + (DAGGER if self.entry.get("secondary") else "")

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.config["seeds"])

    @property
    def tuned(self) -> bool:
        return bool(self.entry.get("tuned", True))

    @property
    def skips(self) -> bool:
        """Whether the network has forward skips, and so is not one of this benchmark."""
        return self._any_spec.parametrisation.skips

    @property
    def start(self) -> str:
        """The initial weights and the schedule of the learning rate: BP has its own at depth 128 (appendix B)."""
        spec = self._any_spec
        return f"{spec.network.initialisation} start, {spec.learning.schedule} rate"

    @property
    def _any_spec(self) -> RunSpec:
        """For what all runs of the rule have in common."""
        return self.spec(1.0, {}, seed=0, epochs=1)

    @property
    def learning_rates(self) -> list[float]:
        """Those to choose from."""
        rates: list[float] = self.entry.get("learning_rates", self.config["remedies"]["tuning"]["learning_rates"])
        return rates

    def candidates(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Learning rates, each with every value of the rule's own setting."""
        rates = self.learning_rates
        ((key, values),) = self.entry.get("vary", {"": [None]}).items()
        if len(rates) > RATES or len(values) > VALUES:
            raise SpecError(
                f"remedies.rules: {self.name} has {len(rates)} rates and {len(values)} values to choose from; "
                f"the budget of every rule is {RATES} and {VALUES}"
            )
        for rate, value in itertools.product(rates, values):
            yield rate, {key: value} if key else {}

    def spec(self, lr: float, settings: Mapping[str, Any], *, seed: int, epochs: int) -> RunSpec:
        dataset, depth, method = self.cell
        spec = cell_spec(self.config, dataset, depth, method, seed, lr=lr)
        try:
            return spec.changed({"epochs": epochs, **self.entry.get("set", {}), **settings})
        except SpecError as error:
            raise SpecError(f"remedies.rules: {self.name}: {error}") from None

    def runs(self) -> Iterator[Run]:
        """The runs that are tuned on, then one per seed."""
        if not self.tuned:
            yield from cell_runs(self.config, *self.cell)
            return
        name = selection_name(self.config, *self.cell)
        swept: tuple[str, ...] = ("learning.lr",)
        for lr, settings in self.candidates():
            swept = ("learning.lr", *settings)
            yield self._candidate(name, lr, settings)
        for seed in self.config["seeds"]:
            spec = self.spec(lr, settings, seed=seed, epochs=self.config["training"]["epochs"])
            yield Run(f"{name}/selected/seed{seed}", spec, selection=name, swept=swept)

    def beyond(self) -> Iterator[Run]:
        """Candidates one step outside the grid, where its edge was chosen; no choice depends on them."""
        name = selection_name({"experiment": f"{self.config['experiment']}_beyond"}, *self.cell)
        for row in self.entry.get("beyond", []):
            if (row["dataset"], row["depth"]) == self.cell[:2]:
                settings = {key: value for key, value in row.items() if key not in ("dataset", "depth")}
                yield self._candidate(name, settings.pop("learning.lr"), settings)

    def _candidate(self, folder: str, lr: float, settings: Mapping[str, Any]) -> Run:
        """The run that tries a candidate."""
        tuning = self.config["remedies"]["tuning"]
        words = [f"lr{lr:g}", *(f"{key.rpartition('.')[2]}{value}" for key, value in settings.items())]
        spec = self.spec(lr, settings, seed=tuning["seed"], epochs=tuning["epochs"])
        return Run(f"{folder}/{'_'.join(words)}/seed{spec.seed}", spec, swept=("learning.lr", *settings))


def remedies(config: Config) -> list[Remedy]:
    """Every rule at every place, or at its own places, in the order of the configuration."""
    block = config["remedies"]
    found = []
    for entry in block["rules"]:
        for place in entry.get("cells", block["cells"]):
            derived = {**config, "seeds": place["seeds"]}
            if entry.get("tuned", True):
                derived["experiment"] = f"remedies/{entry['name']}"
            # An exception of its own stands in for the configuration's, so only where that has one.
            key = {"method": entry["method"], "depth": place["depth"]}
            if "exception" in entry and any(key.items() <= row.items() for row in config["exceptions"]):
                derived["exceptions"] = [*config["exceptions"], {**key, **entry["exception"]}]
            cell = (place["dataset"], place["depth"], entry["method"])
            found.append(Remedy(entry["name"], entry["title"], entry, derived, cell))
    return found


def remedy_runs(config: Config) -> Iterator[Run]:
    """The runs of all rules."""
    for remedy in remedies(config):
        yield from remedy.runs()
        yield from remedy.beyond()
