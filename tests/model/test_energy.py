"""The energy and its gradients in closed form, against hand calculation, finite differences and autograd."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.inference import reference
from highways.model import energy, network
from highways.model.network import Architecture, Parameters
from networks import (
    PlainNetwork,
    Problem,
    assert_gradients_match,
    central_differences,
    make_problem,
)
from rules import ALL_READINGS, PHIS

# `central_differences` errs by some 1e-11 on an energy of size 10, by more where a small rms makes it curved.
DIFFERENCES = {"rtol": 0, "atol": 1e-9}
# A few dozen rounded operations on numbers of size 1 to 10.
ROUNDING = {"rtol": 0, "atol": 1e-12}


def energy_of(problem: Problem, z: Tensor) -> Tensor:
    predictions = problem.predict(z)
    return energy.energy(problem.y, predictions, energy.errors(z, problem.y, predictions, problem.architecture))


def state_gradient_of(problem: Problem, z: Tensor) -> Tensor:
    predictions = problem.predict(z)
    error = energy.errors(z, problem.y, predictions, problem.architecture)
    return energy.state_gradient(problem.parameters, predictions, error, problem.architecture, problem.highways)


def weight_gradient_of(problem: Problem, z: Tensor) -> Parameters:
    return energy.weight_gradient(problem.parameters, problem.x, problem.at(z), problem.architecture)


# The energy


def test_energy_and_errors_of_a_network_of_five_numbers() -> None:
    """z_1 = (3, -4) has the rms (25/2)^1/2 and mu_2 = relu(z_1 / rms) W^T; everything else by hand."""
    parameters = Parameters(
        w_in=torch.tensor([[1.0], [-2.0]]).double(),
        w_hidden=torch.tensor([[[5.0, 0.0], [1.0, 7.0]]]).double(),
        w_out=torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double(),
        gain=torch.tensor([[0.5, 1.0]]).double(),
    )
    architecture = Architecture("relu", "pre", normalise_output_input=False, rms_eps=0.0)
    x, y = torch.tensor([[2.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    z = torch.tensor([[[3.0, -4.0]], [[1.0, 0.5]]]).double()
    mu_1 = network.first_prediction(parameters, x, architecture)
    predictions = energy.predict(parameters, z, mu_1, architecture)
    error = energy.errors(z, y, predictions, architecture)

    h = 0.5 * 3 / math.sqrt(12.5)
    p = 1 / (1 + math.exp(0.0))  # the logits are 1 * 1 and 2 * 0.5
    torch.testing.assert_close(predictions.mu[:, 0], torch.tensor([[2.0, -4.0], [5 * h, h]]).double())
    torch.testing.assert_close(error.hidden[:, 0], torch.tensor([[1.0, 0.0], [1 - 5 * h, 0.5 - h]]).double())
    torch.testing.assert_close(error.output, torch.tensor([[-p, 1 - p]]).double())
    value = 0.5 * (1 + (1 - 5 * h) ** 2 + (0.5 - h) ** 2) + math.log(2)
    torch.testing.assert_close(energy.energy(y, predictions, error), torch.tensor([value]).double())
    rms = [math.sqrt(1 / 2), math.sqrt(((1 - 5 * h) ** 2 + (0.5 - h) ** 2) / 2), 0.5]
    torch.testing.assert_close(error.rms(), torch.tensor(rms).double())


@PHIS
@ALL_READINGS
def test_the_energy_is_that_of_the_plain_network_and_of_the_reference(reading: dict[str, Any], phi: str) -> None:
    problem = make_problem(phi=phi, conventions=reading)
    z = problem.states()
    value = energy_of(problem, z).sum()
    torch.testing.assert_close(value, PlainNetwork(problem).energy(problem.x, problem.y, z), rtol=1e-13, atol=0)
    total, logits = reference.energy(problem.parameters, problem.mu_1, problem.y, z, problem.architecture)
    torch.testing.assert_close(value, total, rtol=1e-13, atol=0)
    torch.testing.assert_close(problem.predict(z).logits, logits, **ROUNDING)


def test_the_energy_of_a_sample_does_not_feel_the_rest_of_the_batch() -> None:
    problem = make_problem(batch=3)
    z = problem.states()
    together, gradient = energy_of(problem, z), state_gradient_of(problem, z)
    for b in range(3):
        alone = Problem(problem.spec, problem.parameters, problem.x[b : b + 1], problem.y[b : b + 1])
        torch.testing.assert_close(energy_of(alone, z[:, b : b + 1])[0], together[b], **ROUNDING)
        torch.testing.assert_close(state_gradient_of(alone, z[:, b : b + 1])[:, 0], gradient[:, b], **ROUNDING)


def test_without_hidden_errors_the_energy_is_the_cross_entropy_of_the_feedforward_pass() -> None:
    problem = make_problem()
    initial, _ = problem.relax()
    logits = network.feedforward(problem.parameters, problem.x, problem.architecture)
    expected = torch.nn.functional.cross_entropy(logits, problem.y, reduction="none")
    torch.testing.assert_close(energy_of(problem, initial), expected, **ROUNDING)


def test_the_output_error_is_the_downhill_direction_of_the_loss_in_the_logits() -> None:
    problem = make_problem()
    predictions = problem.predict(problem.states())
    slope = central_differences(
        lambda logits: torch.nn.functional.cross_entropy(logits, problem.y, reduction="sum"),
        predictions.logits,
    )
    error = energy.errors(problem.states(), problem.y, predictions, problem.architecture)
    torch.testing.assert_close(error.output, -slope, **DIFFERENCES)


# The gradient in the states


@ALL_READINGS
def test_the_state_gradient_is_the_slope_of_the_energy(reading: dict[str, Any]) -> None:
    problem = make_problem(conventions=reading)
    z = problem.states()
    slope = central_differences(lambda z: energy_of(problem, z).sum(), z)
    torch.testing.assert_close(state_gradient_of(problem, z), slope, **DIFFERENCES)


@PHIS
@ALL_READINGS
def test_the_state_gradient_is_what_autograd_finds(reading: dict[str, Any], phi: str) -> None:
    problem = make_problem(phi=phi, conventions={**reading, "rms_eps": 1e-2})
    z = problem.states().requires_grad_()
    total = PlainNetwork(problem).energy(problem.x, problem.y, z)
    (expected,) = torch.autograd.grad(total, z)
    torch.testing.assert_close(state_gradient_of(problem, z.detach()), expected, **ROUNDING)


@PHIS
@ALL_READINGS
@pytest.mark.parametrize("every", [1, 2, 4])
@pytest.mark.parametrize("chain", [True, False])
def test_the_highway_update_is_the_slope_of_the_augmented_energy(
    reading: dict[str, Any], phi: str, every: int, chain: bool
) -> None:
    """Every endpoint adds z_i^T alpha V_i eps_L, with no gradient through eps_L (Eq. aug_energy);
    without the chain hidden predictions pass on no gradient either."""
    problem = make_problem("hep", phi=phi, conventions=reading, highway={"every": every, "chain": chain})
    z = problem.states().requires_grad_()
    arguments = (problem.parameters, problem.mu_1, problem.y, z, problem.architecture, problem.highways)
    (expected,) = torch.autograd.grad(reference.augmented_energy(*arguments), z)
    torch.testing.assert_close(state_gradient_of(problem, z.detach()), expected, **ROUNDING)


@pytest.mark.parametrize(
    ("activation", "phi"), [("post", "tanh"), ("pre", "tanh"), ("both", "tanh"), ("pre_norm", "relu")]
)
def test_no_top_down_signal_reaches_the_radial_component_of_a_normalised_state(activation: str, phi: str) -> None:
    """The prediction from a state does not depend on its length, so J^T eps is orthogonal to the state."""
    conventions = {"activation": activation, "rms_eps": 0.0}
    problem = make_problem(width=24, phi=phi, conventions=conventions)  # no state has an rms near 0
    z = problem.states()
    top_down = z - problem.predict(z).mu - state_gradient_of(problem, z)
    radial = (z * top_down).sum(-1)
    torch.testing.assert_close(radial[:-1], torch.zeros(3, 3).double(), **ROUNDING)
    assert (top_down.abs().amax((1, 2)) > 1e-2).all()
    assert (radial[-1].abs() > 1e-3).all()  # z_{L-1} is not normalised by default


@pytest.mark.parametrize("activation", ["post", "pre", "both", "pre_norm"])
def test_a_network_of_shrunken_states_explains_the_label_as_well_at_less_energy(activation: str) -> None:
    """Scaling z_1..z_{L-1} and W_0..W_{L-2} by c scales every hidden error by c, since a prediction does not
    depend on the length of the state below. If the output does not either, the energy falls as c goes to 0.
    """
    c = 0.1
    for output_normalised in (True, False):
        conventions = {"activation": activation, "rms_eps": 0.0, "normalise_output_input": output_normalised}
        problem = make_problem(width=24, phi="relu", conventions=conventions)
        z = problem.states()
        before = problem.predict(z)
        problem.parameters.w_in *= c
        problem.parameters.w_hidden *= c
        after = problem.predict(c * z)
        torch.testing.assert_close(c * z - after.mu, c * (z - before.mu), **ROUNDING)
        same_label = torch.allclose(after.logits, before.logits, rtol=0, atol=1e-12)
        assert same_label == output_normalised


# The gradient in the weights


@PHIS
@ALL_READINGS
def test_the_weight_gradient_is_what_autograd_finds(reading: dict[str, Any], phi: str) -> None:
    problem = make_problem(phi=phi, conventions={**reading, "rms_eps": 1e-2})
    z, plain = problem.states(), PlainNetwork(problem)
    plain.energy(problem.x, problem.y, z).backward()
    assert_gradients_match(weight_gradient_of(problem, z), plain, atol=1e-12)


@ALL_READINGS
def test_the_weight_gradient_is_the_slope_of_the_energy(reading: dict[str, Any]) -> None:
    problem = make_problem(depth=4, width=3, conventions=reading)
    z = problem.states()
    gradient = weight_gradient_of(problem, z).named()
    for name, tensor in problem.parameters.named().items():

        def energy_at(value: Tensor, name: str = name) -> Tensor:
            moved = Parameters(**{**problem.parameters.named(), name: value})
            return energy_of(Problem(problem.spec, moved, problem.x, problem.y), z).sum()

        torch.testing.assert_close(gradient[name], central_differences(energy_at, tensor), **DIFFERENCES)


@ALL_READINGS
def test_the_highway_does_not_appear_in_the_weight_gradient(reading: dict[str, Any]) -> None:
    problem = make_problem("hep", conventions=reading)
    z = problem.states()
    tensors = {name: tensor.clone() for name, tensor in problem.parameters.named().items()}
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items() if tensor.numel()}
    moving = replace(problem, parameters=Parameters(**{**tensors, **leaves}))
    arguments = (moving.parameters, moving.mu_1, problem.y, z, problem.architecture)
    plain = torch.autograd.grad(reference.energy(*arguments)[0], [*leaves.values()], retain_graph=True)
    augmented = torch.autograd.grad(reference.augmented_energy(*arguments, problem.highways), [*leaves.values()])
    ours = weight_gradient_of(problem, z).named()
    for name, with_highway, without in zip(leaves, augmented, plain, strict=True):
        assert torch.equal(with_highway, without), name
        torch.testing.assert_close(ours[name], without, **ROUNDING)


@ALL_READINGS
def test_a_network_without_hidden_matrices_has_the_same_gradients(reading: dict[str, Any]) -> None:
    problem = make_problem(depth=2, conventions=reading)
    z, plain = problem.states().requires_grad_(), PlainNetwork(problem)
    total = plain.energy(problem.x, problem.y, z)
    total.backward()
    assert z.grad is not None
    torch.testing.assert_close(state_gradient_of(problem, z.detach()), z.grad, **ROUNDING)
    assert_gradients_match(weight_gradient_of(problem, z.detach()), plain, atol=1e-12)
