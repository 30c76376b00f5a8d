"""The rules that decide a claim of the paper on accuracies, each on the cells that the claim names.

A rule returns one part per cell. A part holds or fails where a 95 % confidence interval lies wholly on one side of
what is claimed, and is undecided where the interval contains the limit; fewer than three seeds are a caveat.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from highways.analysis.evidence import FULL, Accuracies, Sample, Sweeps, difference
from highways.analysis.notes import DATASET_TITLES, place_label

HOLDS, CAVEAT, FAILS, NOT_RUN = "holds", "holds with a caveat", "does not hold", "not run"
UNDECIDED = "undecided"
Claim = dict[str, Any]
# Of a confidence interval, low and high: does it lie on the claimed side, and does it lie on the other?
Side = Callable[[float, float], tuple[bool, bool]]


@dataclass(frozen=True)
class Part:
    """One cell of a claim: where, the numbers, the verdict, and the reason for a caveat."""

    where: str
    finding: str
    verdict: str
    caveat: str = ""


def joined(*reasons: str) -> str:
    """Those reasons for a caveat that there are."""
    return "; ".join(reason for reason in reasons if reason)


def missing(where: str) -> Part:
    return Part(where, "not run", NOT_RUN)


def _decided(where: str, finding: str, claimed: tuple[bool, bool], *samples: Sample) -> Part:
    """A part from (the interval lies on the claimed side, the interval lies on the other side)."""
    n = min(sample.n for sample in samples)
    fewer = "" if n >= FULL else f"{n} of {FULL} seeds"
    if claimed[1]:
        return Part(where, finding, FAILS, fewer)
    if not claimed[0]:
        return Part(where, finding, UNDECIDED, fewer or "the interval contains the limit")
    return Part(where, finding, CAVEAT if fewer else HOLDS, fewer)


def _compare(claim: Claim, by: Accuracies, one: str, other: str, side: Side) -> Iterator[Part]:
    """A part per data set and depth from the difference of two methods."""
    for dataset in claim["datasets"]:
        for depth in claim["depths"]:
            a, b = by.accuracy(dataset, depth, one), by.accuracy(dataset, depth, other)
            where = place_label(dataset, depth)
            if a is None or b is None:
                yield missing(where)
                continue
            gap, low, high = difference(a, b)
            finding = f"{by.title(one)} {a.text}, {by.title(other)} {b.text}: {gap:+.1f} [{low:.1f}, {high:.1f}]"
            yield _decided(where, finding, side(low, high), a, b)


def no_advantage(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """One method is not significantly better than another."""
    return _compare(claim, by, claim["better"], claim["than"], lambda low, high: (low <= 0, low > 0))


def comparable(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """Two methods lie within a margin of each other."""
    m = claim["margin"]
    side = lambda low, high: (-m < low and high < m, high < -m or low > m)  # noqa: E731
    return _compare(claim, by, claim["method"], claim["with"], side)


def better(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """One method is better than another by at least so many points."""
    side = lambda low, high: (low > claim["by"], high < claim["by"])  # noqa: E731
    return _compare(claim, by, claim["method"], claim["than"], side)


def not_worse(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """One method is at most a margin worse than another."""
    side = lambda low, high: (low > -claim["margin"], high < -claim["margin"])  # noqa: E731
    return _compare(claim, by, claim["method"], claim["than"], side)


def falls(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """A method loses more than so many points from one depth to another."""
    for dataset in claim["datasets"]:
        shallow = by.accuracy(dataset, claim["shallow"], claim["method"])
        deep = by.accuracy(dataset, claim["deep"], claim["method"])
        where = f"{DATASET_TITLES[dataset]} L={claim['shallow']} to {claim['deep']}"
        # The seeds of two depths have nothing in common but their number.
        unpaired = None if shallow is None else replace(shallow, seeds={})
        yield _loss(where, unpaired, deep, lambda low, high: (low > claim["by"], high < claim["by"]))


def _loss(where: str, before: Sample | None, after: Sample | None, side: Side) -> Part:
    """A part from what is lost between two samples."""
    if before is None or after is None:
        return missing(where)
    gap, low, high = difference(before, after)
    finding = f"{before.text} to {after.text}: loses {gap:.1f} [{low:.1f}, {high:.1f}]"
    return _decided(where, finding, side(low, high), before, after)


def below(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """A method stays below a limit."""

    def side(sample: Sample, low: float, high: float) -> tuple[bool, bool]:
        return high < claim["limit"], low > claim["limit"]

    return _each(claim, by, side)


def above(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """A method comes out above a limit."""

    def side(sample: Sample, low: float, high: float) -> tuple[bool, bool]:
        return low > claim["limit"], high < claim["limit"]

    return _each(claim, by, side)


def within(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """The mean of a method lies in a range; outside it is undecided while the interval reaches the range."""

    def side(sample: Sample, low: float, high: float) -> tuple[bool, bool]:
        inside = claim["low"] - 0.05 <= sample.mean <= claim["high"] + 0.05  # the range is printed to one digit
        return inside, high < claim["low"] or low > claim["high"]

    return _each(claim, by, side)


def _each(
    claim: Claim, by: Accuracies, side: Callable[[Sample, float, float], tuple[bool, bool]]
) -> Iterator[Part]:
    """A part per data set and depth from one method."""
    for dataset in claim["datasets"]:
        for depth in claim["depths"]:
            where, sample = place_label(dataset, depth), by.accuracy(dataset, depth, claim["method"])
            yield (
                missing(where)
                if sample is None
                else _decided(where, sample.text, side(sample, *sample.interval), sample)
            )


def transition(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """The strength sweep begins at chance, has a plateau of some values near its best, and ends in a collapse."""
    found = {alpha: sample for alpha, sample in by.strength().items() if sample is not None}
    if not found or len(found) < len(by.strength()):
        yield missing(f"strength sweep ({len(found)} of {len(by.strength())} values)")
        return
    alphas = sorted(found)
    first, last, best = found[alphas[0]], found[alphas[-1]], max(found.values(), key=lambda sample: sample.mean)
    high = [alpha for alpha in alphas if found[alpha].mean >= best.mean - claim["plateau"]]
    limit = claim["chance"]
    yield _decided(f"α = {alphas[0]:g}", first.text, (first.interval[1] < limit, first.interval[0] > limit), first)
    wide = len(high) >= claim["values"] and best.mean > 2 * limit
    span = f"{len(high)} values from {high[0]:g} to {high[-1]:g} within {claim['plateau']:g} points of {best.text}"
    yield _decided("plateau", span, (wide, not wide), best)
    yield _decided(f"α = {alphas[-1]:g}", last.text, (last.interval[1] < limit, last.interval[0] > limit), last)


def thinning(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """With a highway on every k-th layer only, less than a margin is lost."""
    yield _thinned(claim, by, lambda low, high: (high < claim["margin"], low > claim["margin"]))


def unstable(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """With a highway on every k-th layer only, more than a margin is lost, and the seeds differ more."""
    yield _thinned(claim, by, lambda low, high: (low > claim["margin"], high < claim["margin"]))
    dense, thin = by.density(1), by.density(claim["every"])
    if dense is None or thin is None or min(dense.n, thin.n) < 2:
        yield missing("spread of the seeds")
        return
    wider = thin.std > 3 * dense.std
    yield _decided("spread of the seeds", f"{dense.std:.1f} to {thin.std:.1f}", (wider, not wider), dense, thin)


def _thinned(claim: Claim, by: Sweeps, side: Side) -> Part:
    return _loss(f"k = {claim['every']}", by.density(1), by.density(claim["every"]), side)


def overall(parts: Iterable[Part]) -> str:
    """The verdict on a claim from those on its parts."""
    verdicts = [part.verdict for part in parts]
    if FAILS in verdicts:
        return FAILS
    if HOLDS in verdicts or CAVEAT in verdicts:
        return HOLDS if set(verdicts) == {HOLDS} else CAVEAT
    return UNDECIDED if UNDECIDED in verdicts else NOT_RUN


def either(parts: Iterable[Part]) -> str:
    """The same where the parts are alternatives, of which the paper does not say which it means."""
    verdicts = {part.verdict for part in parts}
    if FAILS in verdicts and verdicts != {FAILS}:
        return CAVEAT if verdicts & {HOLDS, CAVEAT} else UNDECIDED
    return overall(parts)


def shorter(parts: Sequence[Part], epochs: int, papers: int) -> tuple[Part, ...]:
    """The parts of a claim on runs of so many epochs: fewer than the paper's bear it out, and do not refute it."""
    verdict = overall(parts)
    if epochs >= papers or verdict in (UNDECIDED, NOT_RUN):
        return tuple(parts)
    parts = (*parts, Part("length", f"{epochs} of {papers} epochs", CAVEAT, "fewer epochs"))
    return parts if verdict != FAILS else tuple(replace(part, verdict=UNDECIDED) for part in parts)


CELL_RULES: dict[str, Callable[[Claim, Accuracies], Iterator[Part]]] = {
    rule.__name__: rule for rule in (no_advantage, comparable, better, not_worse, falls, below, above, within)
}
ACCURACY_RULES: dict[str, Callable[[Claim, Sweeps], Iterator[Part]]] = {
    **CELL_RULES,
    **{rule.__name__: rule for rule in (transition, thinning, unstable)},
}
