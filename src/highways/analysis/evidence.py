"""What the claims are judged on: test accuracies, ours or the paper's, with their uncertainty; and traces."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Protocol

from scipy import stats

from highways import paper
from highways.analysis.cells import CHANCE, Cell, density_cells, depth_cells, strength_cells
from highways.analysis.propagation import traces
from highways.methods import METHODS
from highways.propagation.spec import Propagation
from highways.propagation.trace import Trace
from highways.runs import CellKey, Config, sweep_config

CONFIDENCE = 0.95
FULL = 3  # seeds of the paper


@dataclass(frozen=True)
class Sample:
    """Test accuracies of one cell in percent.

    std: of the sample; for one seed the paper's std of that cell, which stands in for it.
    seeds: the accuracies by seed where they are known.
    lost: how many of them diverged without an accuracy and count at chance.
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
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the mean: Student's, and normal where the std is a stand-in."""
        half = _quantile(self.n - 1 if self.n > 1 else math.inf) * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half


def difference(a: Sample, b: Sample) -> tuple[float, float, float]:
    """mean(a) - mean(b), and its confidence interval: paired where both have the same seeds, else Welch's."""
    gap = a.mean - b.mean
    shared = sorted(a.seeds)
    if len(shared) > 1 and shared == sorted(b.seeds):
        pairs = [a.seeds[seed] - b.seeds[seed] for seed in shared]
        half = _quantile(len(pairs) - 1) * stdev(pairs) / math.sqrt(len(pairs))
    else:
        parts = [sample.std**2 / sample.n for sample in (a, b)]
        known = [(part, sample.n - 1) for part, sample in zip(parts, (a, b), strict=True) if sample.n > 1]
        spread = sum(part**2 / freedom for part, freedom in known)
        half = _quantile(sum(parts) ** 2 / spread if spread > 0 else math.inf) * math.sqrt(sum(parts))
    return gap, gap - half, gap + half


def _quantile(freedom: float) -> float:
    probability = 0.5 + CONFIDENCE / 2
    return float(stats.norm.ppf(probability) if math.isinf(freedom) else stats.t.ppf(probability, freedom))


class Accuracies(Protocol):
    """Where a rule finds accuracies, and what their methods are called; None where there is none."""

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None: ...

    def title(self, method: str) -> str: ...


class Sweeps(Accuracies, Protocol):
    """The same with the sweeps of the paper."""

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
    runs: Path
    traces_folder: Path

    @cached_property
    def _depth(self) -> dict[CellKey, Cell]:
        return depth_cells(self.config, self.runs)

    @cached_property
    def _strength(self) -> dict[float, Cell]:
        return strength_cells(self.config, self.runs)

    @cached_property
    def _density(self) -> dict[int, Cell]:
        return density_cells(self.config, self.runs)

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None:
        cell = self._depth.get((dataset, depth, method))
        return None if cell is None else sample(cell, paper.accuracy(dataset, depth, method))

    def strength(self) -> Mapping[float, Sample | None]:
        block = self.config["strength_sweep"]
        if (block["dataset"], block["depth"]) != paper.strength_place():
            return {}
        printed = paper.accuracy(block["dataset"], block["depth"], "hep")
        return {alpha: sample(cell, printed) for alpha, cell in self._strength.items()}

    def epochs(self, sweep: str | None) -> int:
        """The epochs of the runs of a sweep, strength or density, or of the table."""
        config = self.config if sweep is None else sweep_config(self.config, sweep)
        return int(config["training"]["epochs"])

    def density(self, every: int) -> Sample | None:
        block = self.config["density_sweep"]
        if every not in paper.spacings(block["dataset"], block["depth"]):
            return None
        cell = self._density.get(every)
        printed = paper.density(block["dataset"], block["depth"], every)
        return None if cell is None else sample(cell, printed)

    @property
    def relaxes_as_the_paper(self) -> bool:
        """Whether the traces have the paper's depth, steps and step size."""
        block = self.config["propagation"]
        return {key: block[key] for key in paper.relaxation()} == paper.relaxation()

    def traces(self, wanted: Sequence[Propagation]) -> list[Trace]:
        return traces(wanted, self.traces_folder)


def sample(cell: Cell, printed: paper.Published | None) -> Sample | None:
    """The accuracies of a cell; a single seed has the spread that the paper prints there, or 1 point.

    A seed that diverged without an accuracy counts at chance; where every rate of a sweep diverged all seeds do.
    """
    lost = cell.seeds if cell.status == "diverged" else cell.lost
    seeds = {**cell.accuracies, **dict.fromkeys(lost, CHANCE)}
    if not seeds:
        return None
    stand_in = max(0.1, printed.std) if printed else 1.0
    std = stdev(seeds.values()) if len(seeds) > 1 else stand_in
    return Sample(fmean(seeds.values()), std, len(seeds), seeds, len(lost))


def _published(printed: paper.Published | None) -> Sample | None:
    return None if printed is None else Sample(printed.mean, printed.std, FULL)
