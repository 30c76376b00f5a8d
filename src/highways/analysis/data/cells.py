"""Runs -> cells: what a table or a figure reports at one place, with its seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from highways.analysis.data.frame import load, usable
from highways.analysis.data.selection import Selection, select
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import CellKey, Config
from highways.experiments.variants import Variant

CHANCE = 10.0  # percent: the paper's data sets have ten classes


@dataclass(frozen=True, eq=False)
class Cell:
    """One method under one set of settings at one place, as a table or figure reports it.

    seeds: the seeds that the configuration asks for.
    runs: the rows of the frame that the cell reports, at most one per seed.
    sweep: all rows of its sweep; None where nothing is swept.
    selection: what was chosen; None where nothing is swept or can be chosen (yet).
    waiting: the rows of the runs that wait for the selection; None where none is awaited.
    """

    seeds: tuple[int, ...]
    runs: pd.DataFrame
    sweep: pd.DataFrame | None = None
    selection: Selection | None = None
    waiting: pd.DataFrame | None = None

    @cached_property
    def accuracies(self) -> dict[int, float]:
        """Test accuracy in percent by seed, for the runs that have one."""
        rows = self.runs.dropna(subset="test_accuracy").sort_values("seed")
        # Rounded, since a fraction times 100 has a binary tail (0.978 becomes 97.8000...1).
        return {int(s): round(100 * a, 9) for s, a in zip(rows["seed"], rows["test_accuracy"], strict=True)}

    @property
    def n(self) -> int:
        """The number of seeds with a test accuracy."""
        return len(self.accuracies)

    @property
    def mean(self) -> float | None:
        return fmean(self.accuracies.values()) if self.n else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation (ddof = 1); a single seed has none."""
        return stdev(self.accuracies.values()) if self.n > 1 else None

    @cached_property
    def diverged(self) -> tuple[int, ...]:
        """The seeds whose run diverged, whether it reached a test accuracy before or not."""
        return tuple(sorted(self.runs.loc[self.runs["status"] == "diverged", "seed"].tolist()))

    @property
    def lost(self) -> tuple[int, ...]:
        """The seeds whose run diverged without a test accuracy."""
        return tuple(seed for seed in self.diverged if seed not in self.accuracies)

    @property
    def _parts(self) -> list[pd.DataFrame]:
        return [self.runs] if self.sweep is None else [self.runs, self.sweep]

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with each record that cannot be used, by path."""
        rows = [part[part["status"] == "invalid"] for part in self._parts]
        return {path: text for part in rows for path, text in zip(part["path"], part["problem"], strict=True)}

    @property
    def records(self) -> list[str]:
        """The paths of the usable records that the cell reports."""
        return list(self.runs.loc[usable(self.runs), "path"])

    @property
    def drop(self) -> float | None:
        """The largest drop of a seed's validation accuracy below its best so far, in points."""
        drops = self.runs["validation_drop"].dropna()
        return round(100 * float(drops.max()), 9) if len(drops) else None

    @property
    def code_versions(self) -> int:
        """How many versions of the code made the records that the cell reports."""
        return int(self.runs.loc[usable(self.runs), "training_code"].nunique())

    @property
    def chosen_on(self) -> tuple[int, ...]:
        """The reported seeds whose runs also took part in the choice of the settings."""
        if self.sweep is None:
            return ()
        both = self.runs["path"].isin(self.sweep["path"])
        return tuple(sorted(self.runs.loc[both, "seed"].unique().tolist()))

    @property
    def finished(self) -> int:
        """The number of seeds with a usable record."""
        return self.n + len(self.lost)

    @property
    def swept(self) -> tuple[int, int]:
        """The number of sweep runs with a usable record, and of all sweep runs."""
        if self.sweep is None:
            return 0, 0
        return int(usable(self.sweep).sum()), len(self.sweep)

    @property
    def seconds_left(self) -> float:
        """Expected seconds, on one core, of the runs without a usable record."""
        if self.status == "diverged":
            return 0.0
        parts = self._parts if self.waiting is None else [*self._parts, self.waiting]
        return float(sum(part.loc[~usable(part), "expected_seconds"].sum() for part in parts))

    @property
    def numbers(self) -> dict[str, Any]:
        """The columns of a table's long form that describe the runs, with their values."""
        return {
            "mean": self.mean,
            "std": self.std,
            "n": self.n,
            "diverged": len(self.diverged),
            "values": ";".join(f"{value:g}" for value in self.accuracies.values()),
            "seeds": ";".join(str(seed) for seed in self.accuracies),
            "learning_rate": None if self.selection is None else self.selection.settings.get("learning.lr"),
            "validation_drop": self.drop,
            "code_versions": self.code_versions,
        }

    @property
    def status(self) -> str:
        """complete, partial, diverged (no seed has an accuracy), invalid or not run."""
        finished, asked = self.swept
        no_rate_survived = self.selection is None and 0 < asked == finished
        if no_rate_survived or len(self.lost) == len(self.seeds):
            return "diverged"
        if self.finished == len(self.seeds):
            return "complete"
        if self.finished:
            return "partial"
        return "invalid" if self.problems else "not run"

    @property
    def text(self) -> str:
        """The cell as a table prints it."""
        lost = f" ({len(self.lost)} diverged)" if self.lost else ""
        if self.mean is None:
            return lost.strip() or self.status
        if self.std is None:
            return f"{self.mean:.1f} (n=1){lost}"
        return f"{self.mean:.1f} ± {self.std:.1f} (n={self.n}){lost}"


