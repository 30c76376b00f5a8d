"""Small problems for the E-step's kernels, and their solution by the reference kernel in float64."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from highways.inference import native, reference
from highways.inference.estep import EStep
from highways.model.energy import Errors, Highways, Schedule
from highways.model.network import Architecture, Parameters, initialise
from highways.specs.run import Conventions, Highway, Inference, Learning, Network, RunSpec

SCALE = 1 / 32  # of the gradient, as in the mean over a batch of 32
EULER = Inference("euler", 0.4, 8)
# With eps = 0.01 an update is at most 100 times as sensitive to rounding as the gradient.
ADAM = Inference("adam", 0.005, 8, eps=1e-2)


class Problem:
    """Random weights, gains, biases, images and targets of a small network in float32."""

    def __init__(self, spec: RunSpec, batch: int, inputs: int = 20, classes: int = 10) -> None:
        self.spec, self.architecture = spec, Architecture.of(spec)
        stream = torch.Generator().manual_seed(7)
        self.parameters = initialise(spec, inputs, classes)
        self.parameters.gain.add_(0.1 * torch.randn(self.parameters.gain.shape, generator=stream))
        for name, tensor in self.parameters.named().items():
            if name.startswith("b_"):
                tensor.normal_(std=0.1, generator=stream)
        self.x = torch.randn(batch, inputs, generator=stream)
        labels = torch.randint(classes, (batch,), generator=stream)
        self.y = torch.eye(classes)[labels]
        self.schedule: Schedule | None = None
        self.highways = None
        self.kernel: ModuleType = native
        if spec.highway is not None:
            shape = (len(spec.endpoints), classes, spec.network.width)
            feedback = 0.05 * torch.randn(shape, generator=stream)
            self.highways = Highways(feedback, spec.endpoints[0], spec.highway.every)

    def start(self) -> Tensor:
        return self.kernel.initial_states(self.parameters, self.x, self.architecture)

    def relax(
        self, inference: Inference, scale: float = SCALE, start: Tensor | None = None
    ) -> tuple[Tensor, Errors]:
        """States (L-1, B, N) and errors after the E-step; only with `start` every layer is computed."""
        z, _, errors = self.kernel.relax(self.step(inference, scale, start))[1]
        return z, errors

    def step(self, inference: Inference, scale: float = SCALE, start: Tensor | None = None) -> EStep:
        settings = (self.architecture, inference, scale, self.highways, start, self.schedule)
        return EStep(self.parameters, self.x, self.y, *settings)

    def exact(self, inference: Inference, start: Tensor | None = None) -> tuple[Tensor, Errors]:
        """The reference kernel in double precision from the same states."""
        z = self.start() if start is None else start
        wide = Parameters(**{name: tensor.double() for name, tensor in self.parameters.named().items()})
        highways = self.highways
        if highways is not None:
            highways = highways._replace(feedback=highways.feedback.double())
        schedule = self.schedule
        if schedule is not None:
            schedule = schedule._replace(precisions=schedule.precisions.double())
        settings = (self.architecture, inference, SCALE, highways, z.double(), schedule)
        z, _, errors = reference.relax(EStep(wide, self.x.double(), self.y.double(), *settings))[1]
        return z, errors


def problem(
    method: str = "hep",
    depth: int = 6,
    width: int = 24,
    batch: int = 37,
    phi: str = "relu",
    every: int = 1,
    rule: Any = None,
    **reading,
) -> Problem:
    spec = RunSpec(
        "mnist",
        method,
        Network(depth, width=width, phi=phi),
        Learning(1e-3),
        EULER if method in ("pc", "hep") else None,
        Highway(1.0, every) if method == "hep" else None,
        Conventions(**reading),
        rule=rule,
    )
    return Problem(spec, batch)


def assert_agree(ours: tuple[Tensor, Errors], exact: tuple[Tensor, Errors]) -> None:
    """Equal to 1e-5: the rounding of float32 (6e-8 of states up to about 4), grown over layers and steps.

    Under Adam an update is step * g / (|g| + eps): a rounding of 1e-7 in g moves it by no more than
    0.005 * 1e-7 / 0.01, which is less than that."""
    for mine, theirs in (
        (ours[0], exact[0]),
        (ours[1].hidden, exact[1].hidden),
        (ours[1].output, exact[1].output),
    ):
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=1e-5)


def assert_same_bits(ours: tuple[Tensor, Errors], theirs: tuple[Tensor, Errors]) -> None:
    for mine, other in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
        assert torch.equal(mine, other)


def random_schedule(depth: int) -> Schedule:
    return Schedule(2 * torch.rand(EULER.steps, depth, generator=torch.Generator().manual_seed(1)), momentum=0.3)


def lane_problem(**reading: Any) -> Problem:
    """128 samples whose mu_1, a sum of whole multiples of 2^-8, is exact and so does not depend on the batch."""
    case = problem(batch=128, width=24, every=2, **reading)
    case.x = torch.randint(-4, 5, (128, 20), generator=torch.Generator().manual_seed(0)).float()
    for tensor in (case.parameters.w_in, case.parameters.b_in):
        if tensor is not None:
            tensor.mul_(256).round_().div_(256)
    return case
