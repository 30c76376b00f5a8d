"""The rules that decide a claim of the paper, each on the cells or traces that the claim names.

A rule returns one part per cell. A part holds or fails where a 95 % confidence interval lies wholly on one side of
what is claimed, and is undecided where the interval contains the limit; fewer than three seeds are a caveat.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from highways import paper
from highways.analysis.evidence import FULL, Accuracies, Ours, Sample, Sweeps, difference
from highways.analysis.notes import DATASET_TITLES, place_label
from highways.analysis.propagation import arrival, law
from highways.propagation import plan
from highways.propagation.trace import Trace

HOLDS, CAVEAT, FAILS, NOT_RUN = "holds", "holds with a caveat", "does not hold", "not run"
UNDECIDED = "undecided"
Claim = dict[str, Any]
# Of a confidence interval, low and high: does it lie on the claimed side, and does it lie on the other?
Side = Callable[[float, float], tuple[bool, bool]]
_AT_REST = 0.1  # relative distance from the equilibrium within which a layer counts as settled


@dataclass(frozen=True)
class Part:
    """One cell of a claim: where, the numbers, the verdict, and the reason for a caveat."""

    where: str
    finding: str
    verdict: str
    caveat: str = ""


def _missing(where: str) -> Part:
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
                yield _missing(where)
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
        return _missing(where)
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
                _missing(where)
                if sample is None
                else _decided(where, sample.text, side(sample, *sample.interval), sample)
            )


def transition(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """The strength sweep begins at chance, has a plateau of some values near its best, and ends in a collapse."""
    found = {alpha: sample for alpha, sample in by.strength().items() if sample is not None}
    if not found or len(found) < len(by.strength()):
        yield _missing(f"strength sweep ({len(found)} of {len(by.strength())} values)")
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
    if isinstance(by, Ours) and by.strength_epochs < by.config["training"]["epochs"]:
        yield Part(
            "length", f"{by.strength_epochs} epoch of {by.config['training']['epochs']}", CAVEAT, "fewer epochs"
        )


def thinning(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """With a highway on every k-th layer only, less than a margin is lost."""
    yield _thinned(claim, by, lambda low, high: (high < claim["margin"], low > claim["margin"]))


def unstable(claim: Claim, by: Sweeps) -> Iterator[Part]:
    """With a highway on every k-th layer only, more than a margin is lost, and the seeds differ more."""
    yield _thinned(claim, by, lambda low, high: (low > claim["margin"], high < claim["margin"]))
    dense, thin = by.density(1), by.density(claim["every"])
    if dense is None or thin is None or min(dense.n, thin.n) < 2:
        yield _missing("spread of the seeds")
        return
    wider = thin.std > 3 * dense.std
    yield _decided("spread of the seeds", f"{dense.std:.1f} to {thin.std:.1f}", (wider, not wider), dense, thin)


def _thinned(claim: Claim, by: Sweeps, side: Side) -> Part:
    return _loss(f"k = {claim['every']}", by.density(1), by.density(claim["every"]), side)


# Signal propagation. All seeds must agree: a trace is exact, and the seeds are three networks.


class Finding(NamedTuple):
    """What the traces of one network show: the numbers, whether they bear the claim out, and a caveat."""

    text: str
    holds: bool
    caveat: str = ""


Places = Iterable[tuple[str, list[Trace]]]  # where, and the seeds that have been traced there


def _traced(places: Places, judge: Callable[[list[Trace]], Finding]) -> Iterator[Part]:
    """A part per place."""
    for where, found in places:
        if not found:
            yield _missing(where)
            continue
        text, holds, caveat = judge(found)
        fewer = "" if len(found) >= FULL else f"{len(found)} of {FULL} seeds"
        reasons = "; ".join(reason for reason in (caveat, fewer) if reason)
        verdict = FAILS if not holds else CAVEAT if reasons else HOLDS
        yield Part(where, text, verdict, reasons if holds else "")


def _panel(by: Ours, optimizer: str, column: str) -> Places:
    """One model in every network; μPC has one of its own."""
    panels = plan.panels(by.config, optimizer)
    if column == "mupc":
        return [(plan.PANELS[column], by.traces(panels["paper", column]))]
    return [(title, by.traces(panels[row, column])) for row, title in plan.ROWS.items()]


def follows_the_law(claim: Claim, by: Ours) -> Iterator[Part]:
    """The first error of layer i is lambda^(L-i) times the backprop error."""

    def judge(found: list[Trace]) -> Finding:
        off = max(float(np.max(np.abs(arrival(trace) / law(trace) - 1))) for trace in found)
        return Finding(f"off by {off:.0e} at most", off < 1e-5)

    networks = plan.arrivals(by.config).items()
    places = ((plan.ROWS.get(name, plan.PANELS["mupc"]), by.traces(wanted)) for name, wanted in networks)
    return _traced(places, judge)


def equilibrium(claim: Claim, by: Ours) -> Iterator[Part]:
    """Layers at rest have the errors of the product of Jacobians; layers on their way say nothing."""

    def judge(found: list[Trace]) -> Finding:
        share = min(_settled(trace) for trace in found)
        text = f"{share:.0%} of the hidden layers within {_AT_REST:.0%} of it after gradient descent"
        return Finding(text, True, "" if share == 1 else "the others have not settled")

    wanted = plan.arithmetics(by.config)
    return _traced([(title, by.traces(wanted[row, "no floor"])) for row, title in plan.ROWS.items()], judge)


def _settled(trace: Trace) -> float:
    """The share of hidden layers whose error is that at rest."""
    return float(np.mean(np.abs(trace.errors[-1, :-1] / trace.steady[:-1] - 1) < _AT_REST))


def _level(trace: Trace) -> float:
    """The share of hidden layers whose error changes by less than a tenth in the second half of the steps."""
    half = int(np.argmin(np.abs(trace.steps - trace.steps[-1] / 2)))
    before, after = trace.errors[half, :-1], trace.errors[-1, :-1]
    return float(np.mean(np.abs(after - before) < _AT_REST * after))


def floor(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of all layers below one stay below a floor over all steps."""

    def judge(found: list[Trace]) -> Finding:
        largest = np.array([trace.errors[:, : claim["layer"]].max(axis=0) for trace in found])
        above = int(np.sum(largest > claim["floor"], axis=1).max())
        text = f"{above} of {claim['layer']} layers leave it; the largest error is {largest.max():.0e}"
        return Finding(text, above == 0)

    return _traced(_panel(by, claim["optimizer"], "pc"), judge)


