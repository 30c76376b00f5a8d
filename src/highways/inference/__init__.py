"""The E-step: relax the free states on the energy. Several kernels compute it and pass the same tests.

native     C++, float32 on a CPU: the fastest there
mixed      native with bf16 products, summed in float32: faster still, but used on request only
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

    x (B, D), y (B, C) one-hot. Returns the initial states, (L-1, B, N), and the relaxed states, with the
    predictions and errors that the kernel's own products give. From exact initial states, a layer that no
    signal has reached has errors of exactly zero. Raises ValueError where `EStep` does.
    """
    module = KERNELS[kernel]
    scale = 1.0 / x.shape[0] if conventions.state_gradient == "mean" else 1.0
    with exact_float32():
        start = _rounded(parameters, x, architecture) if conventions.initial_state == "rounded" else None
        step = EStep(parameters, x, y, architecture, inference, scale, highways, start, schedule)
        result: tuple[Tensor, Relaxed] = module.relax(step)
    return result


def choose_kernel(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """The kernel that `name` stands for: auto is native if that is supported and can be built, else batched.

    Raises SpecError for an unknown kernel, and where native or mixed is unsupported or cannot be built. With
    auto, a failed build prints one line on standard error.
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
    """The states of a forward sweep in double precision, (L-1, B, N), rounded to the type of x."""
    wide = Parameters(**{name: tensor.to(torch.float64) for name, tensor in parameters.named().items()})
    return reference.initial_states(wide, x.to(torch.float64), architecture).to(x.dtype)
