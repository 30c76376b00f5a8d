"""Meta-PCN: the errors after T steps of its recursion, and its normalisation of the weights."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.methods import meta_pcn
from highways.methods.sweeps import upwards
from highways.model.network import feedforward, output_error
from networks import ACTIVATIONS, assert_gradients_match, backprop_errors, make_problem, stream
from rules import ALL_READINGS, DEPTHS, PHIS, ROUNDING, backprop_matrices, backprop_network


@PHIS
@DEPTHS
@ALL_READINGS
def test_meta_pcn_is_backprop_after_as_many_full_steps_as_there_are_hidden_layers(
    reading: dict[str, Any], depth: int, phi: str
) -> None:
    problem = make_problem("meta_pcn", depth=depth, phi=phi, conventions={**reading, "rms_eps": 0.1})
    gradient, truth = problem.gradient(), backprop_errors(problem)
    torch.testing.assert_close(gradient.errors.hidden, truth, **ROUNDING)
    assert_gradients_match(gradient.weights, backprop_network(problem), atol=1e-14)
    forward = upwards(problem.parameters, problem.x, problem.architecture)
    output = output_error(problem.y, forward.logits, problem.architecture)
    recursion = problem.rule().relaxed(problem.parameters, forward, output)
    torch.testing.assert_close(recursion, truth, **ROUNDING)


@pytest.mark.parametrize(("step_size", "steps"), [(0.5, 60), (0.5, 6), (0.3, 3), (0.8, 1), (1.0, 2), (0.7, None)])
@ALL_READINGS
def test_meta_pcn_has_come_as_far_as_a_binomial_variable(
    reading: dict[str, Any], step_size: float, steps: int | None
) -> None:
    """The error k layers below the output is backprop's times P(at least k successes in T trials of lambda)."""
    rule = {"step_size": step_size, "steps": steps}
    problem = make_problem("meta_pcn", conventions={**reading, "rms_eps": 0.1}, rule=rule)
    trials = 4 if steps is None else steps

    def share(k: int) -> float:
        counts = range(k, trials + 1)
        return sum(math.comb(trials, n) * step_size**n * (1 - step_size) ** (trials - n) for n in counts)

    gradient, errors, matrices = problem.gradient(), backprop_errors(problem), backprop_matrices(problem)
    for i in range(1, 5):
        torch.testing.assert_close(gradient.errors.hidden[i - 1], share(5 - i) * errors[i - 1], **ROUNDING)
    for layer, ours in enumerate(gradient.weights.matrices()):
        torch.testing.assert_close(ours, share(4 - layer) * matrices[layer], **ROUNDING)
    if steps == 60:
        torch.testing.assert_close(gradient.errors.hidden, errors, rtol=0, atol=1e-12)


def to_expected_norm_one(matrix: Tensor) -> float:
    """1 / ((sqrt m + sqrt n) std): one over the expected spectral norm of a matrix of independent normals."""
    rows, columns = matrix.shape
    spread = (matrix - matrix.mean()).square().sum() / (rows * columns - 1)
    return 1 / ((math.sqrt(rows) + math.sqrt(columns)) * math.sqrt(spread))


@pytest.mark.parametrize("normalise_output_input", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_normalising_weights_scales_the_logits_by_the_matrices_above_the_last_normalised_state(
    activation: str, normalise_output_input: bool
) -> None:
    """With relu, no bias and rms_eps = 0 the scale of the other matrices has no effect."""
    conventions = {"activation": activation, "normalise_output_input": normalise_output_input, "rms_eps": 0.0}
    problem = make_problem("meta_pcn", width=16, phi="relu", conventions=conventions)
    before = feedforward(problem.parameters, problem.x, problem.architecture)
    factors = [to_expected_norm_one(matrix) for matrix in problem.parameters.matrices()]
    gain = problem.parameters.gain.clone()
    assert all(abs(factor - 1) > 0.1 for factor in factors)
    meta_pcn.normalise(problem.parameters)
    scale = factors[4] if normalise_output_input else factors[4] * factors[3]
    after = feedforward(problem.parameters, problem.x, problem.architecture)
    torch.testing.assert_close(after, scale * before, **ROUNDING)
    assert before.abs().max() > 0.1
    assert torch.equal(problem.parameters.gain, gain)


@pytest.mark.parametrize("normalise", [False, True])
def test_meta_pcn_normalises_after_the_weight_step(normalise: bool) -> None:
    problem = make_problem("meta_pcn", depth=4, width=200, inputs=300, classes=100, rule={"normalise": normalise})
    parameters = problem.parameters
    stepped = parameters.clone()

    def descend() -> None:
        for tensor, other in zip(parameters.named().values(), stepped.named().values(), strict=True):
            step = 0.1 * torch.randn(tensor.shape, generator=stream(8), dtype=tensor.dtype)
            other.copy_(tensor + step)
            tensor.copy_(other)

    problem.rule().step(parameters, problem.gradient(), 1.0, descend)
    for ours, other in zip(parameters.matrices(), stepped.matrices(), strict=True):
        expected = other * to_expected_norm_one(other) if normalise else other
        torch.testing.assert_close(ours, expected, **ROUNDING)
        if normalise:
            assert torch.linalg.matrix_norm(ours, 2).item() == pytest.approx(1, abs=0.05)
    assert torch.equal(parameters.gain, stepped.gain)
