"""The E-step: relax the free states on the energy, by one of several kernels that are held to the same tests."""

from types import ModuleType

import torch
from torch import Tensor

from highways.energy import Errors, Highways
from highways.fields import SpecError
from highways.inference import batched, reference
from highways.inference.arithmetic import exact_float32
from highways.network import Architecture, Parameters
from highways.spec import Conventions, Inference

KERNELS: dict[str, ModuleType] = {"reference": reference, "batched": batched}


def relax(
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    inference: Inference,
    architecture: Architecture,
    conventions: Conventions,
    highways: Highways | None = None,
    kernel: str = "batched",
) -> tuple[Tensor, Tensor, Errors]:
    """Relax the free states for T steps from the feedforward sweep (section 2, Eq. z_update).

    x (B, D), y (B, C) one-hot. Returns the initial and the final states, each (L-1, B, N), and the errors at the
    final states by the kernel's own products: where the signal has not arrived, the states are still exactly their
    predictions and the errors exactly zero.
    """
    module = kernel_named(kernel)
    scale = 1.0 / x.shape[0] if conventions.state_gradient == "mean" else 1.0
    with exact_float32():
        initial = module.initial_states(parameters, x, architecture)
        if conventions.initial_state == "rounded":
            initial = _rounded(parameters, x, architecture).to(x.dtype)
        final, error = module.relax(parameters, x, y, initial, architecture, inference, scale, highways)
    return initial, final, error


def kernel_named(name: str) -> ModuleType:
    """The kernel of that name; SpecError lists the right ones for a wrong one."""
    if name not in KERNELS:
        raise SpecError(f"kernel: {name!r} is not allowed; it takes one of {', '.join(KERNELS)}")
    return KERNELS[name]


def _rounded(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """The feedforward sweep in double precision."""
    wide = Parameters(**{name: tensor.to(torch.float64) for name, tensor in parameters.named().items()})
    return reference.initial_states(wide, x.to(torch.float64), architecture)
