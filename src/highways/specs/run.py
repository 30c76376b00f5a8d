"""RunSpec: everything that determines a run, and the conventions that the paper leaves open.

This module imports no torch: the workflow parses it once per job.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from highways.specs.fields import SpecError, check, choice, flag, from_mapping, integer, real, section, shown, word
from highways.specs.parametrisation import STANDARD, Parametrisation
from highways.specs.registry import METHODS


@dataclass(frozen=True)
class Images:
    """The numbers of images in each part of a data set, of inputs (pixels x channels) and of classes."""

    train: int = integer(low=1, high=1_000_000_000)
    validation: int = integer(low=1, high=1_000_000_000)
    test: int = integer(low=1, high=1_000_000_000)
    inputs: int = integer(low=1, high=100_000_000)
    classes: int = integer(low=2, high=1_000_000)


@dataclass(frozen=True)
class OwnImages(Images):
    """`Images` of a data set of the user's own, identified by the digest of its contents, not by its name."""

    digest: str = word(pattern="[0-9a-f]{32}", allowed="32 hexadecimal digits")


# The data sets of the project. A data set of the user's own is described by the section `data` of its runs.
DATASETS = {
    "mnist": Images(50_000, 10_000, 10_000, inputs=784, classes=10),
    "fashion_mnist": Images(50_000, 10_000, 10_000, inputs=784, classes=10),
    "fashion_mnist_excerpt": Images(3_000, 1_000, 1_000, inputs=784, classes=10),
}


@dataclass(frozen=True)
class Network:
    """The skip-free MLP: `depth` L counts weight matrices W_0..W_{L-1}; hidden states are z_1..z_{L-1}."""

    depth: int = integer(low=2, high=1024)
    width: int = integer(128, low=1, high=65536)
    phi: str = choice("relu", options=("relu", "tanh"))
    initialisation: str = choice("gaussian", options=("gaussian", "orthogonal"))


@dataclass(frozen=True)
class Inference:
    """The E-step: `steps` T updates of the states, each of size `step_size` (lambda); eps is Adam's."""

    optimizer: str = choice(options=("adam", "euler"))
    step_size: float = real(low=0.0, above=True)
    steps: int = integer(low=1, high=1_000_000)
    eps: float = real(1e-8, low=0.0, above=True)


@dataclass(frozen=True)
class Highway:
    """The error highways: strength alpha, one endpoint every k-th hidden layer, V ~ N(0, sigma_v^2).

    Two ablations, off in the paper: without the `chain` the error of the layer above pulls at the last hidden
    layer only; with `redraw` V is drawn anew for every batch.
    """

    alpha: float = real(low=0.0)
    every: int = integer(1, low=1, high=1024)
    sigma_v: float = real(1e-3, low=0.0, above=True)
    chain: bool = flag(True)
    redraw: bool = flag(False)


@dataclass(frozen=True)
class Learning:
    """The M-step: AdamW on the weights. The cosine is `horizon` updates long (null: as long as the run)."""

    lr: float = real(low=0.0, above=True)
    weight_decay: float = real(1e-4, low=0.0)
    eps: float = real(1e-8, low=0.0, above=True)
    schedule: str = choice("constant", options=("constant", "warmup_cosine"))
    warmup_fraction: float = real(0.05, low=0.0, high=1.0)
    horizon: int | None = integer(None, low=1, high=100_000_000)


