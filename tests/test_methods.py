"""The learning rules: what each one's update is, and where one turns into another."""

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from highways import inference, methods
from highways.diagnostics import per_layer
from highways.energy import Errors, Relaxed, errors, state_gradient, weight_gradient
from highways.fields import SpecError
from highways.inference import batched
from highways.methods import METHODS, backprop, pc
from highways.methods.feedback import feedback_matrices
from highways.network import Parameters, feedforward, initialise
from networks import (
    CLASSES,
    KERNELS,
    READINGS,
    PlainNetwork,
    Problem,
    assert_gradients_match,
    backprop_errors,
    central_differences,
    make_problem,
    make_spec,
    name_of,
)
from rules import ALL_READINGS, DEPTHS, PHIS

# What differs between two ways of adding up some dozens of numbers of size 1.
ROUNDING = {"rtol": 0, "atol": 1e-12}


def make_backprop(problem: Problem) -> backprop.Rule:
    return backprop.Rule(problem.spec, problem.parameters, kernel="")


def cross_entropy(network: PlainNetwork, problem: Problem) -> Tensor:
    return torch.nn.functional.cross_entropy(network(problem.x), problem.y)


# Predictive coding


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


@pytest.mark.parametrize("method", ["pc", "hep"])
@pytest.mark.parametrize("optimizer", ["euler", "adam"])
def test_weights_below_the_reach_of_every_signal_get_no_gradient(method: str, optimizer: str) -> None:
    """Errors come down from the output by a layer per step; from an endpoint they spread both ways.

    Here T = 3, L = 10, S = {2}: from the output to layer 7, from the endpoint to layers 1 and 5.
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
    """A width and a batch at which products of one layer and of all layers at once round differently."""
    depth, steps = 12, 3
    problem = make_problem(depth=depth, width=37, batch=80, dtype="float32", inference={"steps": steps})
    error = problem.gradient(kernel).errors.hidden
    assert not error[: depth - 1 - steps].any()


def test_a_rule_relaxes_with_the_kernel_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel that leaves the states where they are, nothing but the output layer learns."""

    def stay(parameters: Any, x: Any, *_: Any) -> Any:
        z = batched.initial_states(parameters, x, problem.architecture)
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
    """Outside inference too: they are the same small differences of states of size 1."""
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
    """Where the matrix W_layer, its bias and the gain of its input are kept."""
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

    The weight multiplies the one term of the energy that the output error stands for, so it multiplies eps_L.
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


