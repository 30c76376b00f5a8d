"""Direct feedback alignment by hand, and where it turns into backprop."""

from typing import Any

import pytest
import torch

from highways.inference import batched
from highways.methods.feedback import feedback_matrices
from highways.specs.fields import SpecError
from networks import (
    READINGS,
    PlainNetwork,
    make_problem,
    name_of,
)
from rules import ROUNDING, make_backprop, plain_output_error


@pytest.mark.parametrize("reading", READINGS, ids=name_of)
def test_dfa_is_an_outer_product_of_the_fed_back_error_and_the_activity(reading: dict[str, Any]) -> None:
    problem = make_problem("dfa", conventions=reading)
    plain = PlainNetwork(problem)
    v = feedback_matrices(problem.spec, classes=4)
    output = plain_output_error(plain, problem)
    gradient, z = problem.gradient(), problem.x
    for layer, ours in enumerate(gradient.weights.matrices()):
        mu = plain.prediction(layer, z)
        pull = output if layer == 4 else -2.0 * output @ v[layer].T
        (expected,) = torch.autograd.grad((mu * pull).sum(), [plain.linears[layer].weight])
        torch.testing.assert_close(ours, -expected / 3, **ROUNDING)
        z = mu.detach()
    torch.testing.assert_close(gradient.errors.output, output, **ROUNDING)


def test_dfa_with_the_jacobian_of_the_output_as_feedback_is_backprop() -> None:
    """For one sample with B_i = (d mu_L / d z_i)^T, B_i eps_L is backprop's error."""
    problem = make_problem("dfa", batch=1)
    rule, states = problem.rule(), problem.rule().gradient(problem.parameters, problem.x, problem.y)
    initial = batched.initial_states(problem.parameters, problem.x, problem.architecture)
    plain = PlainNetwork(problem)

    def logits_from(layer: int, z: torch.Tensor) -> torch.Tensor:
        for above in range(layer, 5):
            z = plain.prediction(above, z)
        return z

    jacobians = [
        torch.autograd.functional.jacobian(lambda z, i=i: logits_from(i + 1, z[None])[0], initial[i, 0])
        for i in range(4)
    ]
    rule.feedback = torch.stack(jacobians)
    ours = rule.gradient(problem.parameters, problem.x, problem.y).weights
    truth = make_backprop(problem).gradient(problem.parameters, problem.x, problem.y).weights
    for a, b in zip(ours.matrices(), truth.matrices(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    assert not torch.allclose(states.weights.w_in, truth.w_in)


def test_dfa_needs_feedback_to_every_layer() -> None:
    with pytest.raises(SpecError, match=r"every hidden layer: highway.every takes 1"):
        make_problem("dfa", highway={"every": 2}).rule()
