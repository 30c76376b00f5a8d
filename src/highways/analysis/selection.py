"""The choice of a learning rate from its sweep, on validation accuracy alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pandas as pd

from highways.record import RecordError


class SelectionError(RecordError):
    """A learning rate that cannot be chosen; the one-line message names the sweep runs at fault."""


@dataclass(frozen=True)
class Selection:
    """The chosen rate, and the mean validation accuracy (a fraction) of each; None where a run has none."""

    learning_rate: float
    validation_accuracy: Mapping[float, float | None]

    def to_dict(self) -> dict[str, Any]:
        accuracies = {f"{rate:g}": value for rate, value in self.validation_accuracy.items()}
        return {"learning_rate": self.learning_rate, "validation_accuracy": accuracies}


def select_learning_rate(frame: pd.DataFrame) -> Selection | None:
    """The rate with the best mean validation accuracy over the sweep seeds; of equal rates, the smaller.

    `frame` has the rows of one cell. A rate with a run that never reached a validation accuracy cannot be
    chosen. None where no rate can, and where a sweep run is missing: the choice would be unfair to its rate.
    """
    sweep = frame[~frame["selected"]]
    if not sweep["status"].isin(["ok", "diverged"]).all():
        return None
    accuracies: dict[float, float | None] = {}
    for rate in sorted(sweep["lr"].unique().tolist()):
        values = sweep.loc[sweep["lr"] == rate, "validation_accuracy"]
        # Rounded, so that the order of summation cannot break a tie.
        accuracies[rate] = None if values.isna().any() else round(fmean(values), 12)
    candidates = {rate: value for rate, value in accuracies.items() if value is not None}
    if not candidates:
        return None
    best = min(candidates, key=lambda rate: (-candidates[rate], rate))
    return Selection(best, accuracies)
