"""DKP-PC: its three phases by autograd, and the rules that it turns into."""

from typing import Any

import pytest
import torch
from torch import Tensor

from networks import PlainNetwork, assert_gradients_match, make_problem
from rules import ALL_READINGS, PHIS, ROUNDING, linear_problem, plain_output_error, plain_states


@pytest.mark.parametrize("steps", [0, 1, 3])
@PHIS
@ALL_READINGS
def test_dkp_pc_is_a_direct_step_then_predictive_coding_from_the_old_states(
    reading: dict[str, Any], phi: str, steps: int
) -> None:
    rule = {"first_lr": 0.05, "step_size": 0.3, "steps": steps}
    conventions = {**reading, "rms_eps": 0.1}
    problem = make_problem("dkp_pc", phi=phi, conventions=conventions, rule=rule)
    network, learner = PlainNetwork(problem), problem.rule()
    (psi,) = learner.learned.tensors
    output, z = plain_output_error(network, problem), plain_states(network, problem.x)

    below, total = problem.x, torch.zeros((), dtype=torch.float64)
    for i, state in enumerate(z, start=1):
        total = total + (network.prediction(i - 1, below) * (output @ psi[i - 1].T)).sum()
        below = state
    (total / 3).backward()
    with torch.no_grad():
        for tensor in network.parameters():
            if tensor.grad is not None:
                tensor.grad.mul_(0.05)
        for parameter in (*network.linears[-1].parameters(), *network.norms.parameters()):
            parameter.grad = torch.zeros_like(parameter)
    gradient = learner.gradient(problem.parameters, problem.x, problem.y)
    assert gradient.preliminary_step is not None
    assert_gradients_match(gradient.preliminary_step, network, atol=1e-14)

    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(parameter.grad)
    states = torch.stack(z)
    for _ in range(steps):
        states.requires_grad_()
        (slope,) = torch.autograd.grad(network.energy(problem.x, problem.y, states), [states])
        states = states.detach() - 0.3 * slope
    network.zero_grad()
    (network.energy(problem.x, problem.y, states) / 3).backward()
    assert_gradients_match(gradient.weights, network, atol=1e-13)

    inputs: list[Tensor] = []
    for layer in range(1, 5):
        handle = network.linears[layer].register_forward_hook(lambda _, h, __: inputs.append(h[0].detach()))
        logits = network.prediction(layer, states[layer - 1]).detach()
        handle.remove()
    now = problem.y - logits.softmax(-1)
    (ours,) = gradient.feedback
    torch.testing.assert_close(ours, torch.stack([h.T @ now for h in inputs]) / -3, **ROUNDING)


def test_after_the_direct_step_errors_point_against_the_feedback() -> None:
    """In a linear network eps_l = -eta |h_{l-1}|^2 Psi_l eps_L; without inference the last step of W_l is the
    first times -|h_l|^2.
    """
    eta = 1e-3
    problem = linear_problem("dkp_pc", batch=1, first_lr=eta, steps=0)
    (psi,) = (learner := problem.rule()).learned.tensors
    gradient = learner.gradient(problem.parameters, problem.x, problem.y)
    assert gradient.preliminary_step is not None
    below, squares = problem.x, []
    for matrix in problem.parameters.matrices():
        squares.append(below.square().sum().item())
        below = below @ matrix.T
    output = problem.y - below.softmax(-1)
    assert output.abs().max() > 0.1
    for i in range(1, 5):
        expected = -eta * squares[i - 1] * output @ psi[i - 1].T
        torch.testing.assert_close(gradient.errors.hidden[i - 1], expected, rtol=0, atol=1e-15)
    first, last = gradient.preliminary_step.matrices(), gradient.weights.matrices()
    for layer in range(4):
        assert first[layer].abs().max() > 1e-5
        torch.testing.assert_close(-last[layer], -squares[layer] * first[layer], rtol=0, atol=1e-15)
    assert not first[4].any()


@pytest.mark.parametrize("steps", [1, 4])
@PHIS
@ALL_READINGS
def test_dkp_pc_without_feedback_is_predictive_coding(reading: dict[str, Any], phi: str, steps: int) -> None:
    conventions = {**reading, "state_gradient": "sum", "rms_eps": 0.1}
    inference = {"optimizer": "euler", "step_size": 0.1, "steps": steps}
    theirs = make_problem("pc", phi=phi, conventions=conventions, inference=inference).gradient()
    rule = {"step_size": 0.1, "steps": steps}
    problem = make_problem("dkp_pc", phi=phi, conventions=conventions, rule=rule)
    learner = problem.rule()
    learner.learned.tensors[0].zero_()
    ours = learner.gradient(problem.parameters, problem.x, problem.y)
    for name, tensor in theirs.weights.named().items():
        torch.testing.assert_close(ours.weights.named()[name], tensor, rtol=0, atol=1e-14)
        assert not ours.preliminary_step.named()[name].any()
    torch.testing.assert_close(ours.errors.hidden, theirs.errors.hidden, rtol=0, atol=1e-14)
    torch.testing.assert_close(ours.errors.output, theirs.errors.output, rtol=0, atol=1e-14)
