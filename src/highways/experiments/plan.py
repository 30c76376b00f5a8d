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
        """The (data set, depth) pairs of a block: data sets in order of appearance, depths ascending."""
        found = dict.fromkeys(variant.place for variant in self.of(experiment))
        datasets = list(dict.fromkeys(dataset for dataset, _ in found))
        return sorted(found, key=lambda place: (datasets.index(place[0]), place[1]))

    def by_place(self, experiment: str) -> list[Variant]:
        """The variants of a block in the order of `places`."""
        order = self.places(experiment)
        return sorted(self.of(experiment), key=lambda variant: order.index(variant.place))

    def first(self, dataset: str, depth: int, method: str) -> Variant | None:
        """The first experiment's variant of a method at that data set and depth; None where it has none."""
        name = self.variants[0].experiment
        return next((one for one in self.of(name) if one.cell == (dataset, depth, method)), None)


def plan(config: Config) -> Plan:
    """What a configuration asks for; SpecError names the block and the row."""
    return _plan(json.dumps(config, sort_keys=True), own_data.state(config))


@lru_cache(maxsize=4)
def _plan(text: str, data: str) -> Plan:
    """Build the plan; `data` is only a cache key: the specs of own data sets change with their files."""
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
    """The variant; SpecError where another of its block has its title, place and settings but other runs."""
    key = (variant.title, variant.place, repr(variant.varied), repr(variant.scaled))
    if others.setdefault(key, variant).runs != variant.runs:
        raise SpecError(
            f"it stands twice at {variant.dataset}, depth {variant.depth}, with different runs; "
            "give one row another title, or put the seeds into one cell"
        )
    return variant


def _record_of(run: Run) -> Any:
    """What two runs of one path must have in common: all that decides which record serves them."""
    return run.spec, run.kernel == MIXED, frozenset(run.sweep)


@dataclass
class _Records:
    """The runs planned so far, by path, and the paths of their records.

    places: the path by (spec, whether the kernel is `mixed`).
    selections: the name by (candidate specs, the variant's spec of seed 0, whether the kernel is `mixed`).
    """

    runs: dict[str, Run] = field(default_factory=dict)
    places: dict[tuple[RunSpec, bool], str] = field(default_factory=dict)
    selections: dict[Any, str] = field(default_factory=dict)

    def with_runs(self, variant: Variant) -> Variant:
        """The variant with its runs; a run that an earlier variant asked for keeps the path it has there."""
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
        """The candidates one step outside the grid that the row lists under `beyond` for this place."""
        choice, found = variant.choice, []
        assert choice is not None
        for one in variant.row.get("beyond", []):
            if (one["dataset"], one["depth"]) == variant.place:
                settings = {key: value for key, value in one.items() if key not in ("dataset", "depth")}
                folder = f"{variant.folder}/beyond"
                found += [self._candidate(variant, folder, settings, seed, choice.epochs) for seed in choice.seeds]
        return tuple(found)

    def _candidate(self, variant: Variant, folder: str, settings: Changes, seed: int, epochs: int | None) -> Run:
        """The run of a candidate on one seed."""
        words = [setting_word(key, value) for key, value in settings.items()]
        spec = variant.spec(seed, settings, epochs)
        return self._run(variant, f"{folder}/{'_'.join(words)}/seed{seed}", spec, tuple(settings))

    def _run(self, variant: Variant, path: str, spec: RunSpec, swept: tuple[str, ...] = ("learning.lr",)) -> Run:
        kernel = variant.kernel
        place = self.places.setdefault((spec, kernel == MIXED), path)
        return self._kept(variant, Run(place, spec, swept=swept, kernel=kernel))

    def _kept(self, variant: Variant, run: Run) -> Run:
        """The run; SpecError where its path is that of a different run."""
        other = self.runs.setdefault(run.path, run)
        if other is not run and _record_of(other) != _record_of(run):
            raise SpecError(
                f"two different runs would share the record {run.path}; give one of the two rows a name of its own"
            )
        return run