@dataclass(frozen=True)
class Conventions:
    """What the paper leaves open (docs/conventions.md gives the evidence for each default).

    activation: where the nonlinearity phi and the normalisation n stand in the prediction of layer l+1:
        post      mu = phi(W n(z))        (the paper's Eq. rmsnorm)
        pre       mu = W phi(n(z))
        both      mu = phi(W phi(n(z)))
        pre_norm  mu = W n(phi(z))
    normalisation: n is RMSNorm with a gain (`rms`, the paper's), or the identity (`none`, an ablation).
    normalise_output_input: whether z_{L-1} is normalised before the output matrix.
    state_gradient: the energy whose gradient moves the states is the batch `mean` or the batch `sum`.
    bias: whether the predictions have a bias (initialised at 0).
    highway_layers: S counted from the output, i = L-k, L-2k, ...: `all` of it, or `without_first`, that is,
        without the first hidden layer.
    initial_state: the free states start `exact`ly at their predictions, or `rounded` (the sweep in double
        precision, cast to the run's precision), which leaves errors of the size of rounding everywhere.
    weight_decay_on_gain: whether AdamW decays the gain of the normalisation.
    rms_eps: added to the mean square in RMSNorm.
    """

    activation: str = choice("pre", options=("post", "pre", "both", "pre_norm"))
    normalise_output_input: bool = flag(False)
    state_gradient: str = choice("mean", options=("mean", "sum"))
    bias: bool = flag(False)
    highway_layers: str = choice("all", options=("all", "without_first"))
    initial_state: str = choice("exact", options=("exact", "rounded"))
    weight_decay_on_gain: bool = flag(False)
    rms_eps: float = real(1e-6, low=0.0)
    normalisation: str = choice("rms", options=("rms", "none"))


# Keys added after the first records were made: section, key, default.
_LATER = (("conventions", "normalisation", "rms"),)


