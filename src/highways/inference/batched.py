"""The `batched` kernel: closed form, one product for all layers; on a CPU, or on a GPU as one CUDA graph."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from highways.inference.estep import EStep
from highways.inference.graph import Tensors, replayed
from highways.inference.optimizer import state_optimizer
from highways.model.energy import (
    Errors,
    Highways,
    Relaxed,
    Schedule,
    errors,
    initial_states,
    predict,
    state_gradient,
)
from highways.model.network import Architecture, Parameters
from highways.specs.run import Inference


@torch.no_grad()
def relax(step: EStep) -> tuple[Tensor, Relaxed]:
    """The initial states, (L-1, B, N): `step.start`, else the forward sweep; and the result of T steps."""
    parameters, x, architecture, inference = step.parameters, step.x, step.architecture, step.inference
    swept = initial_states(parameters, x, architecture)
    initial = swept if step.start is None else step.start
    tensors = {**parameters.named(), "mu_1": swept[0], "y": step.y, "z": initial}
    scale, fixed, momentum = step.scale, None, 0.0
    if step.highways is not None:
        tensors["feedback"] = step.highways.feedback
        fixed = tuple(step.highways[1:])
    if step.schedule is not None:
        tensors["precisions"], momentum = step.schedule

    def work(tensors: Tensors) -> tuple[Tensor, ...]:
        return _descend(tensors, architecture, inference, scale, fixed, momentum)

    if x.is_cuda:
        z, mu, *error = replayed(work, (architecture, inference, scale, fixed, momentum), tensors)
    else:
        z, mu, *error = work(tensors)
    return initial, Relaxed(z, mu, Errors(*error))


def _descend(
    tensors: Tensors,
    architecture: Architecture,
    inference: Inference,
    scale: float,
    fixed: tuple[Any, ...] | None,
    momentum: float,
) -> tuple[Tensor, ...]:
    """The states after T steps from z, their predictions and hidden errors, each (L-1, B, N); eps_L, (B, C).

    fixed: (first, every, chain) of `Highways`, None without highways. momentum: of `Schedule`.
    """
    parameters = Parameters(**{f.name: tensors[f.name] for f in fields(Parameters) if f.name in tensors})
    mu_1, y, z = tensors["mu_1"], tensors["y"], tensors["z"].clone()
    highways = None if fixed is None else Highways(tensors["feedback"], *fixed)
    schedule = Schedule(tensors["precisions"], momentum) if "precisions" in tensors else None
    update = state_optimizer(inference, z, momentum)
    for t in range(1, inference.steps + 1):
        predictions = predict(parameters, z, mu_1, architecture)
        error = errors(z, y, predictions, architecture)
        if schedule is not None:
            error = schedule.weighted(error, t)
        gradient = state_gradient(parameters, predictions, error, architecture, highways)
        update(z, gradient.mul_(scale), t)
    predictions = predict(parameters, z, mu_1, architecture)
    return z, predictions.mu, *errors(z, y, predictions, architecture)
