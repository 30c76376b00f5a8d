"""Does the paper hold? Every claim of paper.yaml, judged on records and traces, and on the paper's own numbers."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from highways import paper
from highways.analysis.cells import CHANCE
from highways.analysis.evidence import Ours, Published
from highways.analysis.notes import conventions_note
from highways.analysis.rendering import Table
from highways.analysis.rules import (
    ACCURACY_RULES,
    CAVEAT,
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Part,
    either,
    overall,
    shorter,
)
from highways.analysis.trace_rules import TRACE_RULES
from highways.files import write_text
from highways.readings import settings_of
from highways.record import RecordError
from highways.runs import Config

STATISTICS = (
    "A part of a claim holds, or does not, where a 95 % confidence interval lies wholly on one side of what is "
    "claimed: Student's for a mean, paired for two methods with the same seeds, else Welch's. For a single seed "
    "the paper's std of that cell stands in. In between it is undecided. That a mean lies in a "
    "range of the paper's holds where it does, and fails where its interval lies outside.",
    f"A seed that diverged without an accuracy counts as {CHANCE:g} %, chance.",
    "A claim holds with a caveat where some parts hold and others are undecided or not run, or where there are "
    "fewer than three seeds.",
)
METHOD = (
    *STATISTICS,
    "Runs of fewer epochs than the paper's can bear a claim out, with a caveat, but not refute it.",
    "The paper does not say which untrained network its diagnostic uses. A claim about it holds with a caveat "
    "where it holds in one of the two that we relax, and fails where it fails in both.",
    "By the paper's own numbers: the same rule on what the paper prints.",
)
_ELSEWHERE = Part("the paper's depth and steps", "not run", NOT_RUN)
_TARGETS = {"strength": "figure_strength", "density": "table_density", None: "table_depth"}
_SWEEPS = {"transition": "strength", "thinning": "density", "unstable": "density"}
_ORDER = (HOLDS, CAVEAT, UNDECIDED, NOT_RUN, FAILS)


@dataclass(frozen=True)
class Judged:
    """A claim with the verdict on it.

    place: where the paper claims it; empty for a prediction of ours.
    command: makes the runs or relaxations behind it.
    on_paper: the verdict of the same rule on the paper's own numbers; empty where it prints none.
    """

    id: str
    claim: str
    place: str
    verdict: str
    parts: tuple[Part, ...]
    command: str
    on_paper: str = ""

    @property
    def caveats(self) -> str:
        """Why it does not simply hold."""
        missing = [part.where for part in self.parts if part.verdict == NOT_RUN]
        reasons = [f"{part.where}: {part.caveat}" for part in self.parts if part.caveat]
        if self.verdict != FAILS:
            reasons += [f"{part.where}: {FAILS}" for part in self.parts if part.verdict == FAILS]
        return "; ".join([*reasons, *([f"not run: {', '.join(missing)}"] if missing else [])])

    @property
    def evidence(self) -> str:
        return "; ".join(f"{part.where}: {part.finding}" for part in self.parts)

    @property
    def long(self) -> list[dict[str, str]]:
        """One row per part, as data."""
        return [
            {
                "claim": self.id,
                "verdict": self.verdict,
                "on_paper": self.on_paper,
                "where": part.where,
                "finding": part.finding,
                "part_verdict": part.verdict,
                "caveat": part.caveat,
            }
            for part in self.parts
        ]


def judge(config: Config, runs: Path, traces: Path) -> list[Judged]:
    """The verdict on every claim, in the order of paper.yaml."""
    ours = Ours(config, runs, traces)
    judged: dict[str, Judged] = {}
    for claim in paper.claims():
        judged[claim["id"]] = _judged(claim, ours, judged)
    return list(judged.values())


def _judged(claim: Claim, ours: Ours, before: dict[str, Judged]) -> Judged:
    head = (claim["id"], claim["claim"], claim["place"])
    if claim["rule"] == "all_of":
        named = [before[name] for name in claim["claims"]]
        parts = tuple(Part(one.id, one.verdict, one.verdict, one.caveats) for one in named)
        commands = dict.fromkeys(one.command for one in named)
        return Judged(*head, overall(parts), parts, "; ".join(commands))
    if claim["rule"] in TRACE_RULES:
        parts = tuple(TRACE_RULES[claim["rule"]](claim, ours)) if ours.relaxes_as_the_paper else (_ELSEWHERE,)
        verdict = (overall if claim["rule"] == "arrival" else either)(parts)  # a law is to hold in every network
        return Judged(*head, verdict, parts, "snakemake propagation")
    rule, sweep = ACCURACY_RULES[claim["rule"]], _SWEEPS.get(claim["rule"])
    parts = shorter(list(rule(claim, ours)), ours.epochs(sweep), paper.epochs())
    theirs = overall(rule(claim, Published()))
    command = f"snakemake {_TARGETS[sweep]}"
    return Judged(*head, overall(parts), parts, command, "" if theirs == NOT_RUN else theirs)


def counts(judged: Iterable[Judged]) -> dict[str, int]:
    """How many of each verdict."""
    found = Counter(one.verdict for one in judged)
    return {verdict: found[verdict] for verdict in _ORDER}


def document(config: Config, judged: list[Judged], predicted: Sequence[Judged] = ()) -> dict[str, Any]:
    """The verdict on the paper's claims, and on our predictions, as plain data."""
    return {
        "counts": counts(judged),
        "reading": settings_of(config),
        "claims": _plain(judged),
        "predictions": _plain(predicted),
    }


def _plain(judged: Iterable[Judged]) -> list[dict[str, Any]]:
    return [{**asdict(one), "caveats": one.caveats} for one in judged]


def in_words(judged: Iterable[Judged]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts(judged).items())


def write(path: Path, verdict: dict[str, Any]) -> None:
    """Write what `document` returns."""
    write_text(path, json.dumps(verdict, indent=1, ensure_ascii=False) + "\n")


def lost(judged: list[Judged], path: Path) -> list[str]:
    """The claims that held in the verdict of that file and do not now; RecordError where it is none."""
    try:
        before = {
            claim["id"]: claim["verdict"] for claim in json.loads(path.read_text(encoding="utf-8"))["claims"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: not a verdict ({error}); make it with `highways verdict --out {path}`"
        ) from None
    now = {one.id: one.verdict for one in judged}
    held = {name for name, verdict in before.items() if verdict in (HOLDS, CAVEAT)}
    return sorted(name for name in held if now.get(name) not in (HOLDS, CAVEAT))


def table(config: Config, judged: list[Judged]) -> Table:
    """One row per claim."""
    rows = [
        {
            "Claim": one.claim,
            "Verdict": one.verdict,
            "Evidence": one.evidence,
            "Caveats": one.caveats,
            "By the paper's own numbers": one.on_paper or "—",
            "Where": one.place,
        }
        for one in judged
    ]
    data = [row for one in judged for row in one.long]
    return Table(
        "verdict",
        f"Does the paper hold? Of {len(judged)} claims: {in_words(judged)}",
        pd.DataFrame(rows).set_index("Claim"),
        pd.DataFrame(data),
        (*METHOD, conventions_note(config)),
    )