@dataclass(frozen=True)
class RunSpec:
    """One training run. The same spec on the same kind of machine gives the same record, times aside.

    rule: the settings of the learning rule itself, one of `specs.options`; None where it has none.
    data: what a data set of the user's own holds; None where it is one of DATASETS.
    """

    dataset: str = word(pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", allowed="one of " + ", ".join(DATASETS))
    method: str = choice(options=tuple(METHODS))
    network: Network = section()
    learning: Learning = section()
    inference: Inference | None = None
    highway: Highway | None = None
    conventions: Conventions = Conventions()
    epochs: int = integer(12, low=1, high=100_000)
    batch_size: int = integer(128, low=1, high=1_000_000)
    seed: int = integer(0, low=0, high=2**31 - 1)
    dtype: str = choice("float32", options=("float32", "float64"))
    rule: Any = None
    data: OwnImages | None = None

    def __post_init__(self) -> None:
        check(self)
        for name in ("network", "learning", "inference", "highway", "conventions", "data"):
            if getattr(self, name) is not None:
                check(getattr(self, name), name)
        if (self.dataset in DATASETS) != (self.data is None):
            remedy = "comes with the project; it does not use the section data"
            if self.data is None:
                remedy = (
                    f"is not allowed; it takes one of {', '.join(DATASETS)}; an own one needs the section data"
                )
            raise SpecError(f"dataset: {shown(self.dataset)} {remedy}")
        if self.conventions.normalisation == "none" and self.conventions.normalise_output_input:
            raise SpecError(
                "conventions.normalise_output_input: true needs conventions.normalisation: rms; it is none"
            )
        method = METHODS[self.method]
        for name, used in (("inference", method.inference), ("highway", method.highway), ("rule", method.options)):
            given = getattr(self, name) is not None
            if given != bool(used):
                raise SpecError(
                    f"{name}: method {self.method!r} {'needs' if used else 'does not use'} this section"
                )
        if self.rule is not None:
            check(self.rule, "rule")
        if self.highway is not None and not method.inference and (not self.highway.chain or self.highway.redraw):
            raise SpecError(f"highway.chain, highway.redraw: ablations of HEP; method {self.method!r} has neither")
        if self.parametrisation.scaled and self.network.initialisation != "gaussian":
            raise SpecError(
                f"network.initialisation: {self.method} draws its weights from a Gaussian; it takes gaussian"
            )
        if self.highway is not None and not self.endpoints:
            last = self.network.depth - self._lowest_endpoint
            remedy = f"it takes a whole number from 1 to {last}" if last else "there is none to be had"
            raise SpecError(
                f"highway.every: {self.highway.every} leaves no hidden layer with a highway at depth "
                f"{self.network.depth}; {remedy}"
            )
        if self.highway is not None and not method.inference and len(self.endpoints) != self.network.depth - 1:
            remedy = "highway.every takes 1 and conventions.highway_layers all"
            raise SpecError(f"{self.method} needs feedback to every hidden layer: {remedy}")

    @property
    def images(self) -> Images:
        """The numbers of images, inputs and classes of the data set."""
        return DATASETS[self.dataset] if self.data is None else self.data

    @property
    def endpoints(self) -> tuple[int, ...]:
        """The highway endpoints S, ascending: every k-th hidden layer counted from the output."""
        if self.highway is None:
            return ()
        depth, k = self.network.depth, self.highway.every
        return tuple(i for i in range(self._lowest_endpoint, depth) if (depth - i) % k == 0)

    @property
    def _lowest_endpoint(self) -> int:
        return 2 if self.conventions.highway_layers == "without_first" else 1

    @property
    def parametrisation(self) -> Parametrisation:
        """The parametrisation of the network that the method trains."""
        network = METHODS[self.method].network
        return STANDARD if network is None else network(self.rule)

    @classmethod
    def from_dict(cls, mapping: Any) -> "RunSpec":
        """Build a spec from plain data; unknown keys, wrong types and values out of range raise SpecError."""
        return from_mapping(cls, with_rule(mapping))

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise SpecError(f"spec: not valid JSON ({error})") from None

    def complete(self) -> dict[str, Any]:
        """Plain data with every key, except `rule` and `data` where they are None."""
        document = dataclasses.asdict(self)
        return {key: value for key, value in document.items() if key not in ("rule", "data") or value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the keys of `_LATER` at their defaults, so that adding them changed no hash."""
        document = self.complete()
        for part, key, default in _LATER:
            if document[part][key] == default:
                del document[part][key]
        return document

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, so equal specs have equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def changed(self, settings: Mapping[str, Any]) -> "RunSpec":
        """The spec with other values under dotted keys, such as learning.lr; SpecError for any other key."""
        document = self.complete()
        for key, value in settings.items():
            *sections, name = key.split(".")
            target: Any = document
            for part in sections:
                target = target.get(part) if isinstance(target, dict) else None
            if not isinstance(target, dict) or name not in target:
                raise SpecError(f"{key}: no such key in a {self.method} run; `highways train --help`")
            target[name] = value
        return RunSpec.from_dict(document)

    def setting(self, key: str) -> Any:
        """The value under a dotted key, such as learning.lr."""
        return functools.reduce(getattr, key.split("."), self)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits, equal for equal specs on every machine."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @property
    def variant(self) -> str:
        """What tells the runs of one method, data set and depth apart, besides the seed."""
        if self.highway is not None:
            ablation = ("" if self.highway.chain else "_nochain") + ("_redraw" if self.highway.redraw else "")
            return f"alpha{digits(self.highway.alpha)}_k{self.highway.every}{ablation}"
        own = [] if self.rule is None else dataclasses.fields(self.rule)
        changed = [(f.name, getattr(self.rule, f.name)) for f in own if getattr(self.rule, f.name) != f.default]
        return "_".join([f"lr{digits(self.learning.lr)}", *(f"{name}{value}" for name, value in changed)])

    @property
    def path(self) -> str:
        """Readable place of the run below its experiment, without an ending."""
        return f"{self.dataset}/L{self.network.depth:03d}/{self.method}/{self.variant}/seed{self.seed}"


def with_rule(mapping: Any) -> Any:
    """Plain data of a run, with `rule` built as its method's dataclass of options, where it has one."""
    if isinstance(mapping, Mapping) and mapping.get("rule") is not None:
        method = METHODS.get(str(mapping.get("method")))
        if method is not None and method.options is not None:
            return {**mapping, "rule": from_mapping(method.options, mapping["rule"], "rule")}
    return mapping


def digits(value: float) -> str:
    """The shortest text that is exactly this number."""
    return repr(value).removesuffix(".0")
