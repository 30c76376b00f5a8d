"""The inputs of an E-step, and their check before a kernel uses them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from highways.model.energy import Highways, Schedule
from highways.model.network import Architecture, Parameters
from highways.specs.run import Inference


@dataclass(frozen=True)
class EStep:
    """The relaxation of the free states for T steps from the feedforward sweep, or from `start` where given.

    x (B, D), y (B, C), start (L-1, B, N). scale: factor of the state gradient, 1/B for a batch-mean energy.
    A schedule of precisions, (T, L), is for Euler's steps without highways.

    Raises ValueError where arrays do not fit each other in shape, type, layout or device, so all kernels
    refuse the same problems with the same messages, and native code gets checked arrays only.
    """

    parameters: Parameters
    x: Tensor
    y: Tensor
    architecture: Architecture
    inference: Inference
    scale: float
    highways: Highways | None = None
    start: Tensor | None = None
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        check_network(self.parameters, self.x)
        (batch, _), (classes, width) = self.x.shape, self.parameters.w_out.shape
        depth = self.parameters.depth
        _check("y", self.y, (batch, classes), self.x)
        if self.start is not None:
            _check("start", self.start, (depth - 1, batch, width), self.x)
        if self.highways is not None:
            first, every = self.highways.first, self.highways.every
            if first < 1 or every < 1:
                raise ValueError(f"highways to layers {first}, {first} + {every}, ...: both take 1 or more")
            endpoints = len(range(first, depth, every))
            _check("feedback", self.highways.feedback, (endpoints, classes, width), self.x)
        if self.schedule is not None:
            if self.inference.optimizer != "euler" or self.highways is not None:
                raise ValueError("a schedule of precisions is for Euler's steps without highways")
            _check("precisions", self.schedule.precisions, (self.inference.steps, depth), self.x)


def check_network(parameters: Parameters, x: Tensor) -> None:
    """Raise ValueError where the weights do not fit each other or the images x, (B, D)."""
    if x.dim() != 2 or parameters.w_in.dim() != 2 or parameters.w_hidden.dim() != 3 or parameters.w_out.dim() != 2:
        raise ValueError("x, w_in and w_out must be matrices, and w_hidden a stack of matrices")
    (width, inputs), hidden = parameters.w_in.shape, parameters.w_hidden.shape[0]
    classes, normalised = parameters.w_out.shape[0], parameters.gain.shape[0]
    if normalised not in (0, hidden, hidden + 1):
        raise ValueError(f"gain has {normalised} rows; it takes 0, {hidden} or {hidden + 1}")
    shapes = {
        "w_in": (width, inputs),
        "w_hidden": (hidden, width, width),
        "w_out": (classes, width),
        "gain": (normalised, width),
        "b_in": (width,),
        "b_hidden": (hidden, width),
        "b_out": (classes,),
    }
    named = parameters.named()
    if not {"b_in", "b_hidden", "b_out"}.isdisjoint(named) and not shapes.keys() <= named.keys():
        raise ValueError("biases: all of b_in, b_hidden and b_out, or none")
    _check("x", x, (x.shape[0], inputs), x)
    for name, tensor in named.items():
        _check(name, tensor, shapes[name], x)


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """Raise ValueError unless the tensor is dense, with this shape and the type and device of `like`."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; it takes {shape}")
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} is {tensor.layout}; it takes a dense tensor")
    if (tensor.dtype, tensor.device) != (like.dtype, like.device):
        wanted = f"{like.dtype} on {like.device}"
        raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}; it takes {wanted}, as the images")