def cells(variants: Iterable[Variant], folder: Folder) -> dict[Variant, Cell]:
    """The cell of every variant."""
    return {variant: cell(variant, folder) for variant in variants}


def cell(variant: Variant, folder: Folder) -> Cell:
    """The cell of a variant, read from the records of its runs."""
    rows = load({run.path: run for run in variant.runs}, folder)
    if variant.choice is None:
        return Cell(variant.seeds, rows)
    sweep = rows[~rows["selected"]]
    selection = select(rows)
    if selection is None:
        return Cell(variant.seeds, rows.iloc[:0], sweep, waiting=rows[rows["selected"]])
    # A full-length candidate is itself a run of the cell if it was chosen and its seed is reported.
    reported = variant.seeds if variant.shares_seeds else ()
    as_swept = sweep[(sweep["settings"] == selection.chosen) & sweep["seed"].isin(reported)]
    chosen = pd.concat([as_swept, _as_selected(rows[rows["selected"]], selection.chosen)])
    return Cell(variant.seeds, chosen, sweep, selection)


def depth_cells(config: Config, folder: Folder) -> dict[CellKey, Cell]:
    """The cells of accuracy against depth, by data set, depth and method."""
    return {variant.cell: found for variant, found in cells(plan(config).by_place("depth"), folder).items()}


def varied_cells(config: Config, folder: Folder, experiment: str, key: str) -> dict[Any, Cell]:
    """The cells of an experiment that varies one key, by the value of that key, ascending."""
    found = cells(plan(config).of(experiment), folder)
    return dict(sorted((variant.given[key], own) for variant, own in found.items()))


def strength_cells(config: Config, folder: Folder) -> dict[float, Cell]:
    """The cells of the strength sweep, by alpha."""
    return varied_cells(config, folder, "strength", "highway.alpha")


def density_cells(config: Config, folder: Folder) -> dict[int, Cell]:
    """The cells of the density sweep, by the spacing k."""
    return varied_cells(config, folder, "density", "highway.every")


def _as_selected(rows: pd.DataFrame, settings: str) -> pd.DataFrame:
    """The selected runs; a record made with other settings is marked invalid and loses its accuracies."""
    stale = usable(rows) & (rows["settings"] != settings)
    problems = [f"made with {_plain(own)}, but the sweep selects {_plain(settings)}" for own in rows["settings"]]
    marked = rows.assign(
        status=rows["status"].mask(stale, "invalid"),
        problem=rows["problem"].mask(stale, pd.Series(problems, index=rows.index, dtype="object")),
    )
    marked.loc[stale, ["test_accuracy", "validation_accuracy"]] = float("nan")
    return marked


def _plain(settings: str) -> str:
    return settings.strip("{}").translate(str.maketrans("", "", '":'))
