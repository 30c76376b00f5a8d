"""The `reference` kernel: autograd on the energy, layer by layer. Slow and obviously right: the ground truth.

It shares no formula with `energy.py`: torch's own RMSNorm, linear map and cross-entropy, differentiated by torch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways.energy import Errors, Highways
from highways.inference.optimizer import state_optimizer
from highways.network import Architecture, Parameters
from highways.spec import Inference


def prediction(parameters: Parameters, layer: int, z: Tensor, architecture: Architecture) -> Tensor:
    """mu_{layer+1} from z_layer, (B, .), for layer = 0..L-1."""
    nonlinearity = torch.relu if architecture.phi == "relu" else torch.tanh
    last = parameters.depth - 1
    h = z
    if layer > 0:
        if architecture.activation == "pre_norm":
            h = nonlinearity(h)
        if layer < last or architecture.normalise_output_input:
            h = F.rms_norm(h, h.shape[-1:], parameters.gain[layer - 1], architecture.rms_eps)
        if architecture.activation in ("pre", "both"):
            h = nonlinearity(h)
    if layer == 0:
        bias = parameters.b_in
    elif layer < last:
        bias = None if parameters.b_hidden is None else parameters.b_hidden[layer - 1]
    else:
        bias = parameters.b_out
    a = F.linear(h, parameters.matrices()[layer], bias)
    return nonlinearity(a) if layer < last and architecture.activation in ("post", "both") else a


def energy(
    parameters: Parameters, x: Tensor, y: Tensor, z: Tensor, architecture: Architecture
) -> tuple[Tensor, Tensor]:
    """Eq. energy summed over the batch, and the logits (B, C)."""
    below, total = x, torch.zeros((), dtype=x.dtype, device=x.device)
    for layer, state in enumerate(z.unbind()):
        total = total + 0.5 * (state - prediction(parameters, layer, below, architecture)).square().sum()
        below = state
    logits = prediction(parameters, parameters.depth - 1, below, architecture)
    return total + F.cross_entropy(logits, y, reduction="sum"), logits


def augmented_energy(
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    architecture: Architecture,
    highways: Highways | None,
) -> Tensor:
    """Eq. aug_energy summed over the batch: E + sum_{i in S} z_i^T alpha V_i sg(eps_L)."""
    total, logits = energy(parameters, x, y, z, architecture)
    if highways is None:
        return total
    output_error = (y - logits.softmax(-1)).detach()
    endpoints = z[highways.first - 1 :: highways.every]
    return total + (endpoints * torch.matmul(output_error, highways.feedback)).sum()


def relax(
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    architecture: Architecture,
    inference: Inference,
    scale: float,
    highways: Highways | None,
) -> tuple[Tensor, Errors]:
    """T steps from the states z, (L-1, B, N), which are left untouched; the states after them and their errors."""
    z = z.clone()
    update = state_optimizer(inference, z)
    for t in range(1, inference.steps + 1):
        with torch.enable_grad():
            free = z.detach().requires_grad_()
            total = augmented_energy(parameters, x, y, free, architecture, highways)
            (gradient,) = torch.autograd.grad(total, free)
        update(z, gradient * scale, t)
    with torch.no_grad():
        return z, errors(parameters, x, y, z, architecture)


def errors(parameters: Parameters, x: Tensor, y: Tensor, z: Tensor, architecture: Architecture) -> Errors:
    """Eq. errors at the states z."""
    below = [x, *z.unbind()]
    *mu, logits = (prediction(parameters, layer, state, architecture) for layer, state in enumerate(below))
    return Errors(z - torch.stack(mu), y - logits.softmax(-1))


@torch.no_grad()
def initial_states(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """States that equal their predictions bit for bit, (L-1, B, N)."""
    states = [x]
    for layer in range(parameters.depth - 1):
        states.append(prediction(parameters, layer, states[-1], architecture))
    return torch.stack(states[1:])