# Highways


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("optimizer", ["euler", "adam"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@DEPTHS
def test_a_highway_of_strength_zero_is_predictive_coding_bit_for_bit(
    kernel: str, optimizer: str, dtype: str, depth: int
) -> None:
    settings: dict[str, Any] = {
        "depth": depth,
        "phi": "relu",
        "dtype": dtype,
        "inference": {"optimizer": optimizer},
    }
    plain = make_problem("pc", **settings)
    cut = make_problem("hep", **settings, highway={"alpha": 0.0})
    for ours, theirs in zip(cut.relax(kernel), plain.relax(kernel), strict=True):
        assert torch.equal(ours, theirs)
    ours, theirs = cut.gradient(kernel), plain.gradient(kernel)
    for name, tensor in theirs.weights.named().items():
        assert torch.equal(ours.weights.named()[name], tensor), name
    assert torch.equal(ours.logits, theirs.logits)
    assert torch.equal(ours.errors.hidden, theirs.errors.hidden)
    assert torch.equal(ours.errors.output, theirs.errors.output)


@pytest.mark.parametrize(
    ("depth", "every", "endpoints"),
    [
        (5, 1, (1, 2, 3, 4)),
        (5, 2, (1, 3)),
        (5, 3, (2,)),
        (5, 4, (1,)),
        (6, 2, (2, 4)),
        (2, 1, (1,)),
        (32, 10, (2, 12, 22)),
        (32, 8, (8, 16, 24)),
        (32, 5, (2, 7, 12, 17, 22, 27)),
    ],
)
def test_endpoints_are_counted_from_the_output(depth: int, every: int, endpoints: tuple[int, ...]) -> None:
    """i = L-k, L-2k, ... down to the first hidden layer."""
    assert make_spec("hep", depth=depth, highway={"every": every}).endpoints == endpoints


@pytest.mark.parametrize(
    ("depth", "every", "endpoints"), [(5, 1, (2, 3, 4)), (5, 2, (3,)), (5, 3, (2,)), (32, 8, (8, 16, 24))]
)
def test_the_first_hidden_layer_can_be_left_out(depth: int, every: int, endpoints: tuple[int, ...]) -> None:
    conventions = {"highway_layers": "without_first"}
    spec = make_spec("hep", depth=depth, highway={"every": every}, conventions=conventions)
    assert spec.endpoints == endpoints


@pytest.mark.parametrize(
    ("depth", "every", "highway_layers"), [(5, 5, "all"), (5, 4, "without_first"), (2, 1, "without_first")]
)
def test_highways_need_an_endpoint(depth: int, every: int, highway_layers: str) -> None:
    with pytest.raises(SpecError, match=r"highway\.every"):
        make_spec("hep", depth=depth, highway={"every": every}, conventions={"highway_layers": highway_layers})


def test_the_feedback_of_a_layer_depends_on_neither_the_other_endpoints_nor_the_strength() -> None:
    def feedback(every: int, alpha: float = 1.0, layers: str = "all", seed: int = 0) -> dict[int, Tensor]:
        spec = make_spec(
            "hep",
            depth=9,
            seed=seed,
            highway={"every": every, "alpha": alpha},
            conventions={"highway_layers": layers},
        )
        return dict(zip(spec.endpoints, feedback_matrices(spec, CLASSES), strict=True))

    everywhere = feedback(every=1)
    for other in (feedback(2), feedback(3), feedback(1, alpha=0.1), feedback(1, layers="without_first")):
        for layer, matrix in other.items():
            assert torch.equal(matrix, everywhere[layer]), layer
    matrices = [*everywhere.values(), *feedback(every=1, seed=1).values()]
    assert not any(torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i])


def test_feedback_is_drawn_from_a_normal_of_width_sigma_v() -> None:
    sigma_v = 0.02
    spec = make_spec("hep", depth=5, width=200, highway={"sigma_v": sigma_v, "alpha": 7.0})
    feedback = feedback_matrices(spec, classes=50)
    assert feedback.shape == (4, 200, 50)
    for matrix in feedback:
        sample = (matrix / sigma_v).flatten().sort().values
        n = sample.numel()
        normal = 0.5 * (1 + torch.erf(sample / math.sqrt(2)))
        steps = torch.arange(n + 1, dtype=torch.float64) / n
        # Massart: below 1e-5 by chance; and five standard deviations of a mean square
        assert math.sqrt(n) * torch.maximum(steps[1:] - normal, normal - steps[:-1]).max() < 2.5
        assert abs(sample.square().mean() - 1) < 5 * math.sqrt(2 / n)
    single = make_spec("hep", depth=5, width=200, dtype="float32", highway={"sigma_v": sigma_v})
    assert torch.equal(feedback_matrices(single, classes=50), feedback.to(torch.float32))


def test_highways_change_the_gradient_of_layers_that_predictive_coding_leaves_silent() -> None:
    settings: dict[str, Any] = {"depth": 10, "inference": {"steps": 2}}
    without, with_highways = (make_problem(method, **settings).gradient() for method in ("pc", "hep"))
    assert not any(matrix.any() for matrix in without.weights.matrices()[:7])
    assert all(matrix.any() for matrix in with_highways.weights.matrices())


# Backpropagation


@PHIS
@DEPTHS
@ALL_READINGS
def test_backprop_is_the_gradient_of_a_plain_network(reading: dict[str, Any], depth: int, phi: str) -> None:
    problem = make_problem("backprop", depth=depth, phi=phi, conventions={**reading, "rms_eps": 1e-2})
    network = PlainNetwork(problem)
    cross_entropy(network, problem).backward()
    assert_gradients_match(problem.gradient().weights, network, atol=1e-12)


@ALL_READINGS
def test_backprop_is_the_slope_of_the_mean_loss(reading: dict[str, Any]) -> None:
    """The plain network again, but with its own gradients left out of it."""
    problem = make_problem("backprop", depth=4, width=3, conventions={**reading, "rms_eps": 1e-2})
    gradient = problem.gradient().weights.named()
    for name, tensor in problem.parameters.named().items():

        def loss(value: Tensor, name: str = name) -> Tensor:
            moved = Parameters(**{**problem.parameters.named(), name: value})
            at = Problem(problem.spec, moved, problem.x, problem.y)
            return cross_entropy(PlainNetwork(at), at).detach()

        slope = central_differences(loss, tensor)
        torch.testing.assert_close(gradient[name], slope, rtol=0, atol=1e-9)


@DEPTHS
def test_backprop_reports_how_each_state_of_a_sample_should_move(depth: int) -> None:
    """Its errors are -dl/dz_i of each sample's own loss, not of the mean."""
    problem = make_problem("backprop", depth=depth, conventions={"rms_eps": 1e-2})
    network, error = PlainNetwork(problem), problem.gradient().errors

    def loss(offsets: Tensor) -> Tensor:
        logits = network(problem.x, offsets).detach()
        return torch.nn.functional.cross_entropy(logits, problem.y, reduction="sum")

    slope = central_differences(loss, torch.zeros(depth - 1, 3, 6).double())
    torch.testing.assert_close(error.hidden, -slope, rtol=0, atol=1e-9)
    p = network(problem.x).detach().softmax(-1)
    torch.testing.assert_close(error.output, problem.y - p, **ROUNDING)


@PHIS
@DEPTHS
@ALL_READINGS
def test_backprop_reports_the_errors_that_autograd_finds(reading: dict[str, Any], depth: int, phi: str) -> None:
    problem = make_problem("backprop", depth=depth, phi=phi, conventions={**reading, "rms_eps": 1e-2})
    torch.testing.assert_close(problem.gradient().errors.hidden, backprop_errors(problem), **ROUNDING)


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


# Diagnostics


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
    cross_entropy(network, problem).backward()
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
    """Vanilla PC at depth 12 with 3 steps: the error has come down to z_9 and moves W_8 and above."""
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


def test_every_registered_method_has_a_rule_that_runs_on_a_fresh_network() -> None:
    for name in METHODS:
        spec = make_spec(name)
        parameters = initialise(spec, 5, CLASSES)
        x, y = torch.ones(2, 5).double(), torch.eye(CLASSES).double()[:2]
        gradient = methods.rule(name)(spec, parameters, "batched").gradient(parameters, x, y)
        assert all(tensor.isfinite().all() for tensor in gradient.weights.named().values())


# Controls of HEP


def test_without_the_chain_a_state_moves_by_its_own_error_and_its_highway() -> None:
    """One Euler step from the feedforward sweep, by hand: below the last hidden layer nothing else acts."""
    spec = {"highway": {"chain": False}, "inference": {"step_size": 0.5, "steps": 1}}
    problem = make_problem("hep", depth=5, conventions={"state_gradient": "sum"}, **spec)
    initial, final = problem.relax()
    output = problem.at(initial).errors.output
    v = feedback_matrices(problem.spec, classes=4)
    for i in range(3):
        torch.testing.assert_close(final[i] - initial[i], -0.5 * 2.0 * output @ v[i].T, **ROUNDING)
    _, again = problem.relax(steps=2)
    error = problem.at(final).errors
    for i in range(3):
        step = -0.5 * (error.hidden[i] + 2.0 * error.output @ v[i].T)
        torch.testing.assert_close(again[i] - final[i], step, **ROUNDING)


def test_redrawn_highways_differ_from_update_to_update_and_come_again() -> None:
    problem = make_problem("hep", highway={"redraw": True})
    rule = problem.rule()
    draws = [rule.highways(update).feedback for update in (0, 1, 0)]
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])
    assert draws[1].std().item() == pytest.approx(2.0 * 0.1, rel=0.2)
    fixed = make_problem("hep").rule()
    assert torch.equal(fixed.highways(0).feedback, fixed.highways(1).feedback)
    first, second = (rule.gradient(problem.parameters, problem.x, problem.y, update) for update in (0, 1))
    assert not torch.equal(first.weights.w_in, second.weights.w_in)


# Direct feedback alignment


@pytest.mark.parametrize("reading", READINGS, ids=name_of)
def test_dfa_is_an_outer_product_of_the_fed_back_error_and_the_activity(reading: dict[str, Any]) -> None:
    problem = make_problem("dfa", conventions=reading)
    plain = PlainNetwork(problem)
    v = feedback_matrices(problem.spec, classes=4)
    output = (problem.y - plain(problem.x).softmax(-1)).detach()
    gradient, z = problem.gradient(), problem.x
    for layer, ours in enumerate(gradient.weights.matrices()):
        mu = plain.prediction(layer, z)
        pull = output if layer == 4 else -2.0 * output @ v[layer].T
        (expected,) = torch.autograd.grad((mu * pull).sum(), [plain.linears[layer].weight])
        torch.testing.assert_close(ours, -expected / 3, **ROUNDING)
        z = mu.detach()
    torch.testing.assert_close(gradient.errors.output, output, **ROUNDING)


def test_dfa_with_the_jacobian_of_the_output_as_feedback_is_backprop() -> None:
    """One sample, B_i = (d mu_L / d z_i)^T (C8): then B_i eps_L is backprop's error."""
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
