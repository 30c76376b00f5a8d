"""The parts of a claim, the verdict on each and the verdict on the claim; see docs/verdict.md."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from highways.analysis.claims.evidence import CONFIDENCE, FULL, Estimate, Sample

HOLDS, CAVEAT, FAILS, NOT_RUN = "holds", "holds with a caveat", "does not hold", "not run"
UNDECIDED = "undecided"
CHECKED = "follows from the equations, checked numerically"
MEASURED = "measured, not judged"
BORNE_OUT = (HOLDS, CAVEAT, CHECKED)
LEVEL = (1 - CONFIDENCE) / 2  # of a one-sided test
Claim = dict[str, Any]
Region = tuple[float, float]  # from, to


@dataclass(frozen=True)
class Part:
    """One cell of a claim: where, the numbers, the verdict, and the reason for a caveat.

    p: one-sided p-value of the test that would refute the part; None where there is no such test.
    decisive: whether the claim is undecided while this part is not run.
    """

    where: str
    finding: str
    verdict: str
    caveat: str = ""
    p: float | None = None
    decisive: bool = False


def joined(*reasons: str) -> str:
    """The reasons that apply, joined with semicolons."""
    return "; ".join(reason for reason in reasons if reason)


def missing(where: str) -> Part:
    return Part(where, "not run", NOT_RUN)


def below(limit: float) -> Region:
    return -math.inf, limit


def above(limit: float) -> Region:
    return limit, math.inf


def decided(where: str, finding: str, estimate: Estimate, region: Region, *samples: Sample) -> Part:
    """A part from an estimate and the region in which it is claimed to lie."""
    low, high = estimate.interval
    n = min(sample.n for sample in samples)
    fewer = "" if n >= FULL else f"{n} of {FULL} seeds"
    p = None if n == 1 else min(estimate.below(region[0]), estimate.above(region[1]))
    if region[0] <= low and high <= region[1]:
        return Part(where, finding, CAVEAT if fewer else HOLDS, fewer, p)
    outside = high < region[0] or low > region[1]
    if outside and n > 1:
        return Part(where, finding, FAILS, fewer, p)
    reason = "one seed refutes nothing" if outside else "the interval contains the limit"
    order = _each_seed(estimate, region) if n >= FULL else ""
    return Part(where, finding, UNDECIDED, joined(fewer, reason, order), p)


def _each_seed(estimate: Estimate, region: Region) -> str:
    """In words, whether all seeds lie in the region, or all beyond one limit; empty where neither is so."""
    if not estimate.alone:
        return ""
    low, high = min(estimate.alone), max(estimate.alone)
    if region[0] <= low and high <= region[1]:
        return f"every seed lies where the claim says (p = {estimate.chance})"
    beyond = high < region[0] or low > region[1]
    return f"every seed lies beyond the limit (p = {estimate.chance})" if beyond else ""


def overall(parts: Iterable[Part]) -> str:
    """The verdict on a claim whose parts must all hold: that of the weakest part that was run."""
    parts = list(parts)
    verdicts = {part.verdict for part in parts}
    if verdicts <= {NOT_RUN}:
        return NOT_RUN
    if FAILS in verdicts:
        return FAILS
    if UNDECIDED in verdicts or any(part.decisive and part.verdict == NOT_RUN for part in parts):
        return UNDECIDED
    if MEASURED in verdicts:
        return MEASURED
    if NOT_RUN in verdicts or CAVEAT in verdicts:
        return CAVEAT
    return HOLDS if HOLDS in verdicts else CHECKED


def either(parts: Iterable[Part]) -> str:
    """The verdict on alternative parts: theirs if all agree, a caveat if only some hold, else undecided."""
    parts = list(parts)
    verdicts = {part.verdict for part in parts}
    if len(verdicts) == 1:
        return verdicts.pop()
    return CAVEAT if verdicts & {HOLDS, CAVEAT} else UNDECIDED


def corrected(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts of a claim after Holm's correction of the refutations for the number of tested parts.

    One refuted part refutes the claim, so the chance of a false refutation grows with the number of parts.
    Holding needs no correction: all parts hold falsely no more often than one of them does (Berger 1982).
    """
    parts = tuple(parts)
    tested = sorted((part.p, place) for place, part in enumerate(parts) if part.p is not None)
    refuted = set()
    for rank, (p, place) in enumerate(tested):
        if p > LEVEL / (len(tested) - rank):
            break
        refuted.add(place)
    return tuple(
        replace(part, verdict=UNDECIDED, caveat=joined(part.caveat, _holm(part.p, len(tested))))
        if part.verdict == FAILS and part.p is not None and place not in refuted
        else part
        for place, part in enumerate(parts)
    )


def _holm(p: float, number: int) -> str:
    return f"refuted at p = {p:.3f} alone, but not as one of {number} (Holm)"


def shorter(parts: Sequence[Part], epochs: int, papers: int) -> tuple[Part, ...]:
    """The parts on runs of `epochs` epochs: fewer than the paper's hold with a caveat, and refute nothing."""
    if epochs >= papers:
        return tuple(parts)
    length = f"{epochs} of {papers} epochs"
    weaker = {HOLDS: CAVEAT, FAILS: UNDECIDED}
    return tuple(
        part
        if part.verdict == NOT_RUN
        else replace(part, verdict=weaker.get(part.verdict, part.verdict), caveat=joined(part.caveat, length))
        for part in parts
    )


def coverage(parts: Sequence[Part]) -> str:
    """How many parts hold, and how many have each other verdict; empty where all agree."""
    found = Counter("hold" if part.verdict in BORNE_OUT else part.verdict for part in parts)
    if len(found) < 2:
        return ""
    others = [f"{found[name]} {name}" for name in (UNDECIDED, FAILS, NOT_RUN, MEASURED) if found[name]]
    return "; ".join([f"{found['hold']} of {len(parts)} hold", *others])
