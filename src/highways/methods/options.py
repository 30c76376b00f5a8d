"""The settings of the learning rules themselves: the section `rule` of a run. Imports no torch.

Steps that are null depend on the depth L; see each rule.
"""

from dataclasses import dataclass

from highways.fields import choice, flag, integer, real

STEPS = 1_000_000


@dataclass(frozen=True)
class Epc:
    """ePC: `steps` T updates of the errors, each of size `step_size`."""

    step_size: float = real(1e-3, low=0.0, above=True)
    steps: int = integer(5, low=1, high=STEPS)


@dataclass(frozen=True)
class MetaPcn:
    """Meta-PCN: T updates of the states (null: L - 1); whether every weight step ends in a normalisation."""

    step_size: float = real(1.0, low=0.0, above=True)
    steps: int | None = integer(None, low=1, high=STEPS)
    normalise: bool = flag(True)


@dataclass(frozen=True)
class Precision:
    """Precision-guided PC: T updates of the states (null: L + 3) under a schedule of precisions.

    schedule: `spike` (the authors' code: 1 when the signal arrives, `off_spike` else) or `literal` (their Eq. 4).
    momentum: of the states, with Nesterov's form.
    forward_update: whether the weights learn at the activities of the forward sweep.
    """

    step_size: float = real(0.95, low=0.0, above=True)
    steps: int | None = integer(None, low=1, high=STEPS)
    schedule: str = choice("spike", options=("spike", "literal"))
    off_spike: float = real(1e-3, low=0.0)
    momentum: float = real(0.1, low=0.0, high=1.0)
    forward_update: bool = flag(True)


@dataclass(frozen=True)
class Dkp:
    """DKP: learned feedback from the output; its rate (null: that of the weights)."""

    feedback_lr: float | None = real(None, low=0.0, above=True)


@dataclass(frozen=True)
class DkpPc:
    """DKP-PC: the rates of the first phase and of the feedback; T steps of size `step_size` in the second."""

    first_lr: float = real(1e-3, low=0.0, above=True)
    feedback_lr: float = real(1e-3, low=0.0, above=True)
    step_size: float = real(0.5, low=0.0, above=True)
    steps: int = integer(1, low=0, high=STEPS)


@dataclass(frozen=True)
class Lra:
    """LRA: targets at a distance `beta` down the error.

    every: 0 for LRA-E (the error comes from the next layer), m for rec-LRA (from the output at every m-th layer).
    learned: whether the feedback matrices follow the weights or stay as drawn.
    gamma: scales their gradient, as published for plain gradient descent; AdamW, which takes it here, does not see
        a scale but for its epsilon.
    """

    beta: float = real(0.125, low=0.0, above=True)
    every: int = integer(0, low=0, high=1024)
    learned: bool = flag(True)
    gamma: float = real(1.0, low=0.0)


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
