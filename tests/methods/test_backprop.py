"""Backprop against autograd of a plain network, and against finite differences."""

from typing import Any

import torch
from torch import Tensor

from highways.model.network import Parameters
from networks import (
    PlainNetwork,
    Problem,
    assert_gradients_match,
    backprop_errors,
    central_differences,
    make_problem,
)
from rules import ALL_READINGS, DEPTHS, PHIS, ROUNDING, backprop_network, mean_loss, plain_output_error, total_loss


@PHIS
@DEPTHS
@ALL_READINGS
def test_backprop_is_the_gradient_of_a_plain_network(reading: dict[str, Any], depth: int, phi: str) -> None:
    problem = make_problem("backprop", depth=depth, phi=phi, conventions={**reading, "rms_eps": 1e-2})
    assert_gradients_match(problem.gradient().weights, backprop_network(problem), atol=1e-12)


@ALL_READINGS
def test_backprop_is_the_slope_of_the_mean_loss(reading: dict[str, Any]) -> None:
    """Against central differences of the plain network's loss, without autograd."""
    problem = make_problem("backprop", depth=4, width=3, conventions={**reading, "rms_eps": 1e-2})
    gradient = problem.gradient().weights.named()
    for name, tensor in problem.parameters.named().items():

        def loss(value: Tensor, name: str = name) -> Tensor:
            moved = Parameters(**{**problem.parameters.named(), name: value})
            at = Problem(problem.spec, moved, problem.x, problem.y)
            return mean_loss(PlainNetwork(at), at).detach()

        slope = central_differences(loss, tensor)
        torch.testing.assert_close(gradient[name], slope, rtol=0, atol=1e-9)


@DEPTHS
def test_backprop_reports_how_each_state_of_a_sample_should_move(depth: int) -> None:
    """Its errors are -dl/dz_i of each sample's own loss, not of the mean."""
    problem = make_problem("backprop", depth=depth, conventions={"rms_eps": 1e-2})
    network, error = PlainNetwork(problem), problem.gradient().errors

    def loss(offsets: Tensor) -> Tensor:
        return total_loss(network(problem.x, offsets).detach(), problem)

    slope = central_differences(loss, torch.zeros(depth - 1, 3, 6).double())
    torch.testing.assert_close(error.hidden, -slope, rtol=0, atol=1e-9)
    torch.testing.assert_close(error.output, plain_output_error(network, problem), **ROUNDING)


@PHIS
@DEPTHS
@ALL_READINGS
def test_backprop_reports_the_errors_that_autograd_finds(reading: dict[str, Any], depth: int, phi: str) -> None:
    problem = make_problem("backprop", depth=depth, phi=phi, conventions={**reading, "rms_eps": 1e-2})
    torch.testing.assert_close(problem.gradient().errors.hidden, backprop_errors(problem), **ROUNDING)
