"""What a run reports of each layer."""

import math
from typing import Any

import pytest
import torch

from highways.training.diagnostics import per_layer
from networks import (
    PlainNetwork,
    Problem,
    make_problem,
)
from rules import mean_loss


def diagnose(problem: Problem) -> dict[str, Any]:
    return per_layer(problem.spec, problem.rule(), problem.parameters, problem.x, problem.y)


def test_backprop_points_where_backprop_points() -> None:
    problem = make_problem("backprop", depth=6, conventions={"bias": True})
    assert diagnose(problem)["backprop_cosine"] == pytest.approx([1.0] * 6, abs=1e-14)


@pytest.mark.parametrize("method", ["pc", "hep"])
def test_diagnostics_are_taken_per_layer_from_the_input_to_the_output(method: str) -> None:
    problem = make_problem(method, depth=4, inference={"steps": 8}, conventions={"state_gradient": "sum"})
    _, final = problem.relax()
    network = PlainNetwork(problem)
    (network.energy(problem.x, problem.y, final) / 3).backward()
    ours = [linear.weight.grad for linear in network.linears]
    network.zero_grad()
    mean_loss(network, problem).backward()
    theirs = [linear.weight.grad for linear in network.linears]
    below = [problem.x, *final]
    eps = [state - network.prediction(i, below[i]) for i, state in enumerate(final)]
    eps.append(problem.y - network.prediction(3, final[-1]).softmax(-1))

    found = diagnose(problem)
    cosines = [
        torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()
        for a, b in zip(ours, theirs, strict=True)
    ]
    assert found["backprop_cosine"] == pytest.approx(cosines, abs=1e-12)
    assert max(cosines[:-1]) < 0.9999
    assert found["weight_gradient_norm"] == pytest.approx([g.norm().item() for g in ours], rel=1e-12)
    states, a = [], problem.x
    for i in range(3):
        a = network.prediction(i, a)
        states.append(a)
    assert found["rms_state"] == pytest.approx([z.pow(2).mean().sqrt().item() for z in states], rel=1e-12)
    assert found["rms_error"] == pytest.approx([e.pow(2).mean().sqrt().item() for e in eps], rel=1e-12)


def test_a_layer_without_a_gradient_has_no_cosine() -> None:
    """Vanilla PC at depth 12 with 3 steps: the error has reached z_9, so W_8 and the matrices above learn."""
    found = diagnose(make_problem(depth=12, inference={"steps": 3}))
    assert found["backprop_cosine"][:8] == [None] * 8
    assert found["weight_gradient_norm"][:8] == [0.0] * 8
    assert found["rms_error"][:8] == [0.0] * 8
    assert all(cosine is not None and 0 < cosine <= 1 + 1e-12 for cosine in found["backprop_cosine"][8:])
    assert all(norm > 0 for norm in found["weight_gradient_norm"][8:])


def test_numbers_that_are_not_finite_become_null() -> None:
    problem = make_problem()
    problem.parameters.w_out[0, 0] = math.nan
    assert diagnose(problem)["backprop_cosine"] == [None] * 5
