"""What we expected of the baselines before any was run, judged by the rules that judge the paper's claims."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from highways import paper
from highways.analysis.claims.criteria import CELL_RULES
from highways.analysis.claims.evidence import Sample, sample, stand_in
from highways.analysis.claims.parts import (
    CAVEAT,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Part,
    corrected,
    joined,
    overall,
)
from highways.analysis.claims.verdict import STATISTICS, Judged, in_words
from highways.analysis.data.cells import Cell
from highways.analysis.data.notes import conventions_note, kernel_notes, label, plain
from highways.analysis.data.rendering import Table
from highways.analysis.tables.baselines import baseline_cells, cell_name, marks, start
from highways.experiments.results import Folder
from highways.experiments.runs import CellKey, Config
from highways.experiments.variants import Variant
from highways.files import packaged

DATASETS = ["mnist"]  # every prediction is about MNIST
_FILE = "predictions.yaml"
_AT_ONE_RATE = "dkp_no_gain"  # compares two methods at one learning rate; the benchmark tunes each alone


def claims() -> list[Claim]:
    """The predictions, each with the rule that decides it."""
    return [{**claim, "datasets": DATASETS} for claim in packaged(_FILE)["claims"]]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The accuracies of the baselines, by their names in the configuration."""

    cells: Mapping[CellKey, Cell]
    titles: Mapping[str, str]
    starts: Mapping[CellKey, str]

    @classmethod
    def of(cls, found: Mapping[Variant, Cell]) -> "Benchmark":
        return cls(
            {(*variant.place, variant.name): cell for variant, cell in found.items()},
            {variant.name: label(variant) for variant in found},
            {(*variant.place, variant.name): start(variant) for variant in found},
        )

    def accuracy(self, dataset: str, depth: int, method: str) -> Sample | None:
        cell = self.cells.get((dataset, depth, method))
        column = {at: own for (where, at, name), own in self.cells.items() if (where, name) == (dataset, method)}
        printed = paper.accuracy(dataset, depth, method)
        return None if cell is None else sample(cell, stand_in(printed, column, depth))

    def _rate(self, dataset: str, depth: int, method: str) -> float | None:
        cell = self.cells.get((dataset, depth, method))
        chosen = None if cell is None else cell.selection
        return None if chosen is None else chosen.settings.get("learning.lr")

    def title(self, method: str) -> str:
        return self.titles[method]

    def different_starts(self, dataset: str, depth: int, methods: Iterable[str]) -> str:
        """In words, the initialisations and schedules of the methods; empty where all are equal."""
        starts = {method: self.starts[dataset, depth, method] for method in methods}
        if len(set(starts.values())) < 2:
            return ""
        return "not alike: " + ", ".join(f"{self.title(name)} has {start}" for name, start in starts.items())

    def different_rates(self, dataset: str, depth: int, methods: Iterable[str]) -> str:
        """In words, the learning rates chosen for the methods; empty where all are equal."""
        rates = [self._rate(dataset, depth, method) for method in methods]
        return f"tuned apart, to the rates {plain(rates)}" if len(set(rates)) > 1 else ""


def _parts(claim: Claim, by: Benchmark) -> Iterator[Part]:
    """The parts of a prediction, with a caveat where its two methods also differ in start or tuned rate."""
    compared = [claim[key] for key in ("method", "with", "than", "better") if key in claim]
    for depth, part in zip(claim["depths"], CELL_RULES[claim["rule"]](claim, by), strict=True):
        if part.verdict == NOT_RUN:
            yield part
            continue
        apart = by.different_starts(DATASETS[0], depth, compared)
        tuned = by.different_rates(DATASETS[0], depth, compared) if claim["id"] == _AT_ONE_RATE else ""
        verdict = part.verdict
        if verdict == HOLDS and (apart or tuned):
            verdict = CAVEAT
        elif tuned:
            verdict = UNDECIDED
        yield replace(part, verdict=verdict, caveat=joined(part.caveat, apart, tuned))


def judge(config: Config, folder: Folder) -> list[Judged]:
    """The verdict on every prediction, in the order of predictions.yaml."""
    return _judged(baseline_cells(config, folder))


def _judged(found: Mapping[Variant, Cell]) -> list[Judged]:
    by = Benchmark.of(found)
    parts = [(claim, corrected(_parts(claim, by))) for claim in claims()]
    return [
        Judged(claim["id"], claim["claim"], "", overall(own), own, "snakemake table_predictions")
        for claim, own in parts
    ]


def predictions(config: Config, folder: Folder) -> Table:
    """One row per prediction."""
    found = baseline_cells(config, folder)
    judged = _judged(found)
    rows = [
        {
            "Prediction": one.claim,
            "Why": claim["why"],
            "Verdict": one.text,
            "Evidence": one.evidence,
            "Caveats": one.caveats,
        }
        for claim, one in zip(claims(), judged, strict=True)
    ]
    written = packaged(_FILE)["date"]
    return Table(
        "predictions",
        f"What we expected of the baselines: of {len(judged)} predictions: {in_words(judged)}",
        pd.DataFrame(rows).set_index("Prediction"),
        pd.DataFrame([row for one in judged for row in one.long]).drop(columns="on_paper"),
        (
            f"Written on {written}, before any of them was run on this benchmark, and not changed since. What was "
            f"known then stands at the top of that file, src/highways/{_FILE}; three more runs of DFA, two "
            "at depth 16 and one at 32, had ended a quarter of an hour before (docs/baselines.md).",
            *STATISTICS,
            *marks(found),
            *kernel_notes({cell_name(variant): cell for variant, cell in found.items()}),
            conventions_note(config),
        ),
    )
