"""Precision-guided predictive coding: the error that its spikes carry down, by closed forms and torch's SGD."""

from typing import Any

import pytest
import torch
from torch import Tensor

from networks import KERNELS, PlainNetwork, Problem, assert_gradients_match, backprop_errors, make_problem
from rules import ALL_READINGS, ROUNDING, backprop_matrices, plain_states, total_loss


@pytest.mark.parametrize("step_size", [0.8, 0.5, 1.0])
@pytest.mark.parametrize("steps", [2, 4, 5, 9])
@ALL_READINGS
def test_one_spike_per_layer_carries_the_backprop_error_down(
    reading: dict[str, Any], steps: int, step_size: float
) -> None:
    """k hops below the output dW is backprop's times lambda^k (1 - lambda), or lambda^k where T = k."""
    problem = make_problem(
        "precision",
        conventions={**reading, "rms_eps": 0.1},
        rule={"step_size": step_size, "steps": steps, "off_spike": 0.0, "momentum": 0.0},
    )

    def factor(k: int) -> float:
        if k == 0:
            return 1.0
        return step_size**k * (1 - step_size if steps > k else 1.0 if steps == k else 0.0)

    gradient, errors, matrices = problem.gradient(), backprop_errors(problem), backprop_matrices(problem)
    for i in range(1, 5):
        torch.testing.assert_close(gradient.errors.hidden[i - 1], factor(5 - i) * errors[i - 1], **ROUNDING)
    for layer, ours in enumerate(gradient.weights.matrices()):
        torch.testing.assert_close(ours, factor(4 - layer) * matrices[layer], **ROUNDING)


@pytest.mark.parametrize("step_size", [0.5, 0.8, 0.9, 0.95])
def test_above_a_step_of_one_over_one_plus_the_momentum_the_weights_climb(step_size: float) -> None:
    """At rest dW, k hops below the output, is backprop's times (1.1 lambda)^k (1/1.1 - lambda) / 0.9."""
    rule = {"step_size": step_size, "steps": 40, "off_spike": 0.0, "momentum": 0.1}
    problem = make_problem("precision", conventions={"rms_eps": 0.1}, rule=rule)
    matrices, errors, gradient = backprop_matrices(problem), backprop_errors(problem), problem.gradient()
    factor = (1 / 1.1 - step_size) / 0.9
    assert (factor < 0) == (step_size > 0.91)
    for k in range(1, 5):
        expected = (1.1 * step_size) ** k * factor
        torch.testing.assert_close(gradient.errors.hidden[4 - k], expected * errors[4 - k], **ROUNDING)
        torch.testing.assert_close(gradient.weights.matrices()[4 - k], expected * matrices[4 - k], **ROUNDING)


def spiking_states(problem: Problem, network: PlainNetwork, steps: int) -> list[Tensor]:
    """z_1..z_{L-1} after torch's SGD on the energy with precisions, which moves every state in every step."""
    options, depth = problem.spec.rule, problem.spec.network.depth
    z = [state.requires_grad_() for state in plain_states(network, problem.x)]
    sgd = torch.optim.SGD(z, lr=options.step_size, momentum=0.1, nesterov=True)
    at_arrival, else_ = {"spike": (1.0, 0.02), "literal": (1 / options.step_size, 1.0)}[options.schedule]
    for t in range(steps):
        weighted = torch.zeros((), dtype=torch.float64)
        for i in range(1, depth + 1):
            mu = network.prediction(i - 1, problem.x if i == 1 else z[i - 2])
            error = total_loss(mu, problem) if i == depth else 0.5 * (z[i - 1] - mu).square().sum()
            weighted = weighted + (at_arrival if t == depth - i else else_) * error
        sgd.zero_grad()
        weighted.backward()
        sgd.step()
    return [state.detach() for state in z]


@pytest.mark.parametrize("forward_update", [False, True])
@pytest.mark.parametrize("schedule", ["spike", "literal"])
@pytest.mark.parametrize(("depth", "steps"), [(2, None), (5, 3), (5, None)])
@ALL_READINGS
@pytest.mark.parametrize("kernel", KERNELS)
def test_precision_guided_inference_is_sgd_on_the_weighted_energy(
    kernel: str, reading: dict[str, Any], depth: int, steps: int | None, schedule: str, forward_update: bool
) -> None:
    """T = L + 3 where `steps` is None; weights learn from z_i(T) - mu_i at the sweep or at the states."""
    rule = {"step_size": 0.6, "steps": steps, "schedule": schedule, "off_spike": 0.02, "momentum": 0.1}
    conventions = {**reading, "rms_eps": 0.1}
    problem = make_problem(
        "precision", depth=depth, conventions=conventions, rule={**rule, "forward_update": forward_update}
    )
    network = PlainNetwork(problem)
    start = plain_states(network, problem.x)
    end = spiking_states(problem, network, depth + 3 if steps is None else steps)
    below = [problem.x, *(start if forward_update else end)]
    total = total_loss(network.prediction(depth - 1, below[-1]), problem)
    for layer, state in enumerate(end):
        total = total + 0.5 * (state - network.prediction(layer, below[layer])).square().sum()
    network.zero_grad()
    (total / 3).backward()
    assert_gradients_match(problem.gradient(kernel).weights, network, atol=1e-13)