def from_the_first_step(claim: Claim, by: Ours) -> Iterator[Part]:
    """Every hidden layer has an error after one step."""

    def judge(found: list[Trace]) -> Finding:
        still = max(int(np.sum(trace.errors[1, :-1] == 0)) for trace in found)
        lowest = found[0].spec.run.endpoints[0] - 1
        caveat = "the first hidden layer has no highway in this reading" if lowest and still else ""
        return Finding(f"{still} of {found[0].errors.shape[1] - 1} layers without", still <= lowest, caveat)

    return _traced(_panel(by, "gd", "hep"), judge)


def settles(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of a share of the hidden layers level off, or are not expected to."""

    def judge(found: list[Trace]) -> Finding:
        shares = [_level(trace) for trace in found]
        text = f"{min(shares):.0%} to {max(shares):.0%} of the hidden layers level off"
        if not claim["expected"]:
            return Finding(text, max(shares) < claim["share"])
        return Finding(text, min(shares) >= claim["share"], "" if min(shares) == 1 else "not all of them")

    return _traced(_panel(by, claim["optimizer"], "hep"), judge)


def reaches(claim: Claim, by: Ours) -> Iterator[Part]:
    """muPC's first layer has a share of its error at rest only after so many steps."""

    def judge(found: list[Trace]) -> Finding:
        reached = [trace.steps[trace.errors[:, 0] >= claim["share"] * trace.steady[0]] for trace in found]
        first = [int(steps[0]) if len(steps) else int(found[0].steps[-1]) + 1 for steps in reached]
        text = f"{claim['share']:.0%} of it after {min(first)} to {max(first)} steps"
        return Finding(text, min(first) >= claim["steps"])

    return _traced(_panel(by, "gd", "mupc"), judge)


def flat(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of the hidden layers lie within a factor, or are not expected to."""

    def judge(found: list[Trace]) -> Finding:
        ratios = [float(trace.errors[-1, 1:-3].max() / trace.errors[-1, 1:-3].min()) for trace in found]
        text = f"largest over smallest: {min(ratios):.2g} to {max(ratios):.2g}"
        return Finding(text, all((ratio <= claim["factor"]) == claim["expected"] for ratio in ratios))

    return _traced(_panel(by, claim["optimizer"], "pc"), judge)


def layer_errors(claim: Claim, by: Ours) -> Iterator[Part]:
    """A column of the paper's table, in the network that reproduces it."""

    def judge(found: list[Trace]) -> Finding:
        ratios = {}
        for layer in paper.error_layers():
            printed = paper.layer_error(layer, claim["optimizer"])
            ours = float(np.exp(np.mean(np.log([max(trace.errors[-1, layer], 1e-300) for trace in found]))))
            ratios[layer] = max(1.0, ours / printed.value) if printed.upper_bound else ours / printed.value
        worst = max(ratios, key=lambda layer: abs(np.log(ratios[layer])))
        inside = sum(1 / claim["factor"] <= ratio <= claim["factor"] for ratio in ratios.values())
        text = (
            f"{inside} of {len(ratios)} layers; the worst is layer {worst}, {ratios[worst]:.2g} times the paper's"
        )
        return Finding(text, inside == len(ratios), "not the network that is trained")

    wanted = plan.panels(by.config, claim["optimizer"])["plain", "pc"]
    return _traced([(plan.ROWS["plain"], by.traces(wanted))], judge)


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
    if FAILS in verdicts and verdicts & {HOLDS, CAVEAT}:
        return CAVEAT
    return overall(parts)


CELL_RULES: dict[str, Callable[[Claim, Accuracies], Iterator[Part]]] = {
    rule.__name__: rule for rule in (no_advantage, comparable, better, not_worse, falls, below, above, within)
}
ACCURACY_RULES: dict[str, Callable[[Claim, Sweeps], Iterator[Part]]] = {
    **CELL_RULES,
    **{rule.__name__: rule for rule in (transition, thinning, unstable)},
}
TRACE_RULES: dict[str, Callable[[Claim, Ours], Iterator[Part]]] = {
    "arrival": follows_the_law,
    **{
        rule.__name__: rule
        for rule in (equilibrium, floor, from_the_first_step, settles, reaches, flat, layer_errors)
    },
}
