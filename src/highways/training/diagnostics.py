"""Per-layer numbers of a record: the sizes of states, errors and gradients, and the cosines to backprop."""

import math

import torch
from torch import Tensor

from highways.methods import backprop
from highways.methods.base import Rule
from highways.model.network import Architecture, Parameters, sweep
from highways.record import finite
from highways.specs.run import RunSpec

Diagnostics = dict[str, list[float | None]]


def per_layer(spec: RunSpec, rule: Rule, parameters: Parameters, x: Tensor, y: Tensor) -> Diagnostics:
    """Rms of the feedforward states z_1..z_{L-1} and of the errors of layers 1..L after inference, norms of
    the gradients of W_0..W_{L-1}, and their cosines to backprop (None where either gradient is zero). For a
    rule with a preliminary step, also the cosines of that step to backprop's and to the step that follows it.
    """
    states, _ = sweep(parameters, x, Architecture.of(spec))
    gradient = rule.gradient(parameters, x, y)
    truth = backprop.Rule(spec, parameters, kernel="").gradient(parameters, x, y)
    matrices, true = gradient.weights.matrices(), truth.weights.matrices()
    found: Diagnostics = {
        "rms_state": [finite(z.double().square().mean().sqrt().item()) for z in states],
        "rms_error": [finite(value) for value in gradient.errors.rms().tolist()],
        "weight_gradient_norm": [finite(matrix.double().norm().item()) for matrix in matrices],
        "backprop_cosine": _cosines(matrices, true),
    }
    if gradient.preliminary_step is not None:
        steps = [-matrix for matrix in gradient.preliminary_step.matrices()]
        found |= {"first_backprop_cosine": _cosines(steps, true), "first_cosine": _cosines(steps, matrices)}
    return found


def _cosines(some: list[Tensor], others: list[Tensor]) -> list[float | None]:
    return [_cosine(one, other) for one, other in zip(some, others, strict=True)]


def _cosine(a: Tensor, b: Tensor) -> float | None:
    a, b = a.double().flatten(), b.double().flatten()
    norms = (a.norm() * b.norm()).item()
    if norms == 0.0 or not math.isfinite(norms):
        return None
    return float(torch.dot(a, b).item() / norms)
