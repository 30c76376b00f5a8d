"""The rules that decide a claim of the paper on traces of signal propagation.

All seeds must agree: a trace is exact, and the seeds are three networks.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from highways import paper
from highways.analysis.evidence import FULL, Ours
from highways.analysis.propagation import arrival, law
from highways.analysis.rules import CAVEAT, FAILS, HOLDS, UNDECIDED, Claim, Part, joined, missing
from highways.propagation import plan
from highways.propagation.trace import Trace

_EXACT = 0.1  # relative distance from the equilibrium within which an error counts as that at rest
_STILL = 0.01  # relative change over the second half of the steps below which a layer counts as at rest
_LEVEL = 0.1  # and below which its error levels off


class Finding(NamedTuple):
    """What the traces of one network show: the numbers, whether they bear the claim out, and a caveat.

    holds: None where they cannot tell.
    """

    text: str
    holds: bool | None
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
        reasons = joined(caveat, fewer)
        if holds is None:
            yield Part(where, text, UNDECIDED, reasons)
        else:
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
    """Layers at rest have the errors of the product of Jacobians, to a factor; layers on their way say nothing."""

    def judge(found: list[Trace]) -> Finding:
        ratios = np.concatenate([_ratios_at_rest(trace) for trace in found])
        hidden = sum(trace.errors.shape[1] - 1 for trace in found)
        if not len(ratios):
            return Finding(f"0 of {hidden} hidden layers at rest after the last step", None)
        low, high = float(ratios.min()), float(ratios.max())
        text = f"{len(ratios)} of {hidden} hidden layers at rest, with {low:.2f} to {high:.2f} times it"
        kink = "units at rest on the kink of the ReLU have no Jacobian" if max(1 - low, high - 1) > _EXACT else ""
        moving = "the others are not at rest" if len(ratios) < hidden else ""
        holds = 1 / claim["factor"] <= low and high <= claim["factor"]
        return Finding(text, holds, joined(kink, moving))

    wanted = plan.arithmetics(by.config)
    return _traced([(title, by.traces(wanted[row, "no floor"])) for row, title in plan.ROWS.items()], judge)


def _second_half(trace: Trace) -> NDArray[np.float64]:
    """The errors at the steps that are kept of it."""
    return trace.errors[int(np.argmin(np.abs(trace.steps - trace.steps[-1] / 2))) :]


def _ratios_at_rest(trace: Trace) -> NDArray[np.float64]:
    """Error over that at rest, of the hidden layers that are still and have only such layers above them."""
    late = _second_half(trace)
    still = (late.max(axis=0) - late.min(axis=0) < _STILL * late[-1])[::-1]
    layers = int(np.argmin(still)) if not still.all() else len(still)
    ratios: NDArray[np.float64] = (trace.errors[-1] / trace.steady)[::-1][1:layers]
    return ratios


def _level(trace: Trace) -> NDArray[np.bool_]:
    """The hidden layers whose error changes by less than a tenth in the second half of the steps."""
    late = _second_half(trace)[:, :-1]
    level: NDArray[np.bool_] = np.abs(late[-1] - late[0]) < _LEVEL * late[-1]
    return level


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
    """The errors of a share of the hidden layers level off."""

    def judge(found: list[Trace]) -> Finding:
        shares = [float(_level(trace).mean()) for trace in found]
        text = f"{min(shares):.0%} to {max(shares):.0%} of the hidden layers level off"
        return Finding(text, min(shares) >= claim["share"], "" if min(shares) == 1 else "not all of them")

    return _traced(_panel(by, claim["optimizer"], "hep"), judge)


def climbs(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of the lower half of the hidden layers do not level off; those of layers at the output may."""

    def judge(found: list[Trace]) -> Finding:
        shares = [float(_level(trace)[: trace.errors.shape[1] // 2].mean()) for trace in found]
        text = f"{min(shares):.0%} to {max(shares):.0%} of the lower half of the hidden layers level off"
        return Finding(text, max(shares) == 0)

    return _traced(_panel(by, claim["optimizer"], "hep"), judge)


def reaches(claim: Claim, by: Ours) -> Iterator[Part]:
    """muPC's first layer has a share of its error at rest only after so many steps, where it ever has."""

    def judge(found: list[Trace]) -> Finding:
        reached = [trace.steps[trace.errors[:, 0] >= claim["share"] * trace.steady[0]] for trace in found]
        first = [int(steps[0]) for steps in reached if len(steps)]
        after = f"after {min(first)} steps at the soonest" if first else f"not within {found[0].steps[-1]} steps"
        late = all(step >= claim["steps"] for step in first)
        caveat = "not in every seed" if first and len(first) < len(found) else ""
        return Finding(f"{claim['share']:.0%} of it {after}", late if first else None, caveat)

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
        for rule in (equilibrium, floor, from_the_first_step, settles, climbs, reaches, flat, layer_errors)
    },
}
