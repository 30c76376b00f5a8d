"""The choice of a learning rate, and of what else was swept, on validation accuracy alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pandas as pd

from highways.analysis.data.frame import usable
from highways.experiments.runs import short
from highways.record import RecordError


class SelectionError(RecordError):
    """Settings that cannot be chosen; the one-line message names the sweep runs at fault."""


@dataclass(frozen=True)
class Selection:
    """The chosen settings, and each candidate's mean validation accuracy: a fraction, None if a run has none.

    Settings are JSON objects by dotted key.
    """

    chosen: str
    validation_accuracy: Mapping[str, float | None]

    @property
    def settings(self) -> dict[str, Any]:
        return dict(json.loads(self.chosen))

    @property
    def best(self) -> float:
        """The mean validation accuracy of the chosen settings; 0 where every candidate diverged."""
        return self.validation_accuracy[self.chosen] or 0.0

    @property
    def edges(self) -> tuple[str, ...]:
        """The keys, each with its value, where the lowest or highest of several numbers was chosen."""
        found = []
        for key, value in self.settings.items():
            values = {json.loads(one)[key] for one in self.validation_accuracy}
            if len(values) > 1 and not isinstance(value, bool | str) and value in (min(values), max(values)):
                found.append(f"{short(key)} {value:g}")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        candidates = [
            {"settings": json.loads(text), "validation_accuracy": value}
            for text, value in self.validation_accuracy.items()
        ]
        return {"settings": self.settings, "candidates": candidates}


def select(frame: pd.DataFrame) -> Selection | None:
    """The candidate of best mean validation accuracy over the sweep seeds; of equal ones, that of lower rate.

    `frame` has the rows of one cell. A candidate with a run without a validation accuracy cannot be chosen.
    None where no candidate can be, or a sweep run has no usable record, since it might be the best.
    """
    sweep = frame[~frame["selected"]].sort_values("lr", kind="stable")
    if not usable(sweep).all():
        return None
    accuracies: dict[str, float | None] = {}
    for settings in sweep["settings"].unique().tolist():
        values = sweep.loc[sweep["settings"] == settings, "validation_accuracy"]
        # Rounded, so that the order of summation cannot break a tie.
        accuracies[settings] = None if values.isna().any() else round(fmean(values), 12)
    candidates = {settings: value for settings, value in accuracies.items() if value is not None}
    if not candidates:
        return None
    return Selection(max(candidates, key=lambda settings: candidates[settings]), accuracies)
