"""The rules that judge a claim of the paper by traces of signal propagation.

A trace is exact, so there are no intervals: most rules must be met on every seed, each of which is a network.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from highways import paper
from highways.analysis.claims.evidence import FULL, Ours
from highways.analysis.claims.parts import CAVEAT, FAILS, HOLDS, UNDECIDED, Claim, Part, joined, missing, overall
from highways.analysis.data.propagation import arrival, law
from highways.experiments import relaxations as plan
from highways.propagation.trace import Trace

_EXACT = 0.1  # relative deviation from the error at rest above which the kink of the ReLU is named
_STILL = 0.01  # relative change over the second half of the steps below which a layer counts as at rest
_LEVEL = 0.1  # relative change over that half up to which an error levels off


class Finding(NamedTuple):
    """What the traces of one network show: the numbers, whether they bear the claim out, and a caveat.

    holds: None where they cannot tell.
    """

    text: str
    holds: bool | None
    caveat: str = ""


Places = Iterable[tuple[str, list[Trace]]]  # the name of a network, and the traces there, one per seed


def _traced(places: Places, judge: Callable[[list[Trace]], Finding]) -> Iterator[Part]:
    """A part per place: what `judge` finds, with a caveat for fewer than three seeds."""
    for where, found in places:
        if not found:
            yield missing(where)
            continue
        text, holds, caveat = judge(found)
        fewer = "" if len(found) >= FULL else f"{len(found)} of {FULL} seeds"
        yield _part(where, Finding(text, holds, joined(caveat, fewer)))


def _part(where: str, finding: Finding) -> Part:
    text, holds, reasons = finding
    if holds is None:
        return Part(where, text, UNDECIDED, reasons)
    verdict = FAILS if not holds else CAVEAT if reasons else HOLDS
    return Part(where, text, verdict, reasons if holds else "")


def _panel(by: Ours, optimizer: str, column: str) -> Places:
    """The traces of one model by network; μPC has a single network, its own."""
    panels = plan.panels(by.config, optimizer)
    if column == "mupc":
        return [(plan.PANELS[column], by.traces(panels["paper", column]))]
    return [(title, by.traces(panels[row, column])) for row, title in plan.ROWS.items()]


def follows_the_law(claim: Claim, by: Ours) -> Iterator[Part]:
    """The first error of layer i is lambda^(L-i) times the backprop error (eq:transient)."""

    def judge(found: list[Trace]) -> Finding:
        off = max(float(np.max(np.abs(arrival(trace) / law(trace) - 1))) for trace in found)
        return Finding(f"off by {off:.0e} at most", off < 1e-5)

    networks = plan.arrivals(by.config).items()
    places = ((plan.ROWS.get(name, plan.PANELS["mupc"]), by.traces(wanted)) for name, wanted in networks)
    return _traced(places, judge)


def equilibrium(claim: Claim, by: Ours) -> Iterator[Part]:
    """Layers at rest have the error of the product of Jacobians (eq:steady), to a factor; others drop out."""

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
    """The errors (n, L) at the recorded steps in the second half of the relaxation."""
    return trace.errors[int(np.argmin(np.abs(trace.steps - trace.steps[-1] / 2))) :]


def _ratios_at_rest(trace: Trace) -> NDArray[np.float64]:
    """Error over error at rest of the hidden layers that are still, as are all above them; top first."""
    late = _second_half(trace)
    still = (late.max(axis=0) - late.min(axis=0) < _STILL * late[-1])[::-1]
    layers = int(np.argmin(still)) if not still.all() else len(still)
    ratios: NDArray[np.float64] = (trace.errors[-1] / trace.steady)[::-1][1:layers]
    return ratios


def _level(trace: Trace) -> NDArray[np.bool_]:
    """The hidden layers whose error changes by less than a tenth in the second half of the steps."""
    late = _second_half(trace)[:, :-1]
    level: NDArray[np.bool_] = np.abs(late[-1] - late[0]) <= _LEVEL * late[-1]  # one that stays at zero is level
    return level


def floor(claim: Claim, by: Ours) -> Iterator[Part]:
    """The energies E = 1/2 ||eps||^2 of all layers below `layer` never exceed `floor` at a recorded step."""

    def judge(found: list[Trace]) -> Finding:
        largest = np.array([trace.errors[:, : claim["layer"]].max(axis=0) for trace in found])
        energies = 0.5 * found[0].spec.run.network.width * largest**2
        return _at_floor(claim, energies.max(axis=0).tolist())

    return _traced(_panel(by, claim["optimizer"], "pc"), judge)


def printed_floor(claim: Claim) -> Iterator[Part]:
    """`floor` on the paper's table, which has the errors ||eps|| after the last step."""
    layers = [layer for layer in paper.error_layers() if layer < claim["layer"]]
    errors = [paper.layer_error(layer, claim["optimizer"]).value for layer in layers]
    yield _part("the paper's table", _at_floor(claim, [0.5 * error**2 for error in errors]))


