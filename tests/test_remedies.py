"""The remedies of other papers: known values of their updates, and where they turn into another rule."""

import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways import methods, optimisation
from highways.energy import energy, state_gradient
from highways.methods import meta_pcn
from highways.methods.base import Learned
from highways.methods.sweeps import upwards
from highways.network import Architecture, Parameters, feedforward, initialise, output_error, sweep
from highways.spec import Learning
from networks import (
    ACTIVATIONS,
    CLASSES,
    INPUTS,
    KERNELS,
    READINGS,
    PlainNetwork,
    Problem,
    assert_gradients_match,
    backprop_errors,
    make_problem,
    make_spec,
    name_of,
    stream,
)

ALL_READINGS = pytest.mark.parametrize("reading", READINGS, ids=name_of)
PHIS = pytest.mark.parametrize("phi", ["tanh", "relu"])
DEPTHS = pytest.mark.parametrize("depth", [2, 3, 5])
# What differs between two ways of adding up some dozens of numbers of size 1.
ROUNDING = {"rtol": 0, "atol": 1e-13}


def plain_states(network: PlainNetwork, x: Tensor, errors: Tensor | None = None) -> list[Tensor]:
    """s_1..s_{L-1} of a forward pass that adds e_i to every prediction on the way."""
    states, below = [], x
    for layer in range(len(network.linears) - 1):
        below = network.prediction(layer, below).detach()
        if errors is not None:
            below = below + errors[layer]
        states.append(below)
    return states


