"""muPC: its network, inference and updates by autograd and torch's AdamW."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways import methods
from highways.methods import weight_step
from highways.model.network import Architecture, initialise, sweep
from networks import CLASSES, INPUTS, KERNELS, Problem, make_problem, make_spec, stream
from rules import PHIS, ROUNDING, batches


class ScaledNetwork:
    """muPC's network with its factors written out: W is drawn and learnt, a_l W multiplies a state."""

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
        """The energy, averaged over the batch."""
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
    """Inference and six updates against autograd and torch's AdamW on W; T = L where `steps` is None."""
    problem = make_problem(
        "mupc",
        depth=depth,
        phi=phi,
        learning={"lr": 0.05, "weight_decay": 0.3, "eps": 1e-3},
        rule={"step_size": 0.6, "steps": steps, "skips": skips, "loss": loss},
    )
    network, rule, parameters = ScaledNetwork(problem), problem.rule(kernel), problem.parameters
    theirs = torch.optim.AdamW(network.weights, lr=0.05, weight_decay=0.3, eps=1e-3)
    ours = weight_step.weight_optimizer(problem.spec, parameters)
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
        weight_step.apply(ours, parameters, gradient.weights, lr)
        for mine, weight, a in zip(parameters.matrices(), network.weights, network.a, strict=True):
            torch.testing.assert_close(mine, a * weight.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("skips", [True, False])
def test_mupc_draws_the_standard_weights_times_its_factors(skips: bool) -> None:
    """Times N(0, 1/fan_in): a_1 sqrt D = 1, a sqrt N = 1 (1/sqrt L with skips), a_L sqrt N = 1/sqrt N."""
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
    """Without them relu halves the mean square at every layer, E rms^2 = 2^{1-l}."""
    with_skips, without = rms_of_states(True, seed), rms_of_states(False, seed)
    assert len(with_skips) == 63
    assert all(0.5 < rms < 3 for rms in with_skips)
    for layer in (1, 16, 32, 63):
        # One layer's factor on the rms has a standard deviation of some sqrt(5 / 4N); four are allowed.
        spread = 4 * math.sqrt(5 / (4 * 128) * layer)
        assert abs(math.log(without[layer - 1]) - (1 - layer) / 2 * math.log(2)) < spread


def test_the_signal_of_mupc_is_lost_in_rounding_some_layers_below_the_output() -> None:
    """The published step of 0.5 on a batch mean is lambda = 0.5 / B. With J near the identity of the skips and a
    constant output error, eps k layers below the top is C(T, k + 1) / T lambda^k of the top's. In float32 a
    move of 1e-8 leaves a state of order 1 as it is, so the matrices further down learn nothing at all.
    """
    settings: dict[str, Any] = {"depth": 32, "width": 128, "batch": 128, "inputs": 784, "phi": "relu"}
    step = 0.5
    wide = make_problem("mupc", **settings, rule={"step_size": step}).gradient()
    sizes = wide.errors.hidden.square().mean((1, 2)).sqrt().flip(0)
    for k in range(7):
        expected = math.comb(32, k + 1) / 32 * (step / 128) ** k
        assert sizes[k] / sizes[0] == pytest.approx(expected, rel=0.15)
    single = make_problem("mupc", **settings, dtype="float32", rule={"step_size": step}).gradient()
    moved = [bool(matrix.any()) for matrix in single.weights.matrices()]
    assert not any(moved[:24])
    assert all(moved[28:])
