"""The `reference` kernel: autograd on the energy, layer by layer. Slow and obviously right: the ground truth.

It shares no formula with `energy.py`: torch's own RMSNorm, linear map and cross-entropy, differentiated by torch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways.inference.estep import EStep
from highways.inference.optimizer import state_optimizer
from highways.model.energy import Errors, Highways, Relaxed
from highways.model.network import Architecture, Parameters


def prediction(parameters: Parameters, layer: int, z: Tensor, architecture: Architecture) -> Tensor:
    """mu_{layer+1} from z_layer, (B, .), for layer = 0..L-1."""
    nonlinearity = torch.relu if architecture.phi == "relu" else torch.tanh
    last = parameters.depth - 1
    h = z
    if layer > 0:
        if architecture.activation == "pre_norm":
            h = nonlinearity(h)
        if layer <= parameters.gain.shape[0]:
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
    if layer < last and architecture.activation in ("post", "both"):
        a = nonlinearity(a)
    return a + z if architecture.skips and 0 < layer < last else a


def predictions(parameters: Parameters, mu_1: Tensor, z: Tensor, architecture: Architecture) -> list[Tensor]:
    """mu_1..mu_L from the states z, (L-1, B, N), and mu_1, (B, N), which the clamped input fixes."""
    above = (prediction(parameters, layer, state, architecture) for layer, state in enumerate(z.unbind(), start=1))
    return [mu_1, *above]


def energy(
    parameters: Parameters,
    mu_1: Tensor,
    y: Tensor,
    z: Tensor,
    architecture: Architecture,
    below: Tensor | None = None,
    precisions: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Eq. energy summed over the batch, and the logits (B, C); predictions are made from `below`, by default z.

    precisions (L,): pi_1..pi_L, the factors of the energy's terms, 1 by default.
    """
    *mu, logits = predictions(parameters, mu_1, z if below is None else below, architecture)
    *pi, pi_output = (precisions if precisions is not None else z.new_ones(parameters.depth)).unbind()
    total = pi_output * loss(logits, y, architecture)
    for weight, state, predicted in zip(pi, z.unbind(), mu, strict=True):
        total = total + weight * 0.5 * (state - predicted).square().sum()
    return total, logits


def loss(logits: Tensor, y: Tensor, architecture: Architecture) -> Tensor:
    """The supervisory loss, summed over the batch."""
    if architecture.squared:
        return 0.5 * F.mse_loss(logits, y, reduction="sum")
    return F.cross_entropy(logits, y, reduction="sum")


def augmented_energy(
    parameters: Parameters,
    mu_1: Tensor,
    y: Tensor,
    z: Tensor,
    architecture: Architecture,
    highways: Highways | None,
    precisions: Tensor | None = None,
) -> Tensor:
    """Eq. aug_energy summed over the batch: E + sum_{i in S} z_i^T alpha V_i sg(eps_L)."""
    below = z
    if highways is not None and not highways.chain:
        below = torch.cat([z[:-1].detach(), z[-1:]])
    total, logits = energy(parameters, mu_1, y, z, architecture, below, precisions)
    if highways is None:
        return total
    output_error = (y - logits.softmax(-1)).detach()
    endpoints = z[highways.first - 1 :: highways.every]
    return total + (endpoints * torch.matmul(output_error, highways.feedback)).sum()


def relax(step: EStep) -> tuple[Tensor, Relaxed]:
    """The initial states, (L-1, B, N): `step.start`, else the forward sweep; and the result of T steps."""
    parameters, y, architecture, inference = step.parameters, step.y, step.architecture, step.inference
    highways, schedule = step.highways, step.schedule
    swept = initial_states(parameters, step.x, architecture)
    mu_1 = swept[0]
    initial = swept if step.start is None else step.start
    z = initial.clone()
    update = state_optimizer(inference, z, schedule.momentum if schedule else 0.0)
    for t in range(1, inference.steps + 1):
        with torch.enable_grad():
            free = z.detach().requires_grad_()
            precisions = schedule.precisions[t - 1] if schedule else None
            total = augmented_energy(parameters, mu_1, y, free, architecture, highways, precisions)
            (gradient,) = torch.autograd.grad(total, free)
        update(z, gradient * step.scale, t)
    with torch.no_grad():
        *hidden, logits = predictions(parameters, mu_1, z, architecture)
        mu = torch.stack(hidden)
        predicted = logits if architecture.squared else logits.softmax(-1)
        return initial, Relaxed(z, mu, Errors(z - mu, y - predicted))


@torch.no_grad()
def initial_states(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """States that equal their predictions bit for bit, (L-1, B, N)."""
    states = [x]
    for layer in range(parameters.depth - 1):
        states.append(prediction(parameters, layer, states[-1], architecture))
    return torch.stack(states[1:])