def _at_floor(claim: Claim, energies: list[float]) -> Finding:
    above = sum(energy > claim["floor"] for energy in energies)
    return Finding(
        f"{above} of {len(energies)} layers leave it; the largest energy is {max(energies):.0e}", above == 0
    )


def from_the_first_step(claim: Claim, by: Ours) -> Iterator[Part]:
    """Every hidden layer, or with `endpoints` every one with a highway, has an error after one step."""

    def judge(found: list[Trace]) -> Finding:
        hidden = found[0].errors.shape[1] - 1
        endpoints = found[0].spec.run.endpoints
        layers = endpoints if claim.get("endpoints") else range(1, hidden + 1)
        without = {layer for trace in found for layer in layers if trace.errors[1, layer - 1] == 0}
        bare = f"without a highway in this reading: {hidden - len(endpoints)}" if without - {*endpoints} else ""
        text = f"{len(without)} of {len(layers)} layers without an error"
        return Finding(joined(text, bare), not without)

    return _traced(_panel(by, "gd", "hep"), judge)


def alike(claim: Claim, by: Ours) -> Iterator[Part]:
    """After one step the errors of the layers that only the highway has reached differ by less than a factor."""

    def judge(found: list[Trace]) -> Finding:
        ratios = []
        for trace in found:
            reached = [layer for layer in trace.spec.run.endpoints if layer < trace.errors.shape[1] - 1]
            errors = trace.errors[1, [layer - 1 for layer in reached]]
            ratios.append(float(errors.max() / errors.min()) if errors.min() > 0 else np.inf)
        text = f"largest over smallest: {min(ratios):.2g} to {max(ratios):.2g}"
        return Finding(text, max(ratios) <= claim["factor"])

    return _traced(_panel(by, "gd", "hep"), judge)


def shrinks(claim: Claim, by: Ours) -> Iterator[Part]:
    """The output error, and with it every nudge, is smaller after the last step than before the first."""

    def judge(found: list[Trace]) -> Finding:
        left = [float(trace.errors[-1, -1] / trace.errors[0, -1]) for trace in found]
        return _agreed(f"{min(left):.2g} to {max(left):.2g} of it is left", [one < 1 for one in left])

    return _traced(_panel(by, claim["optimizer"], "hep"), judge)


def _agreed(text: str, seeds: Sequence[bool]) -> Finding:
    """Holds or fails where all seeds agree; else they cannot tell."""
    if all(seeds) or not any(seeds):
        return Finding(text, all(seeds))
    return Finding(text, None, "the seeds do not agree")


def settles(claim: Claim, by: Ours) -> Iterator[Part]:
    """Under HEP the errors of at least a share of the hidden layers level off."""

    def judge(found: list[Trace]) -> Finding:
        shares = [float(_level(trace).mean()) for trace in found]
        text = f"{min(shares):.0%} to {max(shares):.0%} of the hidden layers level off"
        return Finding(text, min(shares) >= claim["share"], "" if min(shares) == 1 else "not all of them")

    return _traced(_panel(by, claim["optimizer"], "hep"), judge)


