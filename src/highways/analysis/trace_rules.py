"""The rules that decide a claim of the paper on traces of signal propagation.

All seeds must agree: a trace is exact, and the seeds are three networks.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from highways import paper
from highways.analysis.evidence import FULL, Ours
from highways.analysis.propagation import arrival, law
from highways.analysis.rules import CAVEAT, FAILS, HOLDS, Claim, Part, missing
from highways.propagation import plan
from highways.propagation.trace import Trace

_AT_REST = 0.1  # relative distance from the equilibrium within which a layer counts as settled


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
            yield missing(where)
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


TRACE_RULES: dict[str, Callable[[Claim, Ours], Iterator[Part]]] = {
    "arrival": follows_the_law,
    **{
        rule.__name__: rule
        for rule in (equilibrium, floor, from_the_first_step, settles, reaches, flat, layer_errors)
    },
}
