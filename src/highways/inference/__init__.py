"""The E-step: relax the free states on the energy, by one of several kernels that are held to the same tests.

native     C++, float32 on a CPU: the fastest there
mixed      the same with products of bf16 numbers, added up in float32: faster still, where it is asked for
batched    closed form in torch, all layers in one product; CPU or GPU
reference  autograd on the energy: slow, the ground truth
"""

import sys
from types import ModuleType

import torch
from torch import Tensor

from highways.inference import batched, mixed, native, reference
from highways.inference.build import BuildError
from highways.inference.estep import EStep
from highways.model.arithmetic import exact_float32
from highways.model.energy import Highways, Relaxed, Schedule
from highways.model.network import Architecture, Parameters
from highways.specs.fields import SpecError
from highways.specs.run import Conventions, Inference

KERNELS: dict[str, ModuleType] = {
    "native": native,
    "mixed": mixed,
    "batched": batched,
    "reference": reference,
}
COMPILED = ("native", "mixed")


def relax(
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    inference: Inference,
    architecture: Architecture,
    conventions: Conventions,
    highways: Highways | None = None,
    kernel: str = "batched",
    schedule: Schedule | None = None,
) -> tuple[Tensor, Relaxed]:
    """Relax the free states for T steps from the feedforward sweep (section 2, Eq. z_update).

    x (B, D), y (B, C) one-hot. Returns the initial states, (L-1, B, N), and where they end, with the
    predictions and errors there by the kernel's own products: where the signal has not arrived, the states are
    still exactly their predictions and the errors exactly zero. ValueError as of `EStep`.
    """
    module = KERNELS[kernel]
    scale = 1.0 / x.shape[0] if conventions.state_gradient == "mean" else 1.0
    with exact_float32():
        start = _rounded(parameters, x, architecture) if conventions.initial_state == "rounded" else None
        step = EStep(parameters, x, y, architecture, inference, scale, highways, start, schedule)
        result: tuple[Tensor, Relaxed] = module.relax(step)
    return result


def choose_kernel(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """The kernel to use where `name` is asked for; auto takes native where it can be had, else batched.

    SpecError for an unknown kernel, and for native and mixed where they cannot be had. Under auto a missing
    compiler is one line on standard error.
    """
    if name not in ("auto", *KERNELS):
        raise SpecError(f"kernel: {name!r} is not allowed; it takes one of auto, {', '.join(KERNELS)}")
    if name not in ("auto", *COMPILED):
        return name
    if not native.supports(device, dtype):
        if name != "auto":
            raise SpecError(f"kernel: {name} computes float32 on a CPU, not {dtype} on {device}; use batched")
        return "batched"
    compiled = "native" if name == "auto" else name
    try:
        native.load(compiled)
    except BuildError as error:
        if name != "auto":
            other = "batched" if name == "native" else "native"
            raise SpecError(f"kernel: {name} cannot be built: {error}; use {other}") from None
        print(f"highways: the native kernel cannot be built: {error}; using batched", file=sys.stderr)
        return "batched"
    return compiled


def _rounded(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """The feedforward sweep in double precision, rounded."""
    wide = Parameters(**{name: tensor.to(torch.float64) for name, tensor in parameters.named().items()})
    return reference.initial_states(wide, x.to(torch.float64), architecture).to(x.dtype)