def climbs(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of the lower half of the hidden layers do not level off, under PC and HEP alike."""

    def judge(found: list[Trace]) -> Finding:
        shares = [float(_level(trace)[: trace.errors.shape[1] // 2].mean()) for trace in found]
        text = f"{min(shares):.0%} to {max(shares):.0%} of the lower half of the hidden layers level off"
        return Finding(text, max(shares) == 0)

    for where, found in _panel(by, claim["optimizer"], "pc"):
        both = [(where, found), *((w, own) for w, own in _panel(by, claim["optimizer"], "hep") if w == where)]
        parts = list(_traced(both, judge))
        names = (plan.PANELS["pc"], plan.PANELS["hep"])
        text = ", ".join(f"{name}: {part.finding}" for name, part in zip(names, parts, strict=True))
        yield Part(where, text, overall(parts), joined(*{part.caveat for part in parts}))


def reaches(claim: Claim, by: Ours) -> Iterator[Part]:
    """muPC's first layer reaches a share of its error at rest, and not before `steps` steps."""

    def judge(found: list[Trace]) -> Finding:
        reached = [trace.steps[trace.errors[:, 0] >= claim["share"] * trace.steady[0]] for trace in found]
        first = [int(steps[0]) for steps in reached if len(steps)]
        after = f"after {min(first)} steps at the soonest" if first else f"not within {found[0].steps[-1]} steps"
        late = all(step >= claim["steps"] for step in first)
        caveat = "not in every seed" if first and len(first) < len(found) else ""
        return Finding(f"{claim['share']:.0%} of it {after}", late if first else None, caveat)

    return _traced(_panel(by, "gd", "mupc"), judge)


def flat(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of the hidden layers span at most a share of their decades under gradient descent."""
    gd = dict(_panel(by, "gd", "pc"))

    def judge(where: str, found: list[Trace]) -> Finding:
        if len(gd[where]) != len(found):
            return Finding(f"gradient descent has {len(gd[where])} seeds", None)
        pairs = [(_inner(own), _inner(of_gd)) for own, of_gd in zip(found, gd[where], strict=True)]
        if any(own.min() == 0 for own, _ in pairs):
            return Finding("some layers have no error", False)
        return _flattened(claim, [(_decades(own), _decades(of_gd)) for own, of_gd in pairs])

    for where, found in _panel(by, claim["optimizer"], "pc"):
        yield from _traced([(where, found)], partial(judge, where))


def printed_flat(claim: Claim) -> Iterator[Part]:
    """`flat` on the paper's table, where an upper bound counts as its value."""
    columns = [_printed(name) for name in (claim["optimizer"], "gd")]
    own, of_gd = (_decades(np.array(column)) for column in columns)
    yield _part("the paper's table", _flattened(claim, [(own, of_gd)]))


def _flattened(claim: Claim, spans: list[tuple[float, float]]) -> Finding:
    own, of_gd = ([span[i] for span in spans] for i in (0, 1))
    text = f"{min(own):.1f} to {max(own):.1f} decades, under gradient descent {min(of_gd):.1f} to {max(of_gd):.1f}"
    return _agreed(text, [mine <= claim["share"] * theirs for mine, theirs in spans])


def steep(claim: Claim, by: Ours) -> Iterator[Part]:
    """The errors of the hidden layers span at least a factor."""

    def judge(found: list[Trace]) -> Finding:
        return _spanned(claim, [_decades(_inner(trace)) for trace in found])

    return _traced(_panel(by, claim["optimizer"], "pc"), judge)


def printed_steep(claim: Claim) -> Iterator[Part]:
    """`steep` on the paper's table."""
    yield _part("the paper's table", _spanned(claim, [_decades(np.array(_printed(claim["optimizer"])))]))


def _spanned(claim: Claim, decades: list[float]) -> Finding:
    text = f"largest over smallest: {10 ** min(decades):.2g} to {10 ** max(decades):.2g}"
    return _agreed(text, [span >= np.log10(claim["factor"]) for span in decades])


def _inner(trace: Trace) -> NDArray[np.float64]:
    """The errors (L-4,) after the last step, without the first hidden layer and the last three layers."""
    inner: NDArray[np.float64] = trace.errors[-1, 1:-3]
    return inner


def _printed(optimizer: str) -> list[float]:
    """The errors of the paper's table, without the last three layers; it has no first hidden layer."""
    *_, last = sorted(paper.error_layers())
    return [paper.layer_error(layer, optimizer).value for layer in paper.error_layers() if layer < last - 2]


def _decades(errors: NDArray[np.float64]) -> float:
    """The decades between the largest and the smallest nonzero error; 0 where all are zero."""
    moved = errors[errors > 0]
    return float(np.log10(moved.max() / moved.min())) if len(moved) else 0.0


def layer_errors(claim: Claim, by: Ours) -> Iterator[Part]:
    """A column of the paper's table, to a factor, as the geometric mean over seeds in the plain network."""

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
        for rule in (
            *(equilibrium, floor, from_the_first_step, alike, shrinks),
            *(settles, climbs, reaches, flat, steep, layer_errors),
        )
    },
}
# The rules that also judge the paper's own table of layer errors.
PRINTED_RULES: dict[str, Callable[[Claim], Iterator[Part]]] = {
    "floor": printed_floor,
    "flat": printed_flat,
    "steep": printed_steep,
}
