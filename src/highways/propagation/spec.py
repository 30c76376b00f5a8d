"""The specification of one diagnostic relaxation. Imports no torch."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from highways.specs.fields import SpecError, check, choice, from_mapping, integer, section
from highways.specs.registry import METHODS
from highways.specs.run import RunSpec, digits, with_rule

NETWORKS = {
    "paper": "the network that is trained: N(0, 1/fan_in), RMSNorm, cross-entropy",
    "plain": "U(±1/√fan_in), no RMSNorm, μ = Wφ(z), squared error",
    "mupc": "μPC: scaled N(0, 1), identity skips, μ = z + aWφ(z), squared error",
}

# The methods with a section `inference` whose relaxation `relaxation.py` implements. A method without that
# section is traced by the errors of its own `Gradient`.
RELAXATIONS = ("pc", "hep")


@dataclass(frozen=True)
class Propagation:
    """One relaxation, of a batch of one image.

    run: network, method, highways and inference; its data set gives the image.
    network: one of NETWORKS; only `paper` has the conventions of the run.
    form: the states are stored as they are (`plain`), or as `deviations` from the sweep, so that small errors
        are not lost in the rounding of the states.
    trained, epoch: where given, the weights are those of the run `trained` after `epoch` epochs.
    """

    run: RunSpec = section()
    network: str = choice("paper", options=tuple(NETWORKS))
    form: str = choice("plain", options=("plain", "deviations"))
    trained: RunSpec | None = None
    epoch: int = integer(0, low=0, high=100_000)

    def __post_init__(self) -> None:
        check(self)
        if METHODS[self.run.method].inference and self.run.method not in RELAXATIONS:
            raise SpecError(
                f"method: how {self.run.method!r} relaxes is not known here; it takes {', '.join(RELAXATIONS)}, "
                "or a method without the section inference"
            )
        if self.network == "mupc" and self.run.method != "pc":
            raise SpecError(f"network: mupc is predictive coding; method {self.run.method!r} takes paper or plain")
        if self.network != "paper" and self.run.network.depth < 3:
            raise SpecError(f"network: {self.network} needs a hidden matrix; it takes a depth from 3")
        if self.network != "paper" and not METHODS[self.run.method].inference:
            raise SpecError(f"network: method {self.run.method!r} has no inference; it takes network paper")
        if self.run.highway is not None and not (self.run.highway.chain and not self.run.highway.redraw):
            raise SpecError("highway: without its chain, or with V redrawn, HEP is not relaxed here")
        if self.trained is not None and self.network != "paper":
            raise SpecError(f"network: {self.network!r} is never trained here; trained takes network paper")

    @classmethod
    def from_dict(cls, mapping: Any) -> "Propagation":
        """Build one from plain data; SpecError names the key that is wrong."""
        if isinstance(mapping, Mapping):
            runs = {key: with_rule(mapping[key]) for key in ("run", "trained") if key in mapping}
            mapping = {**mapping, **runs}
        return from_mapping(cls, mapping)

    def to_json(self) -> str:
        """Canonical JSON: equal specs have equal text, the runs in it as in a record."""
        trained = None if self.trained is None else self.trained.to_dict()
        document = {**dataclasses.asdict(self), "run": self.run.to_dict(), "trained": trained}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @property
    def hash(self) -> str:
        """16 hexadecimal digits, equal for equal specs on every machine."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @property
    def path(self) -> str:
        """Readable place of the trace, without an ending."""
        run, inference = self.run, self.run.inference
        how = "sweep"
        if inference is not None:
            how = f"{inference.optimizer}{digits(inference.step_size)}"
            how += f"_eps{digits(inference.eps)}" if inference.optimizer == "adam" else ""
        how += "" if run.dtype == "float64" else f"_{run.dtype}"
        how += "" if self.form == "plain" else f"_{self.form}"
        moment = "untrained" if self.trained is None else f"epoch{self.epoch:02d}"
        place = f"{run.dataset}/L{run.network.depth:03d}/{run.method}"
        return f"{self.network}/{place}/{moment}/{how}/seed{run.seed}"
