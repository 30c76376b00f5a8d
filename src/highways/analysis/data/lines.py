"""The variants of an experiment as the rows of its table and the lines of its figure."""

from collections.abc import Iterable, Mapping
from typing import Any

from highways import paper
from highways.analysis.data.notes import label, plain
from highways.experiments.runs import OF_DEPTH, Config, cell_spec, short, takes
from highways.experiments.variants import Variant
from highways.specs.fields import SpecError
from highways.specs.run import RunSpec


def settings(variant: Variant) -> dict[str, Any]:
    """What a variant's row varies, by dotted key: values, or factors on the depth's settings as text."""
    factors = {key: f"{factor:g} ×" for key, factor in variant.scaled.items()}
    return {**variant.varied, **factors}


def varied(variants: Iterable[Variant]) -> list[str]:
    """The keys of `settings` that differ (absent is a value) among the variants whose method uses them."""
    variants = list(variants)
    found = []
    for key in dict.fromkeys(key for variant in variants for key in settings(variant)):
        values = {settings(variant).get(key) for variant in variants if takes(variant.method, key)}
        if len(values) > 1:
            found.append(key)
    return found


def lines(variants: Iterable[Variant], apart: str = "") -> dict[str, list[Variant]]:
    """The variants by line label: method and varied settings, without the key `apart` (the axis of a figure).

    A method that does not use a varied key has the same runs under all its values and appears once.
    """
    variants = list(variants)
    keys = [key for key in varied(variants) if key != apart]
    found: dict[str, list[Variant]] = {}
    for variant in variants:
        own = settings(variant)
        words = [f"{short(key)} {plain(own[key])}" for key in keys if key in own]
        line = found.setdefault(", ".join([label(variant), *words]), [])
        if all((one.place, settings(one)) != (variant.place, own) for one in line):
            line.append(variant)
    return found


def departures(config: Config, variants: Iterable[Variant]) -> list[str]:
    """A note on settings other than the paper's or the configuration's, except those that the rows vary."""
    variants = list(variants)
    told = {key for variant in variants for key in settings(variant)} | {"seed"}
    found: dict[str, list[str]] = {}
    for variant in variants:
        for key, (ours, theirs) in _different(config, variant).items():
            if key not in told and not _chosen(variant, key):
                text = f"{key} {plain(ours)}" + (f" ({plain(theirs)})" if theirs is not None else "")
                found.setdefault(text, []).append(f"L={variant.depth}")
    everywhere = {f"L={variant.depth}" for variant in variants}
    texts = [
        text if set(depths) == everywhere else f"{text} at {', '.join(dict.fromkeys(depths))}"
        for text, depths in found.items()
    ]
    return [f"Set here, in brackets the paper's or the configuration's: {'; '.join(texts)}."] if texts else []


def _chosen(variant: Variant, key: str) -> bool:
    return variant.choice is not None and key in variant.choice.swept


def _different(config: Config, variant: Variant) -> dict[str, tuple[Any, Any]]:
    """Our value and theirs by dotted key, where they differ; theirs is None at depths not in the paper."""
    printed = {one.key: one.value for one in paper.shared()}
    of_depth = {row.depth: vars(row) for row in paper.settings()}.get(variant.depth, {})
    theirs = _plain(config, variant)
    theirs |= {key.removeprefix("training."): value for key, value in printed.items()}
    theirs |= {key: of_depth.get(name) for key, name in OF_DEPTH.items()}
    theirs["inference.eps"] = printed["state_eps"]
    theirs["learning.weight_decay"] = printed["training.weight_decay"]
    ours, ours_anyway = flat(variant.example), config["highway"]["sigma_v"]  # `units_note` reports it
    return {
        key: (value, theirs[key])
        for key, value in ours.items()
        if key in theirs and theirs[key] != value and (key != "highway.sigma_v" or value != ours_anyway)
    }


def _plain(config: Config, variant: Variant) -> dict[str, Any]:
    """The configuration's settings for the place and method of a variant, without what its row changes."""
    needed = {key: variant.example.setting(key) for key in OF_DEPTH if takes(variant.method, key)}
    try:
        return flat(cell_spec(config, *variant.cell, 0))
    except SpecError:  # no row for this depth
        return flat(cell_spec(config, *variant.cell, 0, needed))


def flat(spec: RunSpec) -> dict[str, Any]:
    """A specification as a flat mapping by dotted key."""
    found: dict[str, Any] = {}
    for key, value in spec.complete().items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": one for name, one in value.items()}
        else:
            found[key] = value
    return found
