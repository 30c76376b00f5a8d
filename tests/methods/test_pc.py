"""Predictive coding: its update at the relaxed states, how far it reaches, and where it turns into backprop."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from highways import inference
from highways.inference import batched
from highways.methods import pc
from highways.model.energy import Errors, Relaxed, errors, state_gradient, weight_gradient
from highways.model.network import Parameters
from networks import (
    KERNELS,
    PlainNetwork,
    assert_gradients_match,
    make_problem,
)
from rules import ALL_READINGS, DEPTHS, PHIS, ROUNDING, make_backprop


@pytest.mark.parametrize("method", ["pc", "hep"])
@pytest.mark.parametrize("kernel", KERNELS)
@DEPTHS
@pytest.mark.parametrize("bias", [False, True])
def test_weights_descend_the_mean_energy_at_the_relaxed_states(
    method: str, kernel: str, depth: int, bias: bool
) -> None:
    problem = make_problem(method, depth=depth, batch=3, conventions={"bias": bias})
    gradient, network = problem.gradient(kernel), PlainNetwork(problem)
    _, final = problem.relax(kernel)
    (network.energy(problem.x, problem.y, final) / 3).backward()
    assert_gradients_match(gradient.weights, network, atol=1e-12)
    predictions = problem.predict(final)
    expected = errors(final, problem.y, predictions, problem.architecture)
    torch.testing.assert_close(gradient.errors.hidden, expected.hidden, **ROUNDING)
    torch.testing.assert_close(gradient.errors.output, expected.output, **ROUNDING)


@pytest.mark.parametrize("method", ["pc", "hep"])
@pytest.mark.parametrize("optimizer", ["euler", "adam"])
def test_weights_below_the_reach_of_every_signal_get_no_gradient(method: str, optimizer: str) -> None:
    """Errors come down from the output by a layer per step; from an endpoint they spread both ways.

    Here T = 3, L = 10, S = {2}: the output's reach down to layer 7, the endpoint's from layer 1 to layer 5.
    """
    problem = make_problem(
        method,
        depth=10,
        phi="relu",
        dtype="float32",
        highway={"every": 8},
        inference={"optimizer": optimizer, "step_size": 0.5 if optimizer == "euler" else 0.005, "steps": 3},
        conventions={"state_gradient": "sum"},
    )
    gradient = problem.gradient()
    silent = (1, 2, 3, 4, 5, 6) if method == "pc" else (6,)
    for layer in range(1, 10):
        assert bool(gradient.errors.hidden[layer - 1].any()) == (layer not in silent), layer
        assert bool(gradient.weights.matrices()[layer - 1].any()) == (layer not in silent), layer


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_kernel_leaves_rounding_in_layers_below_the_reach_of_every_signal(kernel: str) -> None:
    """At this width and batch, products of one layer and of all layers at once round differently."""
    depth, steps = 12, 3
    problem = make_problem(depth=depth, width=37, batch=80, dtype="float32", inference={"steps": steps})
    error = problem.gradient(kernel).errors.hidden
    assert not error[: depth - 1 - steps].any()


def test_a_rule_relaxes_with_the_kernel_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel that leaves the states where they are, nothing but the output layer learns."""

    def stay(step: Any) -> Any:
        z = batched.initial_states(step.parameters, step.x, problem.architecture)
        return z, problem.at(z)

    problem = make_problem()
    monkeypatch.setitem(inference.KERNELS, "still", SimpleNamespace(relax=stay))
    *hidden, output = problem.gradient("still").weights.matrices()
    assert not any(matrix.any() for matrix in hidden)
    assert output.any()
    assert all(matrix.any() for matrix in problem.gradient("batched").weights.matrices())


def test_the_errors_that_weights_learn_from_are_computed_in_exact_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The weight gradient uses them outside inference; they are small differences of states of size 1."""
    matmul, seen = torch.backends.cuda.matmul, []

    def watched(*arguments: Any) -> Any:
        seen.append(matmul.fp32_precision)
        return weight_gradient(*arguments)

    monkeypatch.setattr(pc, "weight_gradient", watched)
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        make_problem(dtype="float32").gradient()
    finally:
        matmul.allow_tf32 = before
    assert seen
    assert "tf32" not in seen


@PHIS
@ALL_READINGS
def test_reading_each_layer_when_the_signal_arrives_is_backprop(reading: dict[str, Any], phi: str) -> None:
    """Z-IL: with lambda = 1, dE/dW_l at step L-1-l is the backprop gradient (Song et al., 2020)."""
    depth = 5
    problem = make_problem(
        depth=depth,
        width=12,
        batch=3,
        phi=phi,
        conventions={**reading, "state_gradient": "sum"},
        inference={"step_size": 1.0},
    )
    expected = make_backprop(problem).gradient(problem.parameters, problem.x, problem.y)
    for layer in range(depth):
        t = depth - 1 - layer
        initial, final = problem.relax(steps=max(t, 1))
        z = final if t > 0 else initial
        gradient = weight_gradient(problem.parameters, problem.x, problem.at(z), problem.architecture)
        for name, row in rows_of_layer(layer, gradient):
            ours, theirs = gradient.named()[name], expected.weights.named()[name] * 3
            if row is not None:
                ours, theirs = ours[row], theirs[row]
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
            if name.startswith("w"):
                assert ours.abs().max() > 1e-3


def rows_of_layer(layer: int, parameters: Parameters) -> list[tuple[str, int | None]]:
    """The fields of `Parameters`, each with its row, of W_layer, its bias and the gain of its input."""
    place = {0: "in", parameters.depth - 1: "out"}.get(layer, "hidden")
    row = layer - 1 if place == "hidden" else None
    rows = [(f"w_{place}", row)]
    if parameters.b_in is not None:
        rows.append((f"b_{place}", row))
    if 0 < layer <= len(parameters.gain):
        rows.append(("gain", layer - 1))
    return rows


def test_equilibrium_is_backprop_in_the_limit_of_a_weak_loss() -> None:
    """With a loss of weight c the errors at equilibrium are O(c), and PC / c differs from backprop by O(c).

    The weight multiplies the loss, whose gradient in the logits is -eps_L, so it multiplies eps_L.
    """
    problem = make_problem(depth=4, initialisation="orthogonal")
    problem.parameters.gain.mul_(0.5)  # a well conditioned energy: descent reaches the minimum soon
    parameters, architecture = problem.parameters, problem.architecture
    truth = make_backprop(problem).gradient(parameters, problem.x, problem.y).weights.matrices()
    start, _ = problem.relax()
    differences = []
    for c in (1e-2, 1e-3, 1e-4):
        z = start.clone()
        for _ in range(1000):
            predictions = problem.predict(z)
            error = errors(z, problem.y, predictions, problem.architecture)
            error = Errors(error.hidden, c * error.output)
            gradient = state_gradient(parameters, predictions, error, architecture)
            z -= 0.3 * gradient
        assert gradient.abs().max() < 1e-15
        relaxed = Relaxed(z, predictions.mu, error)
        ours = weight_gradient(parameters, problem.x, relaxed, architecture).matrices()
        differences.append(
            [((a / (3 * c) - b).norm() / b.norm()).item() for a, b in zip(ours, truth, strict=True)]
        )
    for larger, smaller in pairwise(differences):
        assert [one / other for one, other in zip(larger, smaller, strict=True)] == pytest.approx(
            [10] * 4, rel=0.05
        )
    assert max(differences[-1]) < 1e-3
