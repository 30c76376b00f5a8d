"""DKP: its updates, and that its feedback comes closer to the transposed weights."""

import math
from typing import Any

import pytest
import torch

from networks import PlainNetwork, assert_gradients_match, make_problem
from rules import (
    ALL_READINGS,
    DEPTHS,
    PHIS,
    ROUNDING,
    assert_normal,
    layers_of,
    plain_output_error,
    plain_states,
    train,
)


@PHIS
@DEPTHS
@ALL_READINGS
def test_dkp_is_an_outer_product_of_the_fed_back_error_and_the_activity(
    reading: dict[str, Any], depth: int, phi: str
) -> None:
    problem = make_problem("dkp", depth=depth, phi=phi, conventions=reading)
    network, rule = PlainNetwork(problem), problem.rule()
    (psi,) = rule.learned.tensors
    output, below = plain_output_error(network, problem), problem.x
    total = -(network.prediction(depth - 1, plain_states(network, problem.x)[-1]) * output).sum()
    for i, state in enumerate(plain_states(network, problem.x), start=1):
        total = total - (network.prediction(i - 1, below) * (output @ psi[i - 1].T)).sum()
        below = state
    (total / 3).backward()
    gradient = rule.gradient(problem.parameters, problem.x, problem.y)
    assert_gradients_match(gradient.weights, network, atol=1e-13)
    (ours,) = gradient.feedback
    for i in range(1, depth):
        h, _ = layers_of(network, problem.x)[i]
        expected = sum(torch.outer(h[sample], output[sample]) for sample in range(3)) / -3
        torch.testing.assert_close(ours[i - 1], expected.detach(), **ROUNDING)


def test_learned_feedback_starts_normal_with_glorots_width() -> None:
    for method in ("dkp", "dkp_pc"):
        drawn = [
            make_problem(method, width=150, classes=50, seed=seed).rule().learned.tensors[0] for seed in (0, 1)
        ]
        assert drawn[0].shape == (4, 150, 50)
        assert_normal(drawn[0], math.sqrt(2 / 200))
        matrices = [matrix for psi in drawn for matrix in psi]
        assert not any(torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i])


@pytest.mark.parametrize("method", ["dkp", "dkp_pc", "lra"])
def test_looking_at_a_gradient_teaches_the_feedback_nothing(method: str) -> None:
    problem = make_problem(method)
    rule, weights = problem.rule(), problem.parameters.clone()
    before = [tensor.clone() for tensor in rule.learned.tensors]
    first = rule.gradient(problem.parameters, problem.x, problem.y)
    second = rule.gradient(problem.parameters, problem.x, problem.y)
    for tensor, start in zip(rule.learned.tensors, before, strict=True):
        assert torch.equal(tensor, start)
    for ours, start in zip(problem.parameters.named().values(), weights.named().values(), strict=True):
        assert torch.equal(ours, start)
    for ours, again in zip(first.feedback, second.feedback, strict=True):
        assert torch.equal(ours, again)
    assert rule.learned.optimizer.updates == 0


LEARNING = {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-6}


@pytest.mark.parametrize(
    ("method", "rule"),
    [("dkp", {}), ("dkp_pc", {"first_lr": 0.01, "feedback_lr": 0.01}), ("lra", {}), ("lra", {"every": 3})],
)
@PHIS
def test_feedback_comes_closer_to_the_transposed_weights_as_both_decay(
    method: str, rule: dict[str, Any], phi: str
) -> None:
    """Both get the same steps, and each scales their difference by 1 - lr * decay."""
    problem = make_problem(method, phi=phi, learning=LEARNING, rule=rule)
    learner, parameters = problem.rule(), problem.parameters
    direct, *neighbour = learner.learned.tensors
    pairs = [(parameters.w_out, direct[-1])]
    if neighbour:
        pairs += [(parameters.w_hidden[i - 1], neighbour[0][row]) for row, i in enumerate(learner.neighbour)]
    assert len(pairs) == {"dkp": 1, "dkp_pc": 1, "lra": 3 if rule else 4}[method]
    before = [(w - e.T, w.clone()) for w, e in pairs]
    train(problem, 40, learner)
    for (w, e), (difference, start) in zip(pairs, before, strict=True):
        torch.testing.assert_close(w - e.T, (1 - 0.01 * 0.3) ** 40 * difference, rtol=0, atol=1e-11)
        assert (w - start).abs().max() > 0.05


@pytest.mark.parametrize(
    ("method", "rule", "rate"),
    [
        ("dkp", {}, 0.05),
        ("dkp", {"feedback_lr": 0.2}, 0.2),
        ("dkp_pc", {"feedback_lr": 0.2}, 0.2),
        ("lra", {}, 0.05),
    ],
)
def test_weights_move_first_and_the_feedback_after_them(method: str, rule: dict[str, Any], rate: float) -> None:
    """Only DKP-PC moves weights before AdamW does. AdamW's first step is decay and lr g / (|g| + eps)."""
    problem = make_problem(method, learning=LEARNING, rule=rule)
    learner, parameters, weights = problem.rule(), problem.parameters, problem.parameters.clone()
    psi = [tensor.clone() for tensor in learner.learned.tensors]
    gradient = learner.gradient(parameters, problem.x, problem.y)
    assert (gradient.preliminary_step is not None) == (method == "dkp_pc")
    calls = []

    def descend() -> None:
        calls.append(1)
        for name, tensor in parameters.named().items():
            change = 0 if gradient.preliminary_step is None else gradient.preliminary_step.named()[name]
            torch.testing.assert_close(tensor, weights.named()[name] + change, rtol=0, atol=0)
        for tensor, start in zip(learner.learned.tensors, psi, strict=True):
            assert torch.equal(tensor, start)

    learner.step(parameters, gradient, 0.05, descend)
    assert calls == [1]
    for tensor, start, g in zip(learner.learned.tensors, psi, gradient.feedback, strict=True):
        expected = (1 - rate * 0.3) * start - rate * g / (g.abs() + 1e-6)
        torch.testing.assert_close(tensor, expected, **ROUNDING)
