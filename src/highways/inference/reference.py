"""The `reference` kernel: autograd on the energy, layer by layer. Slow and obviously right: the ground truth.

It shares no formula with `energy.py`: torch's own RMSNorm, linear map and cross-entropy, differentiated by torch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways.energy import Errors, Highways, Relaxed
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


def predictions(parameters: Parameters, mu_1: Tensor, z: Tensor, architecture: Architecture) -> list[Tensor]:
    """mu_1..mu_L from the states z, (L-1, B, N), and the prediction that the clamped input makes."""
    above = (prediction(parameters, layer, state, architecture) for layer, state in enumerate(z.unbind(), start=1))
    return [mu_1, *above]


def energy(
    parameters: Parameters,
    mu_1: Tensor,
    y: Tensor,
    z: Tensor,
    architecture: Architecture,
    below: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Eq. energy summed over the batch, and the logits (B, C); predictions are made from `below`, by default z."""
    *mu, logits = predictions(parameters, mu_1, z if below is None else below, architecture)
    total = F.cross_entropy(logits, y, reduction="sum")
    for state, predicted in zip(z.unbind(), mu, strict=True):
        total = total + 0.5 * (state - predicted).square().sum()
    return total, logits


def augmented_energy(
    parameters: Parameters,
    mu_1: Tensor,
    y: Tensor,
    z: Tensor,
    architecture: Architecture,
    highways: Highways | None,
) -> Tensor:
    """Eq. aug_energy summed over the batch: E + sum_{i in S} z_i^T alpha V_i sg(eps_L)."""
    below = z
    if highways is not None and not highways.chain:
        below = torch.cat([z[:-1].detach(), z[-1:]])
    total, logits = energy(parameters, mu_1, y, z, architecture, below)
    if highways is None:
        return total
    output_error = (y - logits.softmax(-1)).detach()
    endpoints = z[highways.first - 1 :: highways.every]
    return total + (endpoints * torch.matmul(output_error, highways.feedback)).sum()


def relax(
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    architecture: Architecture,
    inference: Inference,
    scale: float,
    highways: Highways | None,
    start: Tensor | None = None,
) -> tuple[Tensor, Relaxed]:
    """The initial states, (L-1, B, N): the sweep, or `start` where given; and where T steps from there end."""
    swept = initial_states(parameters, x, architecture)
    mu_1 = swept[0]
    initial = swept if start is None else start
    z = initial.clone()
    update = state_optimizer(inference, z)
    for t in range(1, inference.steps + 1):
        with torch.enable_grad():
            free = z.detach().requires_grad_()
            total = augmented_energy(parameters, mu_1, y, free, architecture, highways)
            (gradient,) = torch.autograd.grad(total, free)
        update(z, gradient * scale, t)
    with torch.no_grad():
        *hidden, logits = predictions(parameters, mu_1, z, architecture)
        mu = torch.stack(hidden)
        return initial, Relaxed(z, mu, Errors(z - mu, y - logits.softmax(-1)))


@torch.no_grad()
def initial_states(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """States that equal their predictions bit for bit, (L-1, B, N)."""
    states = [x]
    for layer in range(parameters.depth - 1):
        states.append(prediction(parameters, layer, states[-1], architecture))
    return torch.stack(states[1:])
