"""iPC against torch's optimizers on states and weights together, and against PC where the weights rest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from highways.methods import weight_step
from highways.methods.base import Gradient
from highways.model.network import Parameters
from networks import PlainNetwork, Problem, assert_gradients_match, make_problem
from rules import ALL_READINGS, PHIS, ROUNDING, plain_states

STEP_SIZE, LR = 0.3, 0.05


def ipc(steps: int, **settings: Any) -> Problem:
    return make_problem("ipc", rule={"step_size": STEP_SIZE, "steps": steps}, **settings)


def learn(problem: Problem, step: Callable[[Parameters], None]) -> list[Gradient]:
    """The gradients of a batch, each followed by a step on the problem's weights."""
    found = []
    for gradient in problem.rule().gradients(problem.parameters, problem.x, problem.y):
        found.append(gradient)
        step(gradient.weights)
    return found


def descent(problem: Problem) -> Callable[[Parameters], None]:
    """A function that takes a step of plain gradient descent on the problem's weights."""

    def step(gradient: Parameters) -> None:
        for name, tensor in problem.parameters.named().items():
            tensor.sub_(gradient.named()[name], alpha=LR)

    return step


def adamw(problem: Problem) -> Callable[[Parameters], None]:
    """A function that takes the training loop's AdamW step on the problem's weights."""
    optimizer = weight_step.weight_optimizer(problem.spec, problem.parameters)
    return lambda gradient: weight_step.apply(optimizer, problem.parameters, gradient, LR)


def at_rest(gradient: Parameters) -> None:
    pass


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@PHIS
@ALL_READINGS
def test_states_and_weights_descend_one_energy_together(reading: dict[str, Any], phi: str, optimizer: str) -> None:
    """Four steps against torch's autograd and optimizers, which move both at once."""
    learning = {"weight_decay": 0.2, "eps": 1e-4}
    problem = ipc(4, phi=phi, conventions={**reading, "rms_eps": 0.1}, learning=learning)
    network = PlainNetwork(problem)
    states = torch.stack(plain_states(network, problem.x)).requires_grad_()
    on_states = torch.optim.SGD([states], lr=STEP_SIZE)
    if optimizer == "sgd":
        on_weights: torch.optim.Optimizer = torch.optim.SGD(network.parameters(), lr=LR)
        step = descent(problem)
    else:
        matrices = [
            {"params": network.linears.parameters()},
            {"params": network.norms.parameters(), "weight_decay": 0},
        ]
        on_weights = torch.optim.AdamW(matrices, lr=LR, weight_decay=0.2, eps=1e-4)
        step = adamw(problem)
    count = 0
    for gradient in problem.rule().gradients(problem.parameters, problem.x, problem.y):
        network.zero_grad()
        states.grad = None
        network.energy(problem.x, problem.y, states).backward()
        with torch.no_grad():
            for parameter in network.parameters():  # mean over the batch; a state keeps its image's gradient
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad.div_(len(problem.x))
        assert_gradients_match(gradient.weights, network, atol=1e-12)
        step(gradient.weights)
        on_states.step()
        on_weights.step()
        count += 1
    assert count == 4
    for ours, theirs in zip(problem.parameters.matrices(), network.linears, strict=True):
        torch.testing.assert_close(ours, theirs.weight.detach(), rtol=0, atol=1e-11)


@PHIS
@ALL_READINGS
def test_where_the_weights_rest_the_last_step_is_that_of_predictive_coding(
    reading: dict[str, Any], phi: str
) -> None:
    """Step t learns as predictive coding does after t Euler steps under `state_gradient: sum`."""
    found = learn(ipc(5, phi=phi, conventions=reading), at_rest)
    assert not any(matrix.any() for matrix in found[0].weights.matrices()[:-1])
    for steps, ours in enumerate(found[1:], start=1):
        inference = {"optimizer": "euler", "step_size": STEP_SIZE, "steps": steps}
        conventions = {**reading, "state_gradient": "sum"}
        theirs = make_problem("pc", phi=phi, inference=inference, conventions=conventions).gradient()
        for name, tensor in theirs.weights.named().items():
            torch.testing.assert_close(ours.weights.named()[name], tensor, **ROUNDING)
        torch.testing.assert_close(ours.errors.hidden, theirs.errors.hidden, **ROUNDING)
        torch.testing.assert_close(ours.logits, theirs.logits, **ROUNDING)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("step", [lambda problem: at_rest, descent], ids=["rest", "descent"])
def test_below_the_front_errors_and_steps_are_exactly_zero(step: Any, dtype: str) -> None:
    problem = ipc(6, depth=6, width=32, phi="relu", dtype=dtype)
    before = problem.parameters.clone().matrices()
    for t, gradient in enumerate(learn(problem, step(problem))):
        matrices = gradient.weights.matrices()
        for layer in range(6):
            assert bool(matrices[layer].any()) == (layer >= 5 - t), (t, layer)
            if layer > 0:
                assert bool(gradient.errors.hidden[layer - 1].any()) == (layer > 5 - t), (t, layer)
    moved = [not torch.equal(*pair) for pair in zip(before, problem.parameters.matrices(), strict=True)]
    assert all(moved) or step(problem) is at_rest


def test_weights_that_move_without_a_gradient_open_errors_below_the_front() -> None:
    """AdamW's averages and decay move every layer, while its state is still the sweep of the old weights."""
    problem = ipc(2, depth=6)
    rested, moved = learn(problem, at_rest)[1], learn(problem, adamw(problem))[1]
    assert not rested.errors.hidden[:3].any()
    assert moved.errors.hidden[:3].abs().min() > 0


def test_a_batch_has_as_many_steps_as_the_network_layers_unless_told_otherwise() -> None:
    """With the last of L steps the first layer learns too."""
    for depth in (2, 5):
        problem = make_problem("ipc", depth=depth)
        found = learn(problem, at_rest)
        assert len(found) == depth
        assert found[-1].weights.w_in.any()
        assert not found[-2].weights.w_in.any()
    assert len(learn(ipc(3), at_rest)) == 3


def test_every_gradient_has_the_logits_of_the_weights_before_the_batch() -> None:
    problem = ipc(4)
    before = PlainNetwork(problem)(problem.x).detach()
    for gradient in learn(problem, descent(problem)):
        torch.testing.assert_close(gradient.logits, before, **ROUNDING)


def test_the_gradient_of_a_batch_is_the_mean_of_its_steps_where_the_weights_rest() -> None:
    problem = ipc(4)
    found, whole = learn(problem, at_rest), problem.gradient()
    for name, tensor in whole.weights.named().items():
        mean = torch.stack([one.weights.named()[name] for one in found]).mean(0)
        torch.testing.assert_close(tensor, mean, **ROUNDING)
    assert torch.equal(whole.errors.hidden, found[-1].errors.hidden)
    assert whole.preliminary_step is None
