"""The evidence on claims: test accuracies, ours or the paper's, with their uncertainty, and traces."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, Protocol

from scipy import stats

from highways import paper
from highways.analysis.data.cells import CHANCE, Cell, cells, density_cells, depth_cells, strength_cells
from highways.analysis.data.propagation import traces
from highways.analysis.tables.baselines import baseline_cells
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import CellKey, Config, Run
from highways.experiments.variants import Variant
from highways.methods import METHODS
from highways.propagation.spec import Propagation
from highways.propagation.trace import Trace

CONFIDENCE = 0.95
FULL = 3  # seeds of the paper


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty.

    error: its standard error. freedom: degrees of freedom of Student's t; infinite where the spread is a stand-in.
    alone: the values of the single seeds or pairs of seeds, or only their two extremes; empty where unknown.
    chance: the probability, as text such as 1/8, that all of them lie on one given side of their true median.
    """

    value: float
    error: float
    freedom: float = math.inf
    alone: tuple[float, ...] = ()
    chance: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval."""
        half = float(self._law.ppf(0.5 + CONFIDENCE / 2)) * self.error
        return self.value - half, self.value + half

    def below(self, limit: float) -> float:
        """One-sided p: how likely an estimate as low as this is where the truth is the limit."""
        if self.error == 0.0:
            return 0.0 if self.value < limit else 1.0
        return float(self._law.cdf((self.value - limit) / self.error))

    def above(self, limit: float) -> float:
        """One-sided p: how likely an estimate as high as this is where the truth is the limit."""
        return Estimate(-self.value, self.error, self.freedom).below(-limit)

    @property
    def _law(self) -> Any:
        return stats.norm if math.isinf(self.freedom) else stats.t(self.freedom)


@dataclass(frozen=True)
class Sample:
    """Test accuracies of one cell in percent.

    std: of the sample; for one seed a stand-in (`stand_in`).
    seeds: the accuracies by seed where they are known.
    lost: how many of the seeds diverged without an accuracy and count at chance.
    """

    mean: float
    std: float
    n: int
    seeds: Mapping[int, float] = field(default_factory=dict)
    lost: int = 0

    @property
    def text(self) -> str:
        spread = "" if self.n == 1 else f" ± {self.std:.1f}"
        lost = f", {self.lost} diverged" if self.lost else ""
        return f"{self.mean:.1f}{spread} (n={self.n}{lost})"

    @property
    def estimate(self) -> Estimate:
        """The mean."""
        alone = tuple(self.seeds.values())
        return replace(combined((1.0, self)), alone=alone, chance=f"1/{2 ** len(alone)}")


def combined(*terms: tuple[float, Sample]) -> Estimate:
    """The sum of means times weights, with Welch's degrees of freedom; a stand-in std counts as exact."""
    parts = [(weight**2 * sample.std**2 / sample.n, sample.n - 1) for weight, sample in terms]
    variance = sum(part for part, _ in parts)
    unsure = sum(part**2 / freedom for part, freedom in parts if freedom)
    value = sum(weight * sample.mean for weight, sample in terms)
    return Estimate(value, math.sqrt(variance), variance**2 / unsure if unsure > 0 else math.inf)


def difference(a: Sample, b: Sample) -> Estimate:
    """mean(a) - mean(b): paired where both have the same seeds, else Welch's."""
    shared = sorted(a.seeds)
    if len(shared) > 1 and shared == sorted(b.seeds):
        pairs = tuple(a.seeds[seed] - b.seeds[seed] for seed in shared)
        error = stdev(pairs) / math.sqrt(len(pairs))
        return Estimate(a.mean - b.mean, error, len(pairs) - 1, pairs, f"1/{2 ** len(pairs)}")
    estimate = combined((1.0, a), (-1.0, b))
    if not (a.seeds and b.seeds):
        return estimate
    ours, theirs = a.seeds.values(), b.seeds.values()
    extremes = (min(ours) - max(theirs), max(ours) - min(theirs))
    return replace(estimate, alone=extremes, chance=f"1/{math.comb(a.n + b.n, a.n)}")


class Accuracies(Protocol):
    """The interface through which a rule finds accuracies, None where there are none, and method titles."""

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None: ...

    def title(self, method: str) -> str: ...


class Sweeps(Accuracies, Protocol):
    """`Accuracies` with the paper's sweeps: by highway strength alpha, and by spacing k (`every`)."""

    def strength(self) -> Mapping[float, Sample | None]: ...

    def density(self, every: int) -> Sample | None: ...


class _Methods:
    """Accuracies of the methods of the registry."""

    def title(self, method: str) -> str:
        return METHODS[method].title


class Published(_Methods):
    """The paper's own numbers. It prints none of the strength sweep."""

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None:
        return _published(paper.accuracy(dataset, depth, method))

    def strength(self) -> Mapping[float, Sample | None]:
        return {}

    def density(self, every: int) -> Sample | None:
        return _published(paper.density("mnist", 32, every))


