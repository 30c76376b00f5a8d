"""What every learning rule must satisfy."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways import methods
from highways.methods import METHODS, base
from highways.methods.sweeps import downwards, upwards
from highways.model.energy import Errors, predict
from highways.model.network import Architecture, Parameters, feedforward, initialise
from networks import (
    CLASSES,
    make_problem,
    make_spec,
    stream,
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
    """While no hidden state has moved, dE/dW_{L-1} is the gradient of the loss of the rule's network."""
    nearly_still = {
        "epc": {"step_size": 1e-9},
        "dkp_pc": {"first_lr": 1e-9, "step_size": 1e-9},
        "mupc": {"step_size": 1e-9},
        "ipc": {"step_size": 1e-9},
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


class Attached(base.Rule):
    """A rule that returns a sum over the batch with its autograd graph; the base class does the rest."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, str]] = []

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> base.Gradient:
        self.seen.append((torch.is_grad_enabled(), torch.backends.cuda.matmul.fp32_precision))
        with torch.enable_grad():
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in parameters.named().items()}
            sums = Parameters(**{name: leaf * (update + 6) for name, leaf in leaves.items()})
            output = leaves["w_out"].sum() * y
            return base.Gradient(sums, output, Errors(output.unsqueeze(0), output))


def test_the_base_class_takes_the_mean_and_leaves_no_graph() -> None:
    problem, rule = make_problem(batch=3), Attached()
    gradient = rule.gradient(problem.parameters, problem.x, problem.y)
    assert rule.seen == [(False, "ieee")]
    for name, tensor in gradient.weights.named().items():
        assert not tensor.requires_grad
        torch.testing.assert_close(tensor, 2 * problem.parameters.named()[name], **ROUNDING)
    assert not any(t.requires_grad for t in (gradient.logits, *gradient.errors))


class Turns(base.Interleaved):
    """A rule of two steps per batch, which notes autograd and matmul precision while it computes."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, str]] = []

    def batch_gradients(
        self, parameters: Parameters, x: Tensor, y: Tensor, update: int
    ) -> Iterator[base.Gradient]:
        for factor in (3, 9):
            self.seen.append((torch.is_grad_enabled(), torch.backends.cuda.matmul.fp32_precision))
            sums = Parameters(**{name: tensor * factor for name, tensor in parameters.named().items()})
            yield base.Gradient(sums, y, Errors(factor * y.unsqueeze(0), y))


def test_between_the_steps_of_a_batch_autograd_and_arithmetic_are_the_callers() -> None:
    problem, rule = make_problem(batch=3), Turns()
    outside = (torch.is_grad_enabled(), torch.backends.cuda.matmul.fp32_precision)
    before = problem.parameters.clone().named()
    for number, gradient in enumerate(rule.gradients(problem.parameters, problem.x, problem.y)):
        assert (torch.is_grad_enabled(), torch.backends.cuda.matmul.fp32_precision) == outside
        for name, tensor in problem.parameters.named().items():  # the second sees what the first has changed
            torch.testing.assert_close(gradient.weights.named()[name], (1, 6)[number] * before[name], **ROUNDING)
            tensor.add_(gradient.weights.named()[name])
    assert rule.seen == [(False, "ieee")] * 2 != [outside] * 2


def test_direct_feedback_takes_the_error_of_the_networks_own_loss() -> None:
    problem = make_problem("dfa")
    rule = problem.rule()
    rule.architecture = replace(rule.architecture, squared=True)
    gradient = rule.gradient(problem.parameters, problem.x, problem.y)
    torch.testing.assert_close(gradient.errors.output, problem.y - gradient.logits, **ROUNDING)


@pytest.mark.parametrize("activation", ["pre", "pre_norm"])
@pytest.mark.parametrize("depth", [2, 3, 6])
def test_sweeps_up_and_down_honour_skips(activation: str, depth: int) -> None:
    """Upwards against the energy's predictions, downwards against autograd of the loss in the errors."""
    problem = make_problem(depth=depth, conventions={"activation": activation, "bias": True})
    architecture = replace(problem.architecture, skips=True)
    shape = (depth - 1, *problem.x.shape[:1], problem.spec.network.width)
    errors = (0.3 * torch.randn(shape, generator=stream(4), dtype=torch.float64)).requires_grad_()
    up = upwards(problem.parameters, problem.x, architecture, errors)
    mu = predict(problem.parameters, up.states, up.predictions[0], architecture)
    torch.testing.assert_close(up.predictions, mu.mu, **ROUNDING)
    torch.testing.assert_close(up.logits, mu.logits, **ROUNDING)
    torch.testing.assert_close(up.states, up.predictions + errors, **ROUNDING)
    (slope,) = torch.autograd.grad(F.cross_entropy(up.logits, problem.y, reduction="sum"), errors)
    output = problem.y - up.logits.softmax(-1)
    torch.testing.assert_close(downwards(problem.parameters, up, output, architecture), -slope, **ROUNDING)
    if depth > 2:
        assert not torch.allclose(up.logits, upwards(problem.parameters, problem.x, problem.architecture).logits)


def test_the_frozen_recursion_of_meta_pcn_honours_skips() -> None:
    """After L - 1 steps of size 1 it is at rest: its errors are those of the product of Jacobians."""
    problem = make_problem("meta_pcn", depth=6, conventions={"activation": "pre"})
    rule = problem.rule()
    rule.architecture = architecture = replace(rule.architecture, skips=True)
    up = upwards(problem.parameters, problem.x, architecture)
    output = problem.y - up.logits.softmax(-1)
    truth = downwards(problem.parameters, up, output, architecture)
    torch.testing.assert_close(rule.relaxed(problem.parameters, up, output), truth, **ROUNDING)


def test_skips_stand_beside_no_nonlinearity_after_the_matrix() -> None:
    with pytest.raises(ValueError, match="skips"):
        Architecture("tanh", "post", False, 1e-6, skips=True)
