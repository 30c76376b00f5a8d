"""What every learning rule keeps to, whichever it is."""

import pytest
import torch

from highways import methods
from highways.methods import METHODS
from highways.network import feedforward, initialise
from networks import (
    CLASSES,
    make_problem,
    make_spec,
)
from rules import DEPTHS, ROUNDING, make_backprop


@pytest.mark.parametrize("method", METHODS)
@DEPTHS
def test_the_logits_are_those_of_the_feedforward_pass_before_any_inference(method: str, depth: int) -> None:
    problem = make_problem(method, depth=depth)
    expected = feedforward(problem.parameters, problem.x, problem.architecture)
    torch.testing.assert_close(problem.gradient().logits, expected, **ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_changes_no_weight_and_remembers_no_batch(method: str) -> None:
    problem = make_problem(method)
    before, rule = problem.parameters.clone().named(), problem.rule()
    first = rule.gradient(problem.parameters, problem.x, problem.y)
    rule.gradient(problem.parameters, problem.x.flip(0) * 2, problem.y)
    again = rule.gradient(problem.parameters, problem.x, problem.y)
    for name, tensor in problem.parameters.named().items():
        assert torch.equal(tensor, before[name]), name
        assert torch.equal(first.weights.named()[name], again.weights.named()[name]), name
        assert not first.weights.named()[name].requires_grad


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("depth", [2, 5])
def test_every_rule_gives_every_parameter_a_gradient_of_its_shape(method: str, depth: int) -> None:
    problem = make_problem(method, depth=depth, conventions={"bias": True, "normalise_output_input": True})
    gradient = problem.gradient()
    ours, parameters = gradient.weights.named(), problem.parameters.named()
    assert {name: tensor.shape for name, tensor in ours.items()} == {
        name: tensor.shape for name, tensor in parameters.items()
    }
    assert gradient.errors.hidden.shape == (depth - 1, 3, 6)
    assert gradient.errors.output.shape == gradient.logits.shape == (3, CLASSES)


@pytest.mark.parametrize("method", METHODS)
def test_the_output_layer_learns_the_same_first_step_under_every_rule(method: str) -> None:
    """Where no hidden state has moved yet, dE/dW_{L-1} is the gradient of the loss of the rule's network."""
    nearly_still = {
        "epc": {"step_size": 1e-9},
        "dkp_pc": {"first_lr": 1e-9, "step_size": 1e-9},
        "mupc": {"step_size": 1e-9},
    }
    problem = make_problem(method, inference={"step_size": 1e-9, "steps": 1}, rule=nearly_still.get(method))
    truth = make_backprop(problem).gradient(problem.parameters, problem.x, problem.y).weights.w_out
    torch.testing.assert_close(problem.gradient().weights.w_out, truth, rtol=0, atol=1e-7)
    assert truth.abs().max() > 1e-3


def test_every_registered_method_has_a_rule_that_runs_on_a_fresh_network() -> None:
    for name in METHODS:
        spec = make_spec(name)
        parameters = initialise(spec, 5, CLASSES)
        x, y = torch.ones(2, 5).double(), torch.eye(CLASSES).double()[:2]
        gradient = methods.rule(name)(spec, parameters, "batched").gradient(parameters, x, y)
        assert all(tensor.isfinite().all() for tensor in gradient.weights.named().values())
