"""All runs that a configuration asks for: two blocks that ask for the same training share its record."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from highways.experiments import own_data
from highways.experiments.runs import MIXED, Config, Run
from highways.experiments.variants import Changes, Variant, setting_word, variants
from highways.specs.fields import SpecError
from highways.specs.run import RunSpec


@dataclass(frozen=True, eq=False)
class Plan:
    """The variants of every experiment, in the order of the configuration, and their runs, each once, by path."""

    config: Config
    variants: tuple[Variant, ...]
    runs: Mapping[str, Run]

    def of(self, experiment: str) -> list[Variant]:
        """The variants of a block; none where the configuration has no such block."""
        return [variant for variant in self.variants if variant.experiment == experiment]

    def places(self, experiment: str) -> list[tuple[str, int]]:
        """The data sets and depths of a block: data sets as they come, depths ascending."""
        found = dict.fromkeys(variant.place for variant in self.of(experiment))
        datasets = list(dict.fromkeys(dataset for dataset, _ in found))
        return sorted(found, key=lambda place: (datasets.index(place[0]), place[1]))

    def by_place(self, experiment: str) -> list[Variant]:
        """The variants of a block, place by place."""
        order = self.places(experiment)
        return sorted(self.of(experiment), key=lambda variant: order.index(variant.place))

    def first(self, dataset: str, depth: int, method: str) -> Variant | None:
        """The variant of the first experiment of the configuration at that place; None where it has none."""
        name = self.variants[0].experiment
        return next((one for one in self.of(name) if one.cell == (dataset, depth, method)), None)


def plan(config: Config) -> Plan:
    """What a configuration asks for; SpecError names the block and the row."""
    return _plan(json.dumps(config, sort_keys=True), own_data.state(config))


@lru_cache(maxsize=4)
def _plan(text: str, data: str) -> Plan:
    """`data` is for the cache alone: what the specifications say of own data sets changes with their files."""
    config = json.loads(text)
    records = _Records()
    found = []
    for block in config["experiments"]:
        told_apart: dict[Any, Variant] = {}
        for variant in variants(config, block):
            try:
                found.append(_told_apart(records.with_runs(variant), told_apart))
            except SpecError as error:
                raise SpecError(f"experiments: {block['name']}: {variant.title}: {error}") from None
    return Plan(config, tuple(found), records.runs)


def _told_apart(variant: Variant, others: dict[Any, Variant]) -> Variant:
    """The variant, once no other one of its block has its title, settings and place, and other runs."""
    key = (variant.title, variant.place, repr(variant.varied), repr(variant.scaled))
    if others.setdefault(key, variant).runs != variant.runs:
        raise SpecError(
            f"it stands twice at {variant.dataset}, depth {variant.depth}, with different runs; "
            "give one row another title, or put the seeds into one cell"
        )
    return variant


@dataclass
class _Records:
    """Where the records of the variants so far lie.

    places: the path by specification and whether the kernel is mixed.
    selections: the name by candidates and what they are chosen for.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    places: dict[tuple[RunSpec, bool], str] = field(default_factory=dict)
    selections: dict[Any, str] = field(default_factory=dict)

    def with_runs(self, variant: Variant) -> Variant:
        """The variant with its runs; a run that another one has asked for lies where that one put it."""
        choice = variant.choice
        if choice is None:
            runs = [
                self._run(variant, f"{variant.folder}/seed{seed}", variant.spec(seed)) for seed in variant.seeds
            ]
            return replace(variant, runs=tuple(runs))
        sweep = tuple(
            self._candidate(variant, variant.folder, settings, seed, choice.epochs)
            for settings in choice.candidates
            for seed in choice.seeds
        )
        asked_for = (frozenset(run.spec for run in sweep), variant.example, variant.kernel == MIXED)
        name = self.selections.setdefault(asked_for, variant.folder)
        others = [seed for seed in variant.seeds if not (variant.shares_seeds and seed in choice.seeds)]
        chosen = [
            Run(f"{name}/selected/seed{seed}", variant.spec(seed), name, choice.swept, sweep, variant.kernel)
            for seed in others
        ]
        kept = tuple(self._kept(variant, run) for run in chosen)
        return replace(variant, runs=(*sweep, *kept), beyond=self._beyond(variant))

    def _beyond(self, variant: Variant) -> tuple[Run, ...]:
        """Candidates one step outside the grid, as the row names them for places."""
        choice, found = variant.choice, []
        assert choice is not None
        for one in variant.row.get("beyond", []):
            if (one["dataset"], one["depth"]) == variant.place:
                settings = {key: value for key, value in one.items() if key not in ("dataset", "depth")}
                folder = f"{variant.folder}/beyond"
                found += [self._candidate(variant, folder, settings, seed, choice.epochs) for seed in choice.seeds]
        return tuple(found)

    def _candidate(self, variant: Variant, folder: str, settings: Changes, seed: int, epochs: int | None) -> Run:
        """The run that tries a candidate on a seed."""
        words = [setting_word(key, value) for key, value in settings.items()]
        spec = variant.spec(seed, settings, epochs)
        return self._run(variant, f"{folder}/{'_'.join(words)}/seed{seed}", spec, tuple(settings))

    def _run(self, variant: Variant, path: str, spec: RunSpec, swept: tuple[str, ...] = ("learning.lr",)) -> Run:
        kernel = variant.kernel
        place = self.places.setdefault((spec, kernel == MIXED), path)
        return self._kept(variant, Run(place, spec, swept=swept, kernel=kernel))

    def _kept(self, variant: Variant, run: Run) -> Run:
        """The run, once it is the only one of its path."""
        other = self.runs.setdefault(run.path, run)
        if (other.key, set(other.sweep)) != (run.key, set(run.sweep)):
            raise SpecError(
                f"two different runs would share the record {run.path}; give one of the two rows a name of its own"
            )
        return run