def layers_of(network: PlainNetwork, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """h_l and a_l = W_l h_l + b_l of every layer at the forward pass; gradients of a_l stay in the layer."""
    found: list[tuple[Tensor, Tensor]] = []
    handles = [
        linear.register_forward_hook(lambda _, inputs, product: found.append((inputs[0], product)))
        for linear in network.linears
    ]
    for layer, z in enumerate([x, *plain_states(network, x)]):
        if layer == 0:
            found.clear()
        network.prediction(layer, z)
    for handle in handles:
        handle.remove()
    return found


def plain_output_error(network: PlainNetwork, problem: Problem) -> Tensor:
    return (problem.y - network(problem.x).softmax(-1)).detach()


def total_loss(logits: Tensor, problem: Problem) -> Tensor:
    return F.cross_entropy(logits, problem.y, reduction="sum")


def backprop_network(problem: Problem) -> PlainNetwork:
    """A plain network that holds the gradient of the mean loss."""
    network = PlainNetwork(problem)
    (total_loss(network(problem.x), problem) / len(problem.x)).backward()
    return network


def backprop_matrices(problem: Problem) -> list[Tensor]:
    return [linear.weight.grad for linear in backprop_network(problem).linears]


def linear_problem(method: str, batch: int = 3, **rule: Any) -> Problem:
    """Nothing but positive numbers, on which relu is linear, and no normalisation."""
    problem = make_problem(method, batch=batch, phi="relu", conventions={"activation": "post"}, rule=rule)
    weights = {name: 0.4 * tensor.abs() for name, tensor in problem.parameters.named().items()}
    weights["gain"] = weights["gain"][:0]
    return replace(problem, parameters=Parameters(**weights), x=problem.x.abs())


def batches(problem: Problem, count: int) -> list[tuple[Tensor, Tensor]]:
    noise = stream(5)
    x = torch.randn(count, *problem.x.shape, generator=noise, dtype=torch.float64)
    labels = torch.randint(CLASSES, (count, len(problem.x)), generator=noise)
    return list(zip(x, F.one_hot(labels, CLASSES).double(), strict=True))


def train(problem: Problem, count: int, rule: Any) -> None:
    """Updates of the problem's parameters, as the training loop makes them."""
    optimizer = optimisation.weight_optimizer(problem.spec, problem.parameters)
    lr = problem.spec.learning.lr
    for x, y in batches(problem, count):
        gradient = rule.gradient(problem.parameters, x, y)

        def descend(weights: Parameters = gradient.weights) -> None:
            optimisation.apply(optimizer, problem.parameters, weights, lr)

        rule.step(problem.parameters, gradient, lr, descend)


# ePC


@PHIS
@DEPTHS
@ALL_READINGS
def test_the_first_step_of_epc_is_backprop_times_its_size(reading: dict[str, Any], depth: int, phi: str) -> None:
    problem = make_problem(
        "epc",
        depth=depth,
        phi=phi,
        conventions={**reading, "rms_eps": 0.1},
        rule={"step_size": 0.1, "steps": 1},
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
    """The gradient of the energy of predictive coding with the states held where the errors put them."""
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
    """Hidden weights get eta T times the gradient, up to a relative O(eta T); its angle is O(eta T) as well."""
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


# Meta-PCN


@PHIS
@DEPTHS
@ALL_READINGS
def test_meta_pcn_is_backprop_after_as_many_full_steps_as_there_are_hidden_layers(
    reading: dict[str, Any], depth: int, phi: str
) -> None:
    problem = make_problem("meta_pcn", depth=depth, phi=phi, conventions={**reading, "rms_eps": 0.1})
    gradient, truth = problem.gradient(), backprop_errors(problem)
    torch.testing.assert_close(gradient.errors.hidden, truth, **ROUNDING)
    assert_gradients_match(gradient.weights, backprop_network(problem), atol=1e-14)
    forward = upwards(problem.parameters, problem.x, problem.architecture)
    output = output_error(problem.y, forward.logits, problem.architecture)
    recursion = problem.rule().relaxed(problem.parameters, forward, output)
    torch.testing.assert_close(recursion, truth, **ROUNDING)


@pytest.mark.parametrize(("step_size", "steps"), [(0.5, 60), (0.5, 6), (0.3, 3), (0.8, 1), (1.0, 2), (0.7, None)])
@ALL_READINGS
def test_meta_pcn_has_come_as_far_as_a_binomial_variable(
    reading: dict[str, Any], step_size: float, steps: int | None
) -> None:
    """The error k layers below the output is backprop's times P(at least k successes in T trials of lambda)."""
    rule = {"step_size": step_size, "steps": steps}
    problem = make_problem("meta_pcn", conventions={**reading, "rms_eps": 0.1}, rule=rule)
    trials = 4 if steps is None else steps

    def share(k: int) -> float:
        counts = range(k, trials + 1)
        return sum(math.comb(trials, n) * step_size**n * (1 - step_size) ** (trials - n) for n in counts)

    gradient, errors, matrices = problem.gradient(), backprop_errors(problem), backprop_matrices(problem)
    for i in range(1, 5):
        torch.testing.assert_close(gradient.errors.hidden[i - 1], share(5 - i) * errors[i - 1], **ROUNDING)
    for layer, ours in enumerate(gradient.weights.matrices()):
        torch.testing.assert_close(ours, share(4 - layer) * matrices[layer], **ROUNDING)
    if steps == 60:
        torch.testing.assert_close(gradient.errors.hidden, errors, rtol=0, atol=1e-12)


def to_expected_norm_one(matrix: Tensor) -> float:
    """1 / ((sqrt m + sqrt n) std): one over the spectral norm to expect of independent normal numbers."""
    rows, columns = matrix.shape
    spread = (matrix - matrix.mean()).square().sum() / (rows * columns - 1)
    return 1 / ((math.sqrt(rows) + math.sqrt(columns)) * math.sqrt(spread))


@pytest.mark.parametrize("normalise_output_input", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_normalising_weights_scales_the_logits_by_the_matrices_above_the_last_normalised_state(
    activation: str, normalise_output_input: bool
) -> None:
    """Relu, no bias and no epsilon: the network ignores the scale of the other matrices."""
    conventions = {"activation": activation, "normalise_output_input": normalise_output_input, "rms_eps": 0.0}
    problem = make_problem("meta_pcn", width=16, phi="relu", conventions=conventions)
    before = feedforward(problem.parameters, problem.x, problem.architecture)
    factors = [to_expected_norm_one(matrix) for matrix in problem.parameters.matrices()]
    gain = problem.parameters.gain.clone()
    assert all(abs(factor - 1) > 0.1 for factor in factors)
    meta_pcn.normalise(problem.parameters)
    scale = factors[4] if normalise_output_input else factors[4] * factors[3]
    after = feedforward(problem.parameters, problem.x, problem.architecture)
    torch.testing.assert_close(after, scale * before, **ROUNDING)
    assert before.abs().max() > 0.1
    assert torch.equal(problem.parameters.gain, gain)


@pytest.mark.parametrize("normalise", [False, True])
def test_meta_pcn_normalises_after_the_weight_step(normalise: bool) -> None:
    problem = make_problem("meta_pcn", depth=4, width=200, inputs=300, classes=100, rule={"normalise": normalise})
    parameters = problem.parameters
    stepped = parameters.clone()

    def descend() -> None:
        for tensor, other in zip(parameters.named().values(), stepped.named().values(), strict=True):
            step = 0.1 * torch.randn(tensor.shape, generator=stream(8), dtype=tensor.dtype)
            other.copy_(tensor + step)
            tensor.copy_(other)

    problem.rule().step(parameters, problem.gradient(), 1.0, descend)
    for ours, other in zip(parameters.matrices(), stepped.matrices(), strict=True):
        expected = other * to_expected_norm_one(other) if normalise else other
        torch.testing.assert_close(ours, expected, **ROUNDING)
        if normalise:
            assert torch.linalg.matrix_norm(ours, 2).item() == pytest.approx(1, abs=0.05)
    assert torch.equal(parameters.gain, stepped.gain)


# Precision-guided predictive coding


@pytest.mark.parametrize("step_size", [0.8, 0.5, 1.0])
@pytest.mark.parametrize("steps", [2, 4, 5, 9])
@ALL_READINGS
def test_one_spike_per_layer_carries_the_backprop_error_down(
    reading: dict[str, Any], steps: int, step_size: float
) -> None:
    """C7: k hops below the output dW is backprop's times lambda^k (1 - lambda), or lambda^k where T = k."""
    problem = make_problem(
        "precision",
        conventions={**reading, "rms_eps": 0.1},
        rule={"step_size": step_size, "steps": steps, "off_spike": 0.0, "momentum": 0.0},
    )

    def factor(k: int) -> float:
        if k == 0:
            return 1.0
        return step_size**k * (1 - step_size if steps > k else 1.0 if steps == k else 0.0)

    gradient, errors, matrices = problem.gradient(), backprop_errors(problem), backprop_matrices(problem)
    for i in range(1, 5):
        torch.testing.assert_close(gradient.errors.hidden[i - 1], factor(5 - i) * errors[i - 1], **ROUNDING)
    for layer, ours in enumerate(gradient.weights.matrices()):
        torch.testing.assert_close(ours, factor(4 - layer) * matrices[layer], **ROUNDING)


@pytest.mark.parametrize("step_size", [0.5, 0.8, 0.9, 0.95])
def test_above_a_step_of_one_over_one_plus_the_momentum_the_weights_climb(step_size: float) -> None:
    """k hops below the output dW is (1.1 lambda)^k (1/1.1 - lambda) / 0.9 of backprop, once the states rest."""
    rule = {"step_size": step_size, "steps": 40, "off_spike": 0.0, "momentum": 0.1}
    problem = make_problem("precision", conventions={"rms_eps": 0.1}, rule=rule)
    matrices, errors, gradient = backprop_matrices(problem), backprop_errors(problem), problem.gradient()
    factor = (1 / 1.1 - step_size) / 0.9
    assert (factor < 0) == (step_size > 0.91)
    for k in range(1, 5):
        expected = (1.1 * step_size) ** k * factor
        torch.testing.assert_close(gradient.errors.hidden[4 - k], expected * errors[4 - k], **ROUNDING)
        torch.testing.assert_close(gradient.weights.matrices()[4 - k], expected * matrices[4 - k], **ROUNDING)


def spiking_states(problem: Problem, network: PlainNetwork, steps: int) -> list[Tensor]:
    """All states at every step, by torch's SGD on the energy with precisions, whatever the signal has reached."""
    options, depth = problem.spec.rule, problem.spec.network.depth
    z = [state.requires_grad_() for state in plain_states(network, problem.x)]
    sgd = torch.optim.SGD(z, lr=options.step_size, momentum=0.1, nesterov=True)
    at_arrival, else_ = {"spike": (1.0, 0.02), "literal": (1 / options.step_size, 1.0)}[options.schedule]
    for t in range(steps):
        weighted = torch.zeros((), dtype=torch.float64)
        for i in range(1, depth + 1):
            mu = network.prediction(i - 1, problem.x if i == 1 else z[i - 2])
            error = total_loss(mu, problem) if i == depth else 0.5 * (z[i - 1] - mu).square().sum()
            weighted = weighted + (at_arrival if t == depth - i else else_) * error
        sgd.zero_grad()
        weighted.backward()
        sgd.step()
    return [state.detach() for state in z]


@pytest.mark.parametrize("forward_update", [False, True])
@pytest.mark.parametrize("schedule", ["spike", "literal"])
@pytest.mark.parametrize(("depth", "steps"), [(2, None), (5, 3), (5, None)])
@ALL_READINGS
@pytest.mark.parametrize("kernel", KERNELS)
def test_precision_guided_inference_is_sgd_on_the_weighted_energy(
    kernel: str, reading: dict[str, Any], depth: int, steps: int | None, schedule: str, forward_update: bool
) -> None:
    """With as many steps as L + 3 where there are none given, and the errors of the sweep or of the states."""
    rule = {"step_size": 0.6, "steps": steps, "schedule": schedule, "off_spike": 0.02, "momentum": 0.1}
    conventions = {**reading, "rms_eps": 0.1}
    problem = make_problem(
        "precision", depth=depth, conventions=conventions, rule={**rule, "forward_update": forward_update}
    )
    network = PlainNetwork(problem)
    start = plain_states(network, problem.x)
    end = spiking_states(problem, network, depth + 3 if steps is None else steps)
    below = [problem.x, *(start if forward_update else end)]
    total = total_loss(network.prediction(depth - 1, below[-1]), problem)
    for layer, state in enumerate(end):
        total = total + 0.5 * (state - network.prediction(layer, below[layer])).square().sum()
    network.zero_grad()
    (total / 3).backward()
    assert_gradients_match(problem.gradient(kernel).weights, network, atol=1e-13)


# DKP


@PHIS
@DEPTHS
@ALL_READINGS
def test_dkp_is_an_outer_product_of_the_fed_back_error_and_the_activity(
    reading: dict[str, Any], depth: int, phi: str
) -> None:
    problem = make_problem("dkp", depth=depth, phi=phi, conventions=reading)
    network, rule = PlainNetwork(problem), problem.rule()
    (psi,) = rule.learned.tensors
    output, below = plain_output_error(network, problem), problem.x
    total = -(network.prediction(depth - 1, plain_states(network, problem.x)[-1]) * output).sum()
    for i, state in enumerate(plain_states(network, problem.x), start=1):
        total = total - (network.prediction(i - 1, below) * (output @ psi[i - 1].T)).sum()
        below = state
    (total / 3).backward()
    gradient = rule.gradient(problem.parameters, problem.x, problem.y)
    assert_gradients_match(gradient.weights, network, atol=1e-13)
    (ours,) = gradient.feedback
    for i in range(1, depth):
        h, _ = layers_of(network, problem.x)[i]
        expected = sum(torch.outer(h[sample], output[sample]) for sample in range(3)) / -3
        torch.testing.assert_close(ours[i - 1], expected.detach(), **ROUNDING)


def test_learned_feedback_starts_normal_with_glorots_width() -> None:
    for method in ("dkp", "dkp_pc"):
        drawn = [
            make_problem(method, width=150, classes=50, seed=seed).rule().learned.tensors[0] for seed in (0, 1)
        ]
        assert drawn[0].shape == (4, 150, 50)
        assert_normal(drawn[0], math.sqrt(2 / 200))
        matrices = [matrix for psi in drawn for matrix in psi]
        assert not any(torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i])


def assert_normal(sample: Tensor, std: float) -> None:
    """Moments of independent normal numbers, within five standard deviations."""
    scaled = sample / std
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 4: (3, 96)}.items():
        assert abs(scaled.pow(power).mean() - mean) < 5 * math.sqrt(variance / sample.numel())


@pytest.mark.parametrize("method", ["dkp", "dkp_pc", "lra"])
def test_looking_at_a_gradient_teaches_the_feedback_nothing(method: str) -> None:
    problem = make_problem(method)
    rule, weights = problem.rule(), problem.parameters.clone()
    before = [tensor.clone() for tensor in rule.learned.tensors]
    first = rule.gradient(problem.parameters, problem.x, problem.y)
    second = rule.gradient(problem.parameters, problem.x, problem.y)
    for tensor, start in zip(rule.learned.tensors, before, strict=True):
        assert torch.equal(tensor, start)
    for ours, start in zip(problem.parameters.named().values(), weights.named().values(), strict=True):
        assert torch.equal(ours, start)
    for ours, again in zip(first.feedback, second.feedback, strict=True):
        assert torch.equal(ours, again)
    assert not rule.learned.optimizer.state


LEARNING = {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-6}


@pytest.mark.parametrize(
    ("method", "rule"),
    [("dkp", {}), ("dkp_pc", {"first_lr": 0.01, "feedback_lr": 0.01}), ("lra", {}), ("lra", {"every": 3})],
)
@PHIS
def test_feedback_comes_closer_to_the_transposed_weights_as_both_decay(
    method: str, rule: dict[str, Any], phi: str
) -> None:
    """C9b: both get the same steps, so their difference shrinks by 1 - lr decay in each."""
    problem = make_problem(method, phi=phi, learning=LEARNING, rule=rule)
    learner, parameters = problem.rule(), problem.parameters
    direct, *neighbour = learner.learned.tensors
    pairs = [(parameters.w_out, direct[-1])]
    if neighbour:
        pairs += [(parameters.w_hidden[i - 1], neighbour[0][row]) for row, i in enumerate(learner.neighbour)]
    assert len(pairs) == {"dkp": 1, "dkp_pc": 1, "lra": 3 if rule else 4}[method]
    before = [(w - e.T, w.clone()) for w, e in pairs]
    train(problem, 40, learner)
    for (w, e), (difference, start) in zip(pairs, before, strict=True):
        torch.testing.assert_close(w - e.T, (1 - 0.01 * 0.3) ** 40 * difference, rtol=0, atol=1e-11)
        assert (w - start).abs().max() > 0.05


@pytest.mark.parametrize(
    ("method", "rule", "rate"),
    [
        ("dkp", {}, 0.05),
        ("dkp", {"feedback_lr": 0.2}, 0.2),
        ("dkp_pc", {"feedback_lr": 0.2}, 0.2),
        ("lra", {}, 0.05),
    ],
)
def test_weights_move_first_and_the_feedback_after_them(method: str, rule: dict[str, Any], rate: float) -> None:
    """DKP-PC has a step of its own before AdamW's. The first step of AdamW is lr g / (|g| + eps)."""
    problem = make_problem(method, learning=LEARNING, rule=rule)
    learner, parameters, weights = problem.rule(), problem.parameters, problem.parameters.clone()
    psi = [tensor.clone() for tensor in learner.learned.tensors]
    gradient = learner.gradient(parameters, problem.x, problem.y)
    assert (gradient.first is not None) == (method == "dkp_pc")
    calls = []

    def descend() -> None:
        calls.append(1)
        for name, tensor in parameters.named().items():
            change = 0 if gradient.first is None else gradient.first.named()[name]
            torch.testing.assert_close(tensor, weights.named()[name] + change, rtol=0, atol=0)
        for tensor, start in zip(learner.learned.tensors, psi, strict=True):
            assert torch.equal(tensor, start)

    learner.step(parameters, gradient, 0.05, descend)
    assert calls == [1]
    for tensor, start, g in zip(learner.learned.tensors, psi, gradient.feedback, strict=True):
        expected = (1 - rate * 0.3) * start - rate * g / (g.abs() + 1e-6)
        torch.testing.assert_close(tensor, expected, **ROUNDING)


# DKP-PC


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
    assert gradient.first is not None
    assert_gradients_match(gradient.first, network, atol=1e-14)

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
    """C10, linear: eps_l = -eta |h_{l-1}|^2 Psi_l eps_L, and without inference the last step is the first times
    -|h_l|^2.
    """
    eta = 1e-3
    problem = linear_problem("dkp_pc", batch=1, first_lr=eta, steps=0)
    (psi,) = (learner := problem.rule()).learned.tensors
    gradient = learner.gradient(problem.parameters, problem.x, problem.y)
    assert gradient.first is not None
    below, squares = problem.x, []
    for matrix in problem.parameters.matrices():
        squares.append(below.square().sum().item())
        below = below @ matrix.T
    output = problem.y - below.softmax(-1)
    assert output.abs().max() > 0.1
    for i in range(1, 5):
        expected = -eta * squares[i - 1] * output @ psi[i - 1].T
        torch.testing.assert_close(gradient.errors.hidden[i - 1], expected, rtol=0, atol=1e-15)
    first, last = gradient.first.matrices(), gradient.weights.matrices()
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
        assert not ours.first.named()[name].any()
    torch.testing.assert_close(ours.errors.hidden, theirs.errors.hidden, rtol=0, atol=1e-14)
    torch.testing.assert_close(ours.errors.output, theirs.errors.output, rtol=0, atol=1e-14)


# LRA


@pytest.mark.parametrize(
    ("depth", "every", "direct"),
    [
        (6, 0, [5]),
        (6, 1, [1, 2, 3, 4, 5]),
        (6, 2, [2, 4, 5]),
        (6, 3, [3, 5]),
        (7, 3, [3, 6]),
        (2, 0, [1]),
        (2, 2, [1]),
    ],
)
@ALL_READINGS
def test_lra_aligns_layers_with_targets_below_them(
    reading: dict[str, Any], depth: int, every: int, direct: list[int]
) -> None:
    """e_l = phi(a_l) - phi(a_l - beta d_l), the error fed back from the output to the layers of `direct`."""
    rule, conventions = {"every": every, "beta": 0.4, "gamma": 0.7}, {**reading, "rms_eps": 0.1}
    problem = make_problem("lra", depth=depth, conventions=conventions, rule=rule)
    network, learner = PlainNetwork(problem), problem.rule()
    neighbour = [i for i in range(1, depth) if i not in direct]
    feedback = {
        **dict(zip(direct, learner.learned.tensors[0], strict=True)),
        **dict(zip(neighbour, learner.learned.tensors[1], strict=True)),
    }
    layers = layers_of(network, problem.x)
    outer = network.nonlinearity if reading["activation"] in ("post", "both") else lambda a: a
    e = {depth: -plain_output_error(network, problem)}
    for i in range(depth - 1, 0, -1):
        a = layers[i - 1][1].detach()
        d = e[depth if i in direct else i + 1] @ feedback[i].T
        e[i] = outer(a) - outer(a - 0.4 * d)
    (sum((a * e[layer + 1]).sum() for layer, (_, a) in enumerate(layers)) / 3).backward()

    gradient = learner.gradient(problem.parameters, problem.x, problem.y)
    torch.testing.assert_close(gradient.errors.hidden, -torch.stack([e[i] for i in range(1, depth)]), **ROUNDING)
    torch.testing.assert_close(gradient.errors.output, -e[depth], **ROUNDING)
    assert_gradients_match(gradient.weights, network, atol=1e-13)
    found = dict(zip([*direct, *neighbour], [m for stack in gradient.feedback for m in stack], strict=True))
    for i in range(1, depth):
        source = e[depth if i in direct else i + 1]
        expected = 0.7 * layers[i][0].detach().T @ source / 3
        torch.testing.assert_close(found[i], expected, **ROUNDING)


def test_lra_with_transposed_weights_is_backprop_of_a_linear_network() -> None:
    """C12: e_l = beta^{L-l} dl/dz_l."""
    problem = linear_problem("lra", beta=0.1)
    learner, parameters = problem.rule(), problem.parameters
    direct, neighbour = learner.learned.tensors
    direct.copy_(parameters.w_out.T.unsqueeze(0))
    neighbour.copy_(parameters.w_hidden.transpose(1, 2))
    gradient = learner.gradient(parameters, problem.x, problem.y)
    matrices = parameters.matrices()
    slope = torch.linalg.multi_dot([problem.x, *(matrix.T for matrix in matrices)]).softmax(-1) - problem.y
    for i in range(4, 0, -1):
        slope = slope @ matrices[i]
        assert slope.abs().max() > 1e-3
        torch.testing.assert_close(-gradient.errors.hidden[i - 1], 0.1 ** (5 - i) * slope, rtol=0, atol=1e-15)


@ALL_READINGS
def test_lra_moves_its_feedback_as_the_transposed_weights(reading: dict[str, Any]) -> None:
    """Kolen-Pollack: gamma times the gradient of W, transposed."""
    gradient = make_problem("lra", conventions=reading, rule={"gamma": 0.5}).gradient()
    direct, neighbour = gradient.feedback
    torch.testing.assert_close(direct[0], 0.5 * gradient.weights.w_out.T, **ROUNDING)
    torch.testing.assert_close(neighbour, 0.5 * gradient.weights.w_hidden.transpose(1, 2), **ROUNDING)
    assert min(matrix.abs().max() for matrix in (*direct, *neighbour)) > 1e-4


def from_the_output_only(reading: dict[str, Any], beta: float) -> tuple[Parameters, Parameters]:
    """The gradients of rec-LRA with m = 1, and of DFA with the same matrices; over beta, but for the output's."""
    rule = {"every": 1, "learned": False, "beta": beta}
    problem = make_problem("lra", conventions={**reading, "rms_eps": 0.1}, rule=rule)
    learner, direct = problem.rule(), make_problem("dfa", conventions={**reading, "rms_eps": 0.1}).rule()
    direct.feedback = beta * learner.learned.tensors[0].transpose(1, 2)
    ours, theirs = (r.gradient(problem.parameters, problem.x, problem.y).weights for r in (learner, direct))
    for gradient in (ours, theirs):
        gradient.w_in.div_(beta)
        gradient.w_hidden.div_(beta)
    return ours, theirs


@pytest.mark.parametrize("reading", [r for r in READINGS if r["activation"] in ("post", "both")], ids=name_of)
def test_lra_from_the_output_is_direct_feedback_to_first_order(reading: dict[str, Any]) -> None:
    distances = []
    for beta in (1e-3, 1e-4):
        ours, theirs = from_the_output_only(reading, beta)
        pairs = zip(ours.matrices()[:-1], theirs.matrices()[:-1], strict=True)
        distances.append([((a - b).norm() / b.norm()).item() for a, b in pairs])
        torch.testing.assert_close(ours.w_out, theirs.w_out, **ROUNDING)
    ratios = [larger / smaller for larger, smaller in zip(*distances, strict=True)]
    assert ratios == pytest.approx([10] * 4, rel=0.05)
    assert max(distances[1]) < 1e-3


@pytest.mark.parametrize("reading", [r for r in READINGS if r["activation"] in ("pre", "pre_norm")], ids=name_of)
def test_lra_from_the_output_is_direct_feedback_where_phi_stands_before_the_matrix(
    reading: dict[str, Any],
) -> None:
    """There a target has no phi to go through."""
    ours, theirs = from_the_output_only(reading, beta=0.3)
    for a, b in zip(ours.matrices(), theirs.matrices(), strict=True):
        torch.testing.assert_close(a, b, **ROUNDING)


def test_fixed_feedback_stays_as_drawn() -> None:
    problem = make_problem("lra", width=100, classes=100, rule={"every": 2, "learned": False})
    learner = problem.rule()
    direct, neighbour = learner.learned.tensors
    assert direct.shape == neighbour.shape == (2, 100, 100)
    before = torch.cat([direct, neighbour])
    assert_normal(before, 1.0)
    assert not any(torch.equal(a, b) for i, a in enumerate(before) for b in before[:i])
    assert learner.gradient(problem.parameters, problem.x, problem.y).feedback == ()
    weights = problem.parameters.w_in.clone()
    optimizer = optimisation.weight_optimizer(problem.spec, problem.parameters)
    gradient = learner.gradient(problem.parameters, problem.x, problem.y)

    def descend() -> None:
        optimisation.apply(optimizer, problem.parameters, gradient.weights, 0.1)

    learner.step(problem.parameters, gradient, 0.1, descend)
    assert torch.equal(torch.cat([*learner.learned.tensors]), before)
    assert not torch.equal(problem.parameters.w_in, weights)


# muPC


class ScaledNetwork:
    """muPC's network with its scalings written out: W is what is drawn and learnt, a_l W what a state meets."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.rule = problem, problem.spec.rule
        matrices = problem.parameters.matrices()
        depth, (width, inputs) = len(matrices), matrices[0].shape
        hidden = 1 / math.sqrt(width * depth) if self.rule.skips else 1 / math.sqrt(width)
        self.a = [1 / math.sqrt(inputs), *[hidden] * (depth - 2), 1 / width]
        self.weights = [(w / a).requires_grad_() for w, a in zip(matrices, self.a, strict=True)]

    def prediction(self, layer: int, z: Tensor) -> Tensor:
        phi: Callable[[Tensor], Tensor] = {"relu": torch.relu, "tanh": torch.tanh}[self.problem.spec.network.phi]
        product = self.a[layer] * (phi(z) if layer > 0 else z) @ self.weights[layer].T
        return product + z if self.rule.skips and 0 < layer < len(self.a) - 1 else product

    def energy(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """The batch mean."""
        below = [x, *z]
        logits = self.prediction(len(z), z[-1])
        total = 0.5 * (y - logits).square().sum() if self.rule.loss == "squared" else total_of(logits, y)
        for layer, state in enumerate(z):
            total = total + 0.5 * (state - self.prediction(layer, below[layer])).square().sum()
        return total / len(x)

    def relaxed(self, x: Tensor, y: Tensor, steps: int) -> Tensor:
        states, below = [], x
        for layer in range(len(self.a) - 1):
            below = self.prediction(layer, below).detach()
            states.append(below)
        z = torch.stack(states)
        for _ in range(steps):
            z.requires_grad_()
            (slope,) = torch.autograd.grad(self.energy(x, y, z), [z])
            z = z.detach() - self.rule.step_size * slope
        return z


def total_of(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y, reduction="sum")


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize(("depth", "steps"), [(2, None), (5, None), (5, 3)])
@PHIS
@pytest.mark.parametrize("kernel", KERNELS)
def test_mupc_is_adam_on_unscaled_weights_of_a_network_with_scalings(
    kernel: str, phi: str, depth: int, steps: int | None, skips: bool, loss: str
) -> None:
    """Inference and several updates, by autograd and torch's AdamW on W; T is L where it is not given."""
    problem = make_problem(
        "mupc",
        depth=depth,
        phi=phi,
        learning={"lr": 0.05, "weight_decay": 0.3, "eps": 1e-3},
        rule={"step_size": 0.6, "steps": steps, "skips": skips, "loss": loss},
    )
    network, rule, parameters = ScaledNetwork(problem), problem.rule(kernel), problem.parameters
    theirs = torch.optim.AdamW(network.weights, lr=0.05, weight_decay=0.3, eps=1e-3)
    ours = optimisation.weight_optimizer(problem.spec, parameters)
    for update, (x, y) in enumerate(batches(problem, 6)):
        gradient = rule.gradient(parameters, x, y, update)
        z = network.relaxed(x, y, depth if steps is None else steps)
        for layer, below in enumerate([x, *z[:-1]]):
            error = z[layer] - network.prediction(layer, below).detach()
            torch.testing.assert_close(gradient.errors.hidden[layer], error, **ROUNDING)
        logits = network.prediction(depth - 1, z[-1]).detach()
        output = y - (logits if loss == "squared" else logits.softmax(-1))
        torch.testing.assert_close(gradient.errors.output, output, **ROUNDING)

        lr = 0.05 / (1 + update)
        for group in theirs.param_groups:
            group["lr"] = lr
        theirs.zero_grad()
        network.energy(x, y, z).backward()
        for mine, weight, a in zip(gradient.weights.matrices(), network.weights, network.a, strict=True):
            torch.testing.assert_close(mine, weight.grad / a, **ROUNDING)
        theirs.step()
        optimisation.apply(ours, parameters, gradient.weights, lr)
        for mine, weight, a in zip(parameters.matrices(), network.weights, network.a, strict=True):
            torch.testing.assert_close(mine, a * weight.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("skips", [True, False])
def test_mupc_draws_the_standard_weights_times_its_factors(skips: bool) -> None:
    """Standard is N(0, 1/fan_in): a_1 sqrt D = 1, a sqrt N = 1 or 1/sqrt L with skips, a_L sqrt N = 1/sqrt N."""
    depth, width = 6, 9
    sizes = {"depth": depth, "width": width}
    ours = initialise(make_spec("mupc", **sizes, rule={"skips": skips}), INPUTS, CLASSES)
    standard = initialise(make_spec("pc", **sizes), INPUTS, CLASSES)
    torch.testing.assert_close(ours.w_in, standard.w_in, **ROUNDING)
    factor = depth**-0.5 if skips else 1.0
    torch.testing.assert_close(ours.w_hidden, factor * standard.w_hidden, **ROUNDING)
    torch.testing.assert_close(ours.w_out, width**-0.5 * standard.w_out, **ROUNDING)
    assert ours.gain.shape == (0, width)


@PHIS
def test_mupc_without_skips_is_predictive_coding_without_normalisation(phi: str) -> None:
    rule = {"skips": False, "loss": "cross_entropy", "step_size": 0.6, "steps": 4}
    problem = make_problem("mupc", phi=phi, rule=rule)
    inference = {"optimizer": "euler", "step_size": 0.6, "steps": 4}
    pc = make_spec("pc", phi=phi, inference=inference, conventions={"activation": "pre", "state_gradient": "mean"})
    arguments = problem.parameters, problem.x, problem.y
    theirs = methods.rule("pc")(pc, problem.parameters, "batched").gradient(*arguments)
    ours = problem.gradient()
    for a, b in zip(ours.weights.matrices(), theirs.weights.matrices(), strict=True):
        torch.testing.assert_close(a, b, **ROUNDING)
        assert b.any()
    torch.testing.assert_close(ours.logits, theirs.logits, **ROUNDING)


def rms_of_states(skips: bool, seed: int) -> list[float]:
    spec = make_spec("mupc", depth=64, width=128, phi="relu", rule={"skips": skips}, seed=seed)
    x = torch.randn(16, 784, generator=stream(seed), dtype=torch.float64)
    states, _ = sweep(initialise(spec, inputs=784, classes=10), x, Architecture.of(spec))
    return [z.square().mean().sqrt().item() for z in states]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_skips_keep_the_activity_of_mupc_alive(seed: int) -> None:
    """C15: without them relu halves the mean square at every layer, E rms^2 = 2^{1-l}."""
    with_skips, without = rms_of_states(True, seed), rms_of_states(False, seed)
    assert len(with_skips) == 63
    assert all(0.5 < rms < 3 for rms in with_skips)
    for layer in (1, 16, 32, 63):
        # Of one layer's factor on the rms the spread is some sqrt(5 / 4N), and this is four of it.
        spread = 4 * math.sqrt(5 / (4 * 128) * layer)
        assert abs(math.log(without[layer - 1]) - (1 - layer) / 2 * math.log(2)) < spread


# What a rule learns beside the weights


def test_learned_matrices_go_on_from_a_checkpoint_as_if_nothing_had_happened() -> None:
    noise = stream(6)
    shapes = [(2, 3, 4), (0, 3, 3), (5,)]
    start = [torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes]
    steps = [tuple(torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes) for _ in range(6)]
    settings = Learning(0.1, weight_decay=0.2, eps=1e-4)

    def learn(learned: Learned, gradients: list[tuple[Tensor, ...]]) -> None:
        for update, gradient in enumerate(gradients):
            learned.step(gradient, 0.1 / (1 + update))

    unbroken = Learned(settings, *(tensor.clone() for tensor in start))
    learn(unbroken, steps[:3])
    file = io.BytesIO()
    torch.save(unbroken.state(), file)
    file.seek(0)
    resumed = Learned(settings, *(torch.zeros_like(tensor) for tensor in start))
    resumed.restore(torch.load(file, weights_only=True))
    learn(unbroken, steps[3:])
    learn(resumed, steps[3:])
    for ours, theirs, before in zip(resumed.tensors, unbroken.tensors, start, strict=True):
        assert torch.equal(ours, theirs)
        assert not len(before) or (ours - before).abs().min() > 1e-3


def test_learned_matrices_descend_as_torchs_adamw_does() -> None:
    start = torch.randn(3, 4, generator=stream(6), dtype=torch.float64)
    learned = Learned(Learning(0.1, weight_decay=0.2, eps=1e-2), start.clone())
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=1.0, weight_decay=0.2, eps=1e-2)
    for update in range(4):
        gradient = torch.randn(3, 4, generator=stream(10 + update), dtype=torch.float64)
        learned.step((gradient,), 0.1 / (1 + update))
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + update)
        theirs.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(learned.tensors[0], theirs.detach(), **ROUNDING)