@dataclass(frozen=True, eq=False)
class Ours(_Methods):
    """The records and traces of this project."""

    config: Config
    runs: Folder
    traces_folder: Folder

    @cached_property
    def _depth(self) -> dict[CellKey, Cell]:
        return depth_cells(self.config, self.runs)

    @cached_property
    def _strength(self) -> dict[float, Cell]:
        return strength_cells(self.config, self.runs)

    @cached_property
    def _density(self) -> dict[int, Cell]:
        return density_cells(self.config, self.runs)

    @cached_property
    def _ablations(self) -> dict[tuple[str, int, str], tuple[str, Cell]]:
        """The title and the cell of every ablation, by data set, depth and name."""
        found = cells(plan(self.config).of("ablations"), self.runs)
        return {(*variant.place, variant.name): (variant.title, cell) for variant, cell in found.items()}

    @cached_property
    def baselines(self) -> Mapping[Variant, Cell]:
        return baseline_cells(self.config, self.runs)

    @property
    def all_runs(self) -> Mapping[str, Run]:
        """The runs of the configuration, by path."""
        return plan(self.config).runs

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None:
        """The accuracies of a method in the table of depth, or of the ablation with that name."""
        if method not in METHODS:
            places = self._ablations.items()
            found = {at: cell for (where, at, name), (_, cell) in places if (where, name) == (dataset, method)}
            return None if depth not in found else sample(found[depth], stand_in(None, found, depth))
        cell = self._depth.get((dataset, depth, method))
        return None if cell is None else sample(cell, self._spread(dataset, depth, method))

    def _spread(self, dataset: str, depth: int, method: str) -> float:
        cells = self._depth.items()
        column = {at: cell for (where, at, name), cell in cells if (where, name) == (dataset, method)}
        return stand_in(paper.accuracy(dataset, depth, method), column, depth)

    def title(self, method: str) -> str:
        if method in METHODS:
            return super().title(method)
        return next(title for (_, _, name), (title, _) in self._ablations.items() if name == method)

    def strength(self) -> Mapping[float, Sample | None]:
        places = {variant.place for variant in plan(self.config).of("strength")}
        if places != {paper.strength_place()}:
            return {}
        table = self._spread(*paper.strength_place(), "hep")
        return {alpha: sample(cell, table) for alpha, cell in self._strength.items()}

    def epochs(self, sweep: str | None) -> int:
        """The epochs of a sweep's runs, strength or density; without one, those of the configuration."""
        own = [] if sweep is None else plan(self.config).of(sweep)
        return own[0].example.epochs if own else int(self.config["training"]["epochs"])

    def density(self, every: int) -> Sample | None:
        places = {variant.place for variant in plan(self.config).of("density")}
        if len(places) != 1 or every not in paper.spacings(*(place := places.pop())):
            return None
        cell = self._density.get(every)
        printed = paper.density(*place, every)
        return None if cell is None else sample(cell, stand_in(printed, self._density, every))

    @property
    def relaxes_as_the_paper(self) -> bool:
        """Whether the traces have the paper's depth, steps and step size."""
        block = self.config["propagation"]
        return block is not None and {key: block[key] for key in paper.relaxation()} == paper.relaxation()

    def traces(self, wanted: Sequence[Propagation]) -> list[Trace]:
        return traces(wanted, self.traces_folder)


def sample(cell: Cell, spread: float) -> Sample | None:
    """The accuracies of a cell, None without any; `spread` is the std of a single seed.

    A seed that diverged without an accuracy counts at chance; where every rate of a sweep diverged all seeds do.
    """
    lost = cell.seeds if cell.status == "diverged" else cell.lost
    seeds = {**cell.accuracies, **dict.fromkeys(lost, CHANCE)}
    if not seeds:
        return None
    std = stdev(seeds.values()) if len(seeds) > 1 else spread
    return Sample(fmean(seeds.values()), std, len(seeds), seeds, len(lost))


def stand_in(printed: paper.Published | None, column: Mapping[int, Cell], place: int) -> float:
    """The std of one seed, in points: the larger of the paper's and ours in the nearest cell of three seeds.

    column: our cells by depth, or by spacing; the nearest has the smallest ratio to `place`. 1 where both are
    missing, and never less than 0.1, since the paper prints one digit.
    """
    full = {at: found for at, cell in column.items() if (found := sample(cell, 0.0)) and found.n >= FULL}
    known = [] if printed is None else [printed.std]
    if full:
        known.append(full[min(full, key=lambda at: (abs(math.log2(at / place)), at))].std)
    return max(0.1, *known) if known else 1.0


def _published(printed: paper.Published | None) -> Sample | None:
    return None if printed is None else Sample(printed.mean, printed.std, FULL)
