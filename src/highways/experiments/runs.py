"""Runs, and the specification of a run from the configuration. Imports no torch."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

from highways import provenance
from highways.experiments.own_data import images_of
from highways.specs.fields import SpecError
from highways.specs.registry import METHODS
from highways.specs.run import DATASETS, Conventions, Highway, Inference, Learning, Network, RunSpec

Config = Mapping[str, Any]
MIXED = "mixed"  # the kernel with products of bf16 numbers
CellKey = tuple[str, int, str]  # data set, depth, method


@dataclass(frozen=True)
class Run:
    """One training.

    path: place of the record below the folder of runs, without an ending.
    spec: what to run. Where `selection` is set, its values of the swept keys are placeholders.
    selection: name of the selection that supplies these values once the sweep has run.
    swept: the dotted keys that the selection chooses.
    sweep: the runs that decide the selection.
    kernel: that of the E-step. It is no part of a spec; the record names it.
    """

    path: str
    spec: RunSpec
    selection: str | None = None
    swept: tuple[str, ...] = ("learning.lr",)
    sweep: tuple["Run", ...] = ()
    kernel: str = "auto"

    @property
    def key(self) -> str:
        """The `record_key` by which its record is found, whatever its path."""
        return record_key(self.spec.hash, self.kernel)


def record_key(spec_hash: str, kernel: str | None) -> str:
    """The hash of a specification, followed by the kernel where that is `mixed` (bf16 products)."""
    return f"{spec_hash} {kernel}" if kernel == MIXED else spec_hash


def key_of(document: Mapping[str, Any]) -> str:
    """The `record_key` of a record."""
    return record_key(document["spec_hash"], document["provenance"]["kernel"])


# Conventions that a method without highways, or without inference, does not depend on.
_OF_HIGHWAYS = ("highway_layers",)
_OF_INFERENCE = (*_OF_HIGHWAYS, "state_gradient", "initial_state")


def idle(method: str) -> tuple[str, ...]:
    """The conventions that do not concern a method; its specs leave them at their defaults."""
    entry = METHODS[method]
    if entry.network is not None:
        return tuple(field.name for field in fields(Conventions))
    if not entry.inference:
        return _OF_INFERENCE  # dfa has feedback to every hidden layer
    return () if entry.highway else _OF_HIGHWAYS


# The keys of a row of `settings`, by dotted key of the specification.
OF_DEPTH = {
    "learning.lr": "lr",
    "highway.alpha": "alpha",
    "inference.optimizer": "optimizer",
    "inference.step_size": "step_size",
    "inference.steps": "steps",
}


def depth_settings(config: Config, depth: int) -> Mapping[str, Any]:
    """The row of `settings` for a depth; empty where there is none."""
    return next((row for row in config["settings"] if row["depth"] == depth), {})


def cell_spec(
    config: Config,
    dataset: str,
    depth: int,
    method: str,
    seed: int,
    changes: Mapping[str, Any] | None = None,
) -> RunSpec:
    """The spec of one run with the settings of its depth, and with `changes`: other values by dotted key.

    SpecError where neither the settings of the depth nor `changes` give a key that the method needs.
    """
    changes = changes or {}
    if method not in METHODS:
        raise SpecError(f"methods: {method!r} does not exist; it takes {', '.join(METHODS)}")
    entry = METHODS[method]
    if entry.cost is None:
        raise SpecError(
            f"methods: {method!r} has no cost, from which the time limits of its jobs follow; "
            "give its entry of METHODS one (specs/registry.py)"
        )
    settings, training = depth_settings(config, depth), config["training"]
    document: dict[str, Any] = {
        "dataset": dataset,
        "method": method,
        "network": {**config["network"], "depth": depth},
        "learning": {"weight_decay": training["weight_decay"], "eps": training["weight_eps"]},
        "conventions": {key: value for key, value in config["conventions"].items() if key not in idle(method)},
        "epochs": training["epochs"],
        "batch_size": training["batch_size"],
        "seed": seed,
        "dtype": training["dtype"],
    }
    if entry.options is not None:
        document["rule"] = {}
    if entry.inference:
        document["inference"] = {"eps": config["state_eps"]}
    if entry.highway:
        document["highway"] = {**config["highway"]}
    if dataset not in DATASETS:
        document["data"] = asdict(images_of(config, dataset))
    given = {key: settings[name] for key, name in OF_DEPTH.items() if name in settings and takes(method, key)}
    missing = [key for key in OF_DEPTH if takes(method, key) and key not in given and key not in changes]
    if missing:
        known = ", ".join(str(row["depth"]) for row in config["settings"])
        raise SpecError(
            f"settings: no row for depth {depth}; add one beside those for {known}, or set {', '.join(missing)}"
        )
    for key, value in {**given, **changes}.items():
        section, _, name = key.rpartition(".")
        (document[section] if section else document)[name] = value
    try:
        return RunSpec.from_dict(document)
    except SpecError as error:
        raise SpecError(f"{dataset}, depth {depth}, {method}, seed {seed}: {error}") from None


def takes(method: str, key: str) -> bool:
    """Whether the specification of a method has that dotted key, and depends on it."""
    section, _, name = key.rpartition(".")
    entry = METHODS[method]
    if section == "rule":
        return entry.options is not None and name in {field.name for field in fields(entry.options)}
    if section not in _SECTIONS or name not in {field.name for field in fields(_SECTIONS[section])}:
        return False
    if section == "conventions":
        return name not in idle(method)
    return {"inference": entry.inference, "highway": entry.highway}.get(section, True)


_SECTIONS: Mapping[str, type[Any]] = {
    "": RunSpec,
    "network": Network,
    "learning": Learning,
    "inference": Inference,
    "highway": Highway,
    "conventions": Conventions,
}


def short(key: str) -> str:
    """The last part of a dotted key."""
    return key.rpartition(".")[2]


def nearest_key(key: str) -> str:
    """The key of a specification closest to `key`; empty where `key` is one itself or resembles none."""
    sections = [*_SECTIONS.items(), *(("rule", entry.options) for entry in METHODS.values())]
    known = [
        f"{section}.{field.name}".removeprefix(".")
        for section, kind in sections
        if kind is not None
        for field in fields(kind)
        if field.metadata
    ]
    return "" if key in known else next(iter(difflib.get_close_matches(key, known, n=1)), "")


def asked_kernel(config: Config, depth: int, method: str, given: str | None = None) -> str:
    """The kernel of a run: `given` (its row's), else its depth's, else auto; auto where it uses no kernel."""
    if not _uses_a_kernel(method):
        return "auto"
    return given or depth_settings(config, depth).get("kernel") or "auto"


@cache
def _uses_a_kernel(method: str) -> bool:
    return provenance.relaxes_with_a_kernel(method)
