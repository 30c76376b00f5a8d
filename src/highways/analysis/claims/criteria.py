"""The rules that judge a claim of the paper by accuracies, each on the cells that the claim names.

A rule yields parts, each from an estimate and the region in which the claim says it lies. A part holds where
the 95 % confidence interval lies in the region, fails where it lies outside, and is undecided otherwise: two
one-sided tests at 2.5 %. docs/verdict.md has all rules in a table.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from scipy import stats

from highways.analysis.claims.evidence import FULL, Accuracies, Estimate, Sample, Sweeps, combined, difference
from highways.analysis.claims.parts import (
    BORNE_OUT,
    CAVEAT,
    FAILS,
    HOLDS,
    LEVEL,
    MEASURED,
    UNDECIDED,
    Claim,
    Part,
    Region,
    above,
    below,
    decided,
    joined,
    missing,
)
from highways.analysis.data.notes import DATASET_TITLES, place_label

NO_ADVANTAGE = 1.0  # points within which two methods count as equal where a claim names no margin
TREND_DEPTHS = 3  # the fewest that a slope needs


def _compare(claim: Claim, by: Accuracies, one: str, other: str, region: Region) -> Iterator[Part]:
    """A part per data set and depth from the difference of two methods."""
    for dataset, depth, last in _cells(claim):
        a, b = by.accuracy(dataset, depth, one), by.accuracy(dataset, depth, other)
        where = place_label(dataset, depth)
        if a is None or b is None:
            yield replace(missing(where), decisive=last)
            continue
        gap = difference(a, b)
        finding = f"{by.title(one)} {a.text}, {by.title(other)} {b.text}: {gap.value:+.1f} {_interval(gap)}"
        yield replace(decided(where, finding, gap, region, a, b), decisive=last)


def _cells(claim: Claim) -> Iterator[tuple[str, int, bool]]:
    """Each data set and depth of a claim, and whether it is the deepest one of a claim marked `deep`."""
    for dataset in claim["datasets"]:
        for depth in claim["depths"]:
            yield dataset, depth, bool(claim.get("deep")) and depth == max(claim["depths"])


def _interval(estimate: Estimate, digits: int = 1) -> str:
    low, high = estimate.interval
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def no_advantage(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """One method is worse than another, or better by less than a margin."""
    return _compare(claim, by, claim["better"], claim["than"], below(claim.get("margin", NO_ADVANTAGE)))


def comparable(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """Two methods lie within a margin of each other."""
    return _compare(claim, by, claim["method"], claim["with"], (-claim["margin"], claim["margin"]))


def better(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """One method is better than another, or than each of several, by at least `by` points."""
    others = [claim["than"]] if isinstance(claim["than"], str) else claim["than"]
    for other in others:
        yield from _compare(claim, by, claim["method"], other, above(claim["by"]))


def not_worse(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """One method is at most a margin worse than another."""
    return _compare(claim, by, claim["method"], claim["than"], above(-claim["margin"]))


def falls(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """From depth `shallow` to `deep` a method loses at least `by` points, and at most `at_most` if given."""
    for dataset in claim["datasets"]:
        shallow = by.accuracy(dataset, claim["shallow"], claim["method"])
        deep = by.accuracy(dataset, claim["deep"], claim["method"])
        where = f"{DATASET_TITLES[dataset]} L={claim['shallow']} to {claim['deep']}"
        yield _loss(where, shallow, deep, (claim["by"], claim.get("at_most", math.inf)))


def _loss(where: str, before: Sample | None, after: Sample | None, region: Region) -> Part:
    """A part from the loss between two samples, unpaired: equal seeds of two networks share nothing."""
    if before is None or after is None:
        return missing(where)
    own = replace(after, seeds={-1 - seed: value for seed, value in after.seeds.items()})
    loss = difference(before, own)
    finding = f"{before.text} to {after.text}: loses {loss.value:.1f} {_interval(loss)}"
    return decided(where, finding, loss, region, before, after)


def stays_below(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """The mean of a method lies below a limit."""
    return _each(claim, by, below(claim["limit"]))


def comes_above(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """The mean of a method lies above a limit."""
    return _each(claim, by, above(claim["limit"]))


def within(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """The mean of a method lies in a range, widened by 0.05 since the paper prints one digit."""
    return _each(claim, by, (claim["low"] - 0.05, claim["high"] + 0.05))


def _each(claim: Claim, by: Accuracies, region: Region) -> Iterator[Part]:
    """A part per data set and depth from one method."""
    for dataset, depth, last in _cells(claim):
        where, sample = place_label(dataset, depth), by.accuracy(dataset, depth, claim["method"])
        if sample is None:
            yield replace(missing(where), decisive=last)
            continue
        finding = f"{sample.text} {_interval(sample.estimate)}"
        yield replace(decided(where, finding, sample.estimate, region, sample), decisive=last)


def no_trend(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """The accuracy changes by less than a margin per doubling of the depth: the slope of the means over log2 L."""
    for dataset in claim["datasets"]:
        found = {depth: by.accuracy(dataset, depth, claim["method"]) for depth in claim["depths"]}
        samples = {depth: sample for depth, sample in found.items() if sample is not None}
        if len(samples) >= TREND_DEPTHS:
            slope = _slope(samples)
            where = f"{DATASET_TITLES[dataset]} L={min(samples)} to {max(samples)}"
            values = ", ".join(f"{sample.mean:.1f}" for sample in samples.values())
            finding = f"{values}: {slope.value:+.2f} {_interval(slope, 2)} points per doubling"
            yield decided(where, finding, slope, (-claim["margin"], claim["margin"]), *samples.values())
        for depth in sorted(found.keys() - samples.keys()):
            last = depth == max(claim["depths"])
            yield replace(missing(place_label(dataset, depth)), decisive=bool(claim.get("deep")) and last)


def _slope(samples: dict[int, Sample]) -> Estimate:
    """The least-squares slope of the means over log2 of the depth; its error follows from theirs."""
    logs = [math.log2(depth) for depth in samples]
    middle = sum(logs) / len(logs)
    square = sum((x - middle) ** 2 for x in logs)
    return combined(*(((x - middle) / square, sample) for x, sample in zip(logs, samples.values(), strict=True)))


def transition(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """The strength sweep begins at chance, has a plateau of some values near its best, and ends in a collapse."""
    found = {alpha: sample for alpha, sample in by.strength().items() if sample is not None}
    if not found or len(found) < len(by.strength()):
        yield missing(f"strength sweep ({len(found)} of {len(by.strength())} values)")
        return
    alphas = sorted(found)
    best = max(found.values(), key=lambda sample: sample.mean)
    chance = below(claim["chance"])
    for alpha in (alphas[0], alphas[-1]):
        yield decided(f"α = {alpha:g}", found[alpha].text, found[alpha].estimate, chance, found[alpha])
    yield decided("best", best.text, best.estimate, above(2 * claim["chance"]), best)
    near = {
        alpha: decided("", "", _gap(best, found[alpha]), below(claim["plateau"]), best, found[alpha])
        for alpha in alphas
    }
    sure = [alpha for alpha, part in near.items() if part.verdict in BORNE_OUT]
    maybe = [alpha for alpha, part in near.items() if part.verdict != FAILS]
    inside = [alpha for alpha in alphas if found[alpha].mean >= best.mean - claim["plateau"]]
    span = f"{len(inside)} values from {inside[0]:g} to {inside[-1]:g}"
    text = f"{span} within {claim['plateau']:g} points of {best.text}"
    n = min(sample.n for sample in found.values())
    fewer = "" if n >= FULL else f"{n} of {FULL} seeds"
    if len(sure) >= claim["values"]:
        yield Part("plateau", text, CAVEAT if fewer else HOLDS, fewer)
    elif len(maybe) < claim["values"]:
        yield Part("plateau", text, FAILS)
    else:
        reason = f"{len(sure)} surely, {len(maybe)} perhaps, of the {claim['values']} that it takes"
        yield Part("plateau", text, UNDECIDED, joined(fewer, reason))


def _gap(best: Sample, other: Sample) -> Estimate:
    return Estimate(0.0, 0.0) if other is best else difference(best, other)


def thinning(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """A highway on every k-th layer only costs less than a margin, against one on every layer."""
    yield _loss(f"k = {claim['every']}", by.density(1), by.density(claim["every"]), below(claim["margin"]))


def unstable(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """A highway on every k-th layer only costs the worst seed more than a margin, and raises the std."""
    dense, thin = by.density(1), by.density(claim["every"])
    where = f"worst seed at k = {claim['every']}"
    if dense is None or thin is None:
        yield from (missing(where), missing("spread of the seeds"))
        return
    yield _worst(where, dense, thin, claim["margin"])
    if min(dense.n, thin.n) < 2:
        yield missing("spread of the seeds")
        return
    low, high = _ratio_of_spreads(thin, dense)
    finding = f"{dense.std:.1f} to {thin.std:.1f}: a ratio from {low:.2g} to {high:.2g}"
    fewer = "" if min(dense.n, thin.n) >= FULL else f"fewer than {FULL} seeds"
    verdict = (CAVEAT if fewer else HOLDS) if low > 1 else FAILS if high < 1 else UNDECIDED
    yield Part(
        "spread of the seeds", finding, verdict, fewer or "the interval contains 1" * (verdict == UNDECIDED)
    )


def _worst(where: str, dense: Sample, thin: Sample, margin: float) -> Part:
    """A part from the loss of the worst seed, which fewer than three seeds can bear out but not refute.

    Where only a mean and a std are known, the worst of n lies at least std / sqrt(n) below the mean.
    """
    known = bool(thin.seeds)
    worst = min(thin.seeds.values()) if known else thin.mean - thin.std / math.sqrt(thin.n)
    low, high = dense.estimate.interval
    finding = f"{dense.text} to {'' if known else 'at most '}{worst:.1f}: loses {dense.mean - worst:.1f}"
    if low - worst > margin:
        return Part(where, finding, HOLDS)
    if high - worst < margin and known and thin.n >= FULL:
        return Part(where, finding, FAILS)
    return Part(where, finding, UNDECIDED, f"{thin.n} of {FULL} seeds" if thin.n < FULL else "at the limit")


def _ratio_of_spreads(a: Sample, b: Sample) -> tuple[float, float]:
    """The 95 % confidence interval of std(a) / std(b): Fisher's F."""
    if b.std == 0.0:
        return (math.inf, math.inf) if a.std > 0.0 else (0.0, math.inf)
    ratio = (a.std / b.std) ** 2
    high, low = (float(stats.f.ppf(p, a.n - 1, b.n - 1)) for p in (1 - LEVEL, LEVEL))
    return math.sqrt(ratio / high), math.sqrt(ratio / low)


def measured(claim: Claim, by: Accuracies) -> Iterator[Part]:
    """The accuracy of an ablation, without a verdict, since the paper gives no number to compare with."""
    for dataset, depth, _ in _cells(claim):
        where, sample = place_label(dataset, depth), by.accuracy(dataset, depth, claim["method"])
        yield (
            missing(where)
            if sample is None
            else Part(where, f"{by.title(claim['method'])} {sample.text}", MEASURED)
        )


CELL_RULES: dict[str, Callable[[Claim, Accuracies], Iterator[Part]]] = {
    "no_advantage": no_advantage,
    "comparable": comparable,
    "better": better,
    "not_worse": not_worse,
    "falls": falls,
    "below": stays_below,
    "above": comes_above,
    "within": within,
    "no_trend": no_trend,
    "measured": measured,
}
ACCURACY_RULES: dict[str, Callable[[Claim, Sweeps], Iterator[Part]]] = {
    **CELL_RULES,
    "transition": transition,
    "thinning": thinning,
    "unstable": unstable,
}
