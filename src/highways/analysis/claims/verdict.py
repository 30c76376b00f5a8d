"""Does the paper hold? Judges every claim of paper.yaml by records, traces and the paper's own numbers."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from highways import paper
from highways.analysis.claims.criteria import ACCURACY_RULES
from highways.analysis.claims.evidence import Ours, Published
from highways.analysis.claims.measures import MEASURES
from highways.analysis.claims.parts import (
    BORNE_OUT,
    CAVEAT,
    CHECKED,
    FAILS,
    HOLDS,
    MEASURED,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Part,
    corrected,
    coverage,
    either,
    overall,
    shorter,
)
from highways.analysis.claims.trace_criteria import PRINTED_RULES, TRACE_RULES
from highways.analysis.data.cells import CHANCE
from highways.analysis.data.notes import conventions_note
from highways.analysis.data.rendering import Table
from highways.experiments.readings import settings_of
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.files import write_text
from highways.record import RecordError

STATISTICS = (
    "A part of a claim holds where a 95 % confidence interval lies wholly in the region that is claimed, fails "
    "where it lies wholly outside, and is undecided in between: Student's for a mean, paired for two methods on "
    "the same seeds, else Welch's. Where it is undecided the evidence says whether every seed lies on one side.",
    "One seed bears a part out, with a caveat, or leaves it undecided, and never refutes it. Its std is a "
    "stand-in: the larger of the paper's there and ours in the nearest cell that has three seeds.",
    f"A seed that diverged without an accuracy counts as {CHANCE:g} %, chance.",
    "A claim is as strong as the weakest of its parts that were run. It holds with a caveat where some are not "
    "run or have fewer than three seeds, and does not hold where a part is refuted at 2.5 % after Holm's "
    "correction for the number of parts that were tested.",
)
METHOD = (
    *STATISTICS,
    "A claim about very deep networks is undecided while its deepest cell is not run.",
    "Runs of fewer epochs than the paper's can bear a claim out, with a caveat, but not refute it.",
    "The paper does not say which untrained network its diagnostic uses. A claim about it is judged in two, and "
    "holds with a caveat where it holds in one; the verdict says in which.",
    "What follows from the equations is checked numerically and stands apart, and so does what is only measured.",
    "By the paper's own numbers: the same rule on what the paper prints.",
)
_ELSEWHERE = Part("the paper's depth and steps", "not run", NOT_RUN)
_TARGETS = {"strength": "figure_strength", "density": "table_density", None: "table_depth"}
_ABLATIONS, _TRACES = "table_ablations", "snakemake propagation"
_SWEEPS = {"transition": "strength", "thinning": "density", "unstable": "density"}
_ORDER = (HOLDS, CAVEAT, UNDECIDED, NOT_RUN, FAILS, CHECKED, MEASURED)


@dataclass(frozen=True)
class Judged:
    """A claim with the verdict on it.

    place: where the paper claims it; empty for a prediction of ours.
    command: the command that makes the runs or relaxations behind it.
    on_paper: the verdict of the same rule on the paper's own numbers; empty where it prints none.
    of_claims: whether its parts are other claims.
    """

    id: str
    claim: str
    place: str
    verdict: str
    parts: tuple[Part, ...]
    command: str
    on_paper: str = ""
    of_claims: bool = False

    @property
    def text(self) -> str:
        """The verdict, with how many of its parts bear it out where they differ."""
        return f"{self.verdict} ({self.covered})" if self.covered else self.verdict

    @property
    def covered(self) -> str:
        """How many parts bear the claim out; for a claim on traces also the networks in which it holds."""
        holding = [part.where for part in self.parts if part.verdict in BORNE_OUT]
        if self.command == _TRACES and 0 < len(holding) < len(self.parts):
            return f"in {len(holding)} of {len(self.parts)} networks: {', '.join(holding)}"
        return coverage(self.parts)

    @property
    def caveats(self) -> str:
        """The caveats of its parts, the parts not run, and the failed parts of a claim that does not fail."""
        missing = [part.where for part in self.parts if part.verdict == NOT_RUN]
        reasons = [f"{part.where}: {part.caveat}" for part in self.parts if part.caveat]
        if self.verdict != FAILS:
            reasons += [f"{part.where}: {FAILS}" for part in self.parts if part.verdict == FAILS]
        return "; ".join([*reasons, *([f"not run: {', '.join(missing)}"] if missing else [])])

    @property
    def evidence(self) -> str:
        return "; ".join(f"{part.where}: {part.finding}" for part in self.parts)

    @property
    def long(self) -> list[dict[str, Any]]:
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
                "p": part.p,
            }
            for part in self.parts
        ]


def judge(config: Config, runs: Folder, traces: Folder) -> list[Judged]:
    """The verdict on every claim, in the order of paper.yaml."""
    ours = Ours(config, runs, traces)
    judged: dict[str, Judged] = {}
    for claim in paper.claims():
        judged[claim["id"]] = _judged(claim, ours, judged)
    return list(judged.values())


def _judged(claim: Claim, ours: Ours, before: dict[str, Judged]) -> Judged:
    head = (claim["id"], claim["claim"], claim["place"])
    rule = claim["rule"]
    if rule == "all_of":
        named = [before[name] for name in claim["claims"]]
        parts = tuple(Part(one.id, one.text, one.verdict, one.caveats) for one in named)
        commands = dict.fromkeys(one.command for one in named)
        return Judged(*head, overall(parts), parts, "; ".join(commands), of_claims=True)
    theirs = on_paper(claim)
    if rule in TRACE_RULES:
        parts = tuple(TRACE_RULES[rule](claim, ours)) if ours.relaxes_as_the_paper else (_ELSEWHERE,)
        if not claim.get("theorem"):
            return Judged(*head, either(parts), parts, _TRACES, theirs)
        parts = tuple(replace(one, verdict=CHECKED if one.verdict in BORNE_OUT else one.verdict) for one in parts)
        return Judged(*head, overall(parts), parts, _TRACES, theirs)
    if rule in MEASURES:
        parts = tuple(MEASURES[rule](claim, ours))
        return Judged(*head, overall(parts), parts, "snakemake table_baselines")
    sweep = _SWEEPS.get(rule)
    found = shorter(tuple(ACCURACY_RULES[rule](claim, ours)), ours.epochs(sweep), paper.epochs())
    parts = corrected(found)
    target = _ABLATIONS if claim.get("ablations") else _TARGETS[sweep]
    return Judged(*head, overall(parts), parts, f"snakemake {target}", theirs)


def on_paper(claim: Claim) -> str:
    """The verdict of the same rule on what the paper prints; empty where it prints nothing that the rule needs."""
    rule = claim["rule"]
    if rule in PRINTED_RULES:
        return overall(PRINTED_RULES[rule](claim))
    if rule in TRACE_RULES or rule in MEASURES:
        return ""
    found = overall(corrected(ACCURACY_RULES[rule](claim, Published())))
    return "" if found == NOT_RUN else found


def counts(judged: Iterable[Judged]) -> dict[str, int]:
    """The number of claims with each verdict."""
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
    return [{**asdict(one), "text": one.text, "caveats": one.caveats} for one in judged]


def in_words(judged: Iterable[Judged]) -> str:
    """In words, the number of claims with each verdict, and of their parts that are not run."""
    judged = list(judged)
    named = ", ".join(f"{number} {name}" for name, number in counts(judged).items() if number)
    run, left = parts_not_run(judged)
    return f"{named}; {left} of {run + left} parts not run"


def parts_not_run(judged: Iterable[Judged]) -> tuple[int, int]:
    """How many parts of the claims are run, and how many are not; claims made of others are left out."""
    parts = [part for one in judged for part in one.parts if not one.of_claims]
    left = sum(part.verdict == NOT_RUN for part in parts)
    return len(parts) - left, left


def write(path: Path, verdict: dict[str, Any]) -> None:
    """Write what `document` returns."""
    write_text(path, json.dumps(verdict, indent=1, ensure_ascii=False) + "\n")


def lost(judged: list[Judged], path: Path) -> list[str]:
    """The ids of claims that held in a verdict file and no longer hold; RecordError if it is no verdict."""
    try:
        before = {
            claim["id"]: claim["verdict"] for claim in json.loads(path.read_text(encoding="utf-8"))["claims"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: not a verdict ({error}); make it with `highways verdict --out {path}`"
        ) from None
    now = {one.id: one.verdict for one in judged}
    held = {name for name, verdict in before.items() if verdict in BORNE_OUT}
    return sorted(name for name in held if now.get(name) not in BORNE_OUT)


def table(config: Config, judged: list[Judged]) -> Table:
    """One row per claim."""
    rows = [
        {
            "Claim": one.claim,
            "Verdict": one.text,
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
