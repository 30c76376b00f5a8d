"""The settings of the methods, the section `rule` of a run, and what each method costs. Imports no torch.

Where `steps` is null, the number of steps T depends on the depth L.
"""

from dataclasses import dataclass

from highways.specs.cost import Cost
from highways.specs.fields import choice, flag, integer, real
from highways.specs.parametrisation import Parametrisation, Scales

STEPS = 1_000_000


@dataclass(frozen=True)
class Epc:
    """ePC: `steps` T updates of the errors, each of size `step_size`."""

    step_size: float = real(1e-3, low=0.0, above=True)
    steps: int = integer(5, low=1, high=STEPS)


def epc_cost(options: Epc, depth: int) -> Cost:
    """A sweep up and one down per step."""
    return Cost(sweeps=2.0 * options.steps)


@dataclass(frozen=True)
class MetaPcn:
    """Meta-PCN: T updates of the states (null: L - 1). normalise: the weights, after every weight step."""

    step_size: float = real(1.0, low=0.0, above=True)
    steps: int | None = integer(None, low=1, high=STEPS)
    normalise: bool = flag(True)

    def steps_at(self, depth: int) -> int:
        """T in a network of that depth."""
        return depth - 1 if self.steps is None else self.steps


def meta_pcn_cost(options: MetaPcn, depth: int) -> Cost:
    """T inference steps; none with step size 1, where the sweep down of the weight step replaces them."""
    return Cost() if options.step_size == 1.0 else Cost(steps=float(options.steps_at(depth)))


@dataclass(frozen=True)
class Precision:
    """Precision-guided PC: T updates of the states (null: L + 3) under a schedule of precisions.

    schedule: `spike` (the authors' code: 1 when the signal arrives, `off_spike` else) or `literal` (their Eq. 4).
    momentum: Nesterov's, of the states.
    forward_update: whether the weights learn at the activities of the forward sweep.
    """

    step_size: float = real(0.95, low=0.0, above=True)
    steps: int | None = integer(None, low=1, high=STEPS)
    schedule: str = choice("spike", options=("spike", "literal"))
    off_spike: float = real(1e-3, low=0.0)
    momentum: float = real(0.1, low=0.0, high=1.0)
    forward_update: bool = flag(True)

    def steps_at(self, depth: int) -> int:
        """T in a network of that depth."""
        return depth + 3 if self.steps is None else self.steps


def precision_cost(options: Precision, depth: int) -> Cost:
    return Cost(steps=_while_the_signal_travels(options.steps_at(depth), depth))


def _while_the_signal_travels(steps: int, depth: int) -> float:
    """The equivalent number of full steps, since each updates only the layers that the signal has reached."""
    return steps - min(steps, depth) / 2


@dataclass(frozen=True)
class Dkp:
    """DKP: learned feedback from the output. feedback_lr: its learning rate (null: that of the weights)."""

    feedback_lr: float | None = real(None, low=0.0, above=True)


def dkp_cost(options: Dkp, depth: int) -> Cost:
    return Cost(direct=depth - 1, learned=True)


@dataclass(frozen=True)
class DkpPc:
    """DKP-PC: the rates of the first phase and of the feedback; T steps of size `step_size` in the second."""

    first_lr: float = real(1e-3, low=0.0, above=True)
    feedback_lr: float = real(1e-3, low=0.0, above=True)
    step_size: float = real(0.5, low=0.0, above=True)
    steps: int = integer(1, low=0, high=STEPS)


def dkp_pc_cost(options: DkpPc, depth: int) -> Cost:
    """The first phase and the last one each take a step on the weights."""
    return Cost(steps=float(options.steps), sweeps=3.0, direct=depth - 1, learned=True)


@dataclass(frozen=True)
class Lra:
    """LRA: targets at a distance `beta` down the error.

    every: 0 for LRA-E (the error comes from the next layer), m for rec-LRA (from the output at every m-th layer).
    learned: whether the feedback matrices follow the weights or stay as drawn.
    gamma: scales their gradient, as published for plain gradient descent. AdamW, used here, ignores a scale
        but for its epsilon.
    """

    beta: float = real(0.125, low=0.0, above=True)
    every: int = integer(0, low=0, high=1024)
    learned: bool = flag(True)
    gamma: float = real(1.0, low=0.0)

    def direct(self, depth: int) -> list[int]:
        """The hidden layers that are fed from the output; the others are fed from the layer above."""
        last = depth - 1
        return [i for i in range(1, depth) if i == last or (self.every > 0 and i % self.every == 0)]


def lra_cost(options: Lra, depth: int) -> Cost:
    direct = len(options.direct(depth))
    return Cost(direct=direct, neighbours=depth - 1 - direct, learned=options.learned)


@dataclass(frozen=True)
class Mupc:
    """muPC: T updates of the states (null: L) on the batch mean of the energy.

    skips: identity skips between hidden layers, as published; without them the scalings are those of a plain net.
    loss: `squared` error, as published, or `cross_entropy`.
    """

    step_size: float = real(0.5, low=0.0, above=True)
    steps: int | None = integer(None, low=1, high=STEPS)
    skips: bool = flag(True)
    loss: str = choice("squared", options=("squared", "cross_entropy"))

    def steps_at(self, depth: int) -> int:
        """T in a network of that depth."""
        return depth if self.steps is None else self.steps


def mupc_cost(options: Mupc, depth: int) -> Cost:
    return Cost(steps=_while_the_signal_travels(options.steps_at(depth), depth))


def mupc_network(options: Mupc) -> Parametrisation:
    scales = mupc_scales if options.skips else _mupc_scales_without_skips
    return Parametrisation(standard=False, skips=options.skips, squared=options.loss == "squared", scales=scales)


def mupc_scales(depth: int, width: int, inputs: int) -> Scales:
    """1/sqrt(D) at the input, 1/sqrt(N L) inside, 1/N at the output."""
    return {"w_in": inputs**-0.5, "w_hidden": (width * depth) ** -0.5, "w_out": 1 / width}


def _mupc_scales_without_skips(depth: int, width: int, inputs: int) -> Scales:
    """1/sqrt(D) at the input, 1/sqrt(N) inside, 1/N at the output."""
    return mupc_scales(1, width, inputs)


@dataclass(frozen=True)
class Ipc:
    """iPC: T steps of states and weights per batch (null: L, so that the error reaches every layer)."""

    step_size: float = real(0.5, low=0.0, above=True)
    steps: int | None = integer(None, low=1, high=STEPS)

    def steps_at(self, depth: int) -> int:
        """T in a network of that depth."""
        return depth if self.steps is None else self.steps


def ipc_cost(options: Ipc, depth: int) -> Cost:
    steps = options.steps_at(depth)
    return Cost(steps=float(steps), weight_steps=steps)
