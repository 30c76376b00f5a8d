"""Helpers that the tests of the learning rules share."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways import methods
from highways.methods import backprop, weight_step
from highways.model.network import Parameters
from networks import CLASSES, READINGS, PlainNetwork, Problem, make_problem, name_of, stream

ALL_READINGS = pytest.mark.parametrize("reading", READINGS, ids=name_of)
PHIS = pytest.mark.parametrize("phi", ["tanh", "relu"])
DEPTHS = pytest.mark.parametrize("depth", [2, 3, 5])
# The difference between two orders of adding up some dozens of numbers of size 1.
ROUNDING = {"rtol": 0, "atol": 1e-13}


def plain_states(network: PlainNetwork, x: Tensor, errors: Tensor | None = None) -> list[Tensor]:
    """s_1..s_{L-1} of a forward pass that adds e_i to every prediction on the way."""
    states, below = [], x
    for layer in range(len(network.linears) - 1):
        below = network.prediction(layer, below).detach()
        if errors is not None:
            below = below + errors[layer]
        states.append(below)
    return states


def layers_of(network: PlainNetwork, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """h_l and a_l = W_l h_l + b_l of every layer at the forward pass; autograd of a_l stays in the layer."""
    found: list[tuple[Tensor, Tensor]] = []
    handles = [
        linear.register_forward_hook(lambda _, inputs, product: found.append((inputs[0], product)))
        for linear in network.linears
    ]
    for layer, z in enumerate([x, *plain_states(network, x)]):
        if layer == 0:
            found.clear()
        network.prediction(layer, z)
    for handle in handles:
        handle.remove()
    return found


def make_backprop(problem: Problem) -> backprop.Rule:
    return backprop.Rule(problem.spec, problem.parameters, kernel="")


def plain_output_error(network: PlainNetwork, problem: Problem) -> Tensor:
    return (problem.y - network(problem.x).softmax(-1)).detach()


def mean_loss(network: PlainNetwork, problem: Problem) -> Tensor:
    return F.cross_entropy(network(problem.x), problem.y)


def total_loss(logits: Tensor, problem: Problem) -> Tensor:
    return F.cross_entropy(logits, problem.y, reduction="sum")


def backprop_network(problem: Problem) -> PlainNetwork:
    """A plain network that holds the gradient of the mean loss."""
    network = PlainNetwork(problem)
    mean_loss(network, problem).backward()
    return network


def backprop_matrices(problem: Problem) -> list[Tensor]:
    return [linear.weight.grad for linear in backprop_network(problem).linears]


def linear_problem(method: str, batch: int = 3, **rule: Any) -> Problem:
    """A problem of positive weights and inputs, on which relu is linear, without normalisation."""
    problem = make_problem(method, batch=batch, phi="relu", conventions={"activation": "post"}, rule=rule)
    weights = {name: 0.4 * tensor.abs() for name, tensor in problem.parameters.named().items()}
    weights["gain"] = weights["gain"][:0]
    return replace(problem, parameters=Parameters(**weights), x=problem.x.abs())


def batches(problem: Problem, count: int) -> list[tuple[Tensor, Tensor]]:
    noise = stream(5)
    x = torch.randn(count, *problem.x.shape, generator=noise, dtype=torch.float64)
    labels = torch.randint(CLASSES, (count, len(problem.x)), generator=noise)
    return list(zip(x, F.one_hot(labels, CLASSES).double(), strict=True))


def train(problem: Problem, count: int, rule: Any) -> None:
    """Update the problem's parameters on `count` batches, as the training loop does."""
    optimizer = weight_step.weight_optimizer(problem.spec, problem.parameters)
    lr = problem.spec.learning.lr
    for x, y in batches(problem, count):
        gradient = rule.gradient(problem.parameters, x, y)

        def descend(weights: Parameters = gradient.weights) -> None:
            weight_step.apply(optimizer, problem.parameters, weights, lr)

        rule.step(problem.parameters, gradient, lr, descend)


def assert_normal(sample: Tensor, std: float) -> None:
    """The moments 1, 2 and 4 are those of N(0, std^2), within five standard deviations."""
    scaled = sample / std
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 4: (3, 96)}.items():
        assert abs(scaled.pow(power).mean() - mean) < 5 * math.sqrt(variance / sample.numel())


def explode_in_the_second_epoch(monkeypatch) -> None:
    """Make backprop's gradient NaN in the fifth batch of the second epoch of the tiny run."""
    learner = methods.rule("backprop")
    gradient, calls = learner.gradient, []

    def explode(self, parameters, x, y, update=0):
        calls.append(1)
        result = gradient(self, parameters, x, y)
        if len(calls) == 2 + 24 + 5:
            result.weights.w_hidden[0, 0, 0] = float("nan")
        return result

    monkeypatch.setattr(learner, "gradient", explode)
