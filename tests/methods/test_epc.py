"""ePC: known values of its updates, and where it turns into backpropagation or predictive coding."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from highways.model.energy import energy, state_gradient
from networks import PlainNetwork, assert_gradients_match, backprop_errors, make_problem
from rules import ALL_READINGS, DEPTHS, PHIS, ROUNDING, backprop_matrices, plain_states, total_loss


@PHIS
@DEPTHS
@ALL_READINGS
def test_the_first_step_of_epc_is_backprop_times_its_size(reading: dict[str, Any], depth: int, phi: str) -> None:
    problem = make_problem(
        "epc", depth=depth, phi=phi, conventions={**reading, "rms_eps": 0.1}, rule={"step_size": 0.1, "steps": 1}
    )
    truth = backprop_errors(problem)
    assert truth.abs().max() > 1e-3
    torch.testing.assert_close(problem.gradient().errors.hidden, 0.1 * truth, **ROUNDING)


@PHIS
@ALL_READINGS
def test_epc_descends_its_energy_through_the_whole_network(reading: dict[str, Any], phi: str) -> None:
    conventions = {**reading, "rms_eps": 0.1}
    problem = make_problem("epc", phi=phi, conventions=conventions, rule={"step_size": 0.3, "steps": 4})
    network, e = PlainNetwork(problem), torch.zeros(4, 3, 6, dtype=torch.float64)
    for _ in range(4):
        e.requires_grad_()
        total = 0.5 * e.square().sum() + total_loss(network(problem.x, e), problem)
        (slope,) = torch.autograd.grad(total, [e])
        e = e.detach() - 0.3 * slope
    found = problem.gradient().errors
    torch.testing.assert_close(found.hidden, e, **ROUNDING)
    output = problem.y - network(problem.x, e).detach().softmax(-1)
    torch.testing.assert_close(found.output, output, **ROUNDING)


@DEPTHS
@ALL_READINGS
def test_weights_of_epc_learn_from_their_own_layer_only(reading: dict[str, Any], depth: int) -> None:
    """Their gradient is that of predictive coding's energy, at fixed states that follow from the errors."""
    conventions = {**reading, "rms_eps": 0.1}
    rule = {"step_size": 0.3, "steps": 3}
    problem = make_problem("epc", depth=depth, conventions=conventions, rule=rule)
    network, gradient = PlainNetwork(problem), problem.gradient()
    z = torch.stack(plain_states(network, problem.x, gradient.errors.hidden))
    (network.energy(problem.x, problem.y, z) / 3).backward()
    assert_gradients_match(gradient.weights, network, atol=1e-13)


@ALL_READINGS
def test_the_energy_of_epc_is_that_of_predictive_coding_at_its_states(reading: dict[str, Any]) -> None:
    problem = make_problem("epc", conventions=reading, rule={"step_size": 0.2, "steps": 5})
    _, (z, _, e) = problem.rule().infer(problem.parameters, problem.x, problem.y)
    logits = PlainNetwork(problem)(problem.x, e.hidden).detach()
    expected = 0.5 * e.hidden.square().sum((0, 2)) + F.cross_entropy(logits, problem.y, reduction="none")
    ours = energy(problem.y, problem.predict(z), problem.at(z).errors)
    torch.testing.assert_close(ours, expected, **ROUNDING)


def test_epc_comes_to_rest_where_predictive_coding_does() -> None:
    settings: dict[str, Any] = {"depth": 4, "initialisation": "orthogonal"}
    problem = make_problem("epc", **settings, rule={"step_size": 0.2, "steps": 600})
    pc = make_problem("pc", **settings, conventions={"state_gradient": "sum"})
    for parameters in (problem.parameters, pc.parameters):
        parameters.gain.mul_(0.5)  # a well conditioned energy: descent reaches the minimum soon
    _, (z, _, e) = problem.rule().infer(problem.parameters, problem.x, problem.y)
    predictions, error = problem.predict(z), problem.at(z).errors
    slope = state_gradient(problem.parameters, predictions, error, problem.architecture)
    assert slope.abs().max() < 1e-14
    _, theirs = pc.relax(step_size=0.3, steps=1000)
    torch.testing.assert_close(z, theirs, rtol=0, atol=1e-13)
    truth = backprop_errors(problem)
    assert (e.hidden - truth).norm() > 0.1 * truth.norm()


@ALL_READINGS
def test_few_small_steps_of_epc_are_backprop_to_first_order(reading: dict[str, Any]) -> None:
    """Hidden weights get eta T times the gradient, with a relative error and an angle of O(eta T)."""
    truth, distances, angles = None, [], []
    for size in (1e-4, 1e-5):
        rule = {"step_size": size / 5, "steps": 5}
        problem = make_problem("epc", conventions={**reading, "rms_eps": 0.1}, rule=rule)
        truth = backprop_matrices(problem)
        ours = problem.gradient().weights.matrices()
        scaled = [*(matrix / size for matrix in ours[:-1]), ours[-1]]
        distances.append([((a - b).norm() / b.norm()).item() for a, b in zip(scaled, truth, strict=True)])
        angles.append(
            [1 - F.cosine_similarity(a.flatten(), b.flatten(), 0).item() for a, b in zip(ours, truth, strict=True)]
        )
    ratios = [larger / smaller for larger, smaller in zip(*distances, strict=True)]
    assert ratios == pytest.approx([10] * 5, rel=0.05)
    assert [larger / smaller for larger, smaller in zip(*angles, strict=True)] == pytest.approx([100] * 5, rel=0.1)
    assert max(distances[1]) < 1e-2
    assert max(angles[1]) < 1e-4
