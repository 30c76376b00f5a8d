"""Checks that an experiment fits the table of its own, which would else drop a row. Imports no torch."""

from collections.abc import Callable, Hashable, Mapping

from highways.experiments.plan import Plan
from highways.experiments.runs import MIXED
from highways.experiments.variants import Variant
from highways.specs.fields import SpecError

Key = Callable[[Variant], Hashable]


def check(plan: Plan) -> None:
    """SpecError for an experiment whose variants its own table or figure could not show."""
    for name, key in _KEYS.items():
        variants = plan.of(name)
        problem = _unfit(name, variants) or _repeated(variants, key)
        if problem:
            raise SpecError(
                f"experiments: {name}: {problem}; the table {name} cannot show it. "
                "Under another name the experiment has a table and a figure that can"
            )


def _reading(variant: Variant) -> Hashable:
    return variant.row.get("name"), repr(sorted(variant.given.items())), variant.cell


# By experiment: what identifies a cell of its table. Two variants with the same key would share the cell.
_KEYS: Mapping[str, Key] = {
    "depth": lambda one: one.cell,
    "strength": lambda one: one.given.get("highway.alpha"),
    "density": lambda one: one.given.get("highway.every"),
    "conventions": _reading,
    "readings": _reading,
    "rates": lambda one: (one.cell, one.factors.get("learning.lr")),
    "kernels": lambda one: (one.cell, one.kernel == MIXED),
    "ablations": lambda one: (one.title, one.place),
    "baselines": lambda one: (one.name, one.place),
}
# The key that these experiments vary, with HEP alone and at one place.
_SWEPT = {"strength": "highway.alpha", "density": "highway.every"}


def _repeated(variants: list[Variant], key: Key) -> str:
    seen: set[Hashable] = set()
    for variant in variants:
        if key(variant) in seen:
            return f"{variant.title} stands twice at {variant.dataset}, depth {variant.depth}"
        seen.add(key(variant))
    return ""


def _unfit(name: str, variants: list[Variant]) -> str:
    if name in _SWEPT and variants:
        if {variant.method for variant in variants} != {"hep"} or len({variant.place for variant in variants}) > 1:
            return "it takes hep alone, at one data set and depth"
        if any(_SWEPT[name] not in variant.given for variant in variants):
            return f"it needs {_SWEPT[name]} under vary"
    if name == "rates" and any("learning.lr" not in variant.factors for variant in variants):
        return "it needs learning.lr under times"
    if name == "readings":
        for place in {variant.place for variant in variants}:
            here = {(repr(sorted(one.given.items())), one.method) for one in variants if one.place == place}
            if {method for _, method in here} != {"pc", "hep"} or len(here) % 2:
                return f"it needs pc and hep under every reading at {place[0]}, depth {place[1]}"
    if name in ("conventions", "readings") and any(variant.factors for variant in variants):
        return "it takes no times"
    return ""
