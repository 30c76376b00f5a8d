"""The E-step: where it starts, how signals travel, where it ends, and that all kernels agree."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from highways import inference
from highways.inference import exact_float32, reference
from highways.inference.optimizer import state_optimizer
from highways.methods.feedback import feedback_matrices
from highways.model.energy import Schedule, errors, state_gradient
from highways.model.network import feedforward, first_prediction
from highways.specs.run import Inference
from networks import ACTIVATIONS, KERNELS, PlainNetwork, Problem, backprop_errors, make_problem, name_of, stream

ALL_KERNELS = pytest.mark.parametrize("kernel", KERNELS)
OPTIMIZERS = pytest.mark.parametrize("optimizer", ["euler", "adam"])
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


def predictions_of(problem: Problem, z: Tensor, kernel: str) -> Tensor:
    """mu_1..mu_{L-1} as the kernel itself computes them."""
    if kernel == "batched":
        return problem.predict(z).mu
    below = [problem.x, *z[:-1]]
    layers = enumerate(below)
    return torch.stack(
        [reference.prediction(problem.parameters, layer, state, problem.architecture) for layer, state in layers]
    )


def gradient_at(problem: Problem, z: Tensor) -> Tensor:
    predictions = problem.predict(z)
    error = errors(z, problem.y, predictions, problem.architecture)
    return state_gradient(problem.parameters, predictions, error, problem.architecture, problem.highways)


# Where the states start


@ALL_KERNELS
@DTYPES
@pytest.mark.parametrize("activation", ["pre", "post"])
@pytest.mark.parametrize("batch", [1, 80])
@pytest.mark.parametrize("width", [13, 37])
@pytest.mark.parametrize("depth", [2, 3, 8, 33])
def test_states_start_at_their_predictions_bit_for_bit(
    kernel: str, dtype: str, activation: str, batch: int, width: int, depth: int
) -> None:
    problem = make_problem(
        depth=depth,
        width=width,
        phi="relu",
        batch=batch,
        inputs=29,
        dtype=dtype,
        conventions={"activation": activation, "bias": activation == "post"},
    )
    initial, _ = problem.relax(kernel, steps=1)
    assert torch.equal(predictions_of(problem, initial, kernel), initial)


@ALL_KERNELS
def test_states_start_at_the_feedforward_sweep(kernel: str) -> None:
    problem = make_problem()
    initial, _ = problem.relax(kernel)
    expected = feedforward(problem.parameters, problem.x, problem.architecture)
    torch.testing.assert_close(problem.predict(initial).logits, expected, rtol=0, atol=1e-13)


@ALL_KERNELS
def test_a_rounded_start_leaves_errors_of_the_size_of_rounding(kernel: str) -> None:
    settings: dict[str, Any] = {"depth": 9, "width": 37, "batch": 80, "conventions": {"initial_state": "rounded"}}
    single = make_problem(**settings, dtype="float32")
    initial, _ = single.relax(kernel)
    error = (initial - predictions_of(single, initial, kernel)).abs().amax((1, 2))
    assert initial.dtype == torch.float32
    assert (error > 0).all()
    # products of 37 terms of size 1 are off by at most 37 * 6e-8, plus the rounding of the states
    assert error.max() < 5e-6
    double = make_problem(**settings)
    initial, _ = double.relax(kernel)
    assert (initial - predictions_of(double, initial, kernel)).abs().max() < 1e-14


# How signals travel


@ALL_KERNELS
@pytest.mark.parametrize("state_gradient", ["sum", "mean"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_wavefront_carries_the_backprop_error_damped_once_per_layer(
    kernel: str, state_gradient: str, activation: str
) -> None:
    """After t steps of gradient descent eps_{L-t} = lambda^t (-dl/dz_{L-t}), and no layer below has moved."""
    depth, step_size, batch = 6, 0.3, 3
    conventions = {"state_gradient": state_gradient, "activation": activation}
    problem = make_problem(depth=depth, batch=batch, phi="relu", conventions=conventions)
    expected = backprop_errors(problem)
    rate = step_size / batch if state_gradient == "mean" else step_size
    for t in range(1, depth):
        _, final = problem.relax(kernel, step_size=step_size, steps=t)
        error = final - predictions_of(problem, final, kernel)
        front = depth - t - 1  # row of layer L-t
        assert expected[front].abs().max() > 1e-3
        # states of size 1 are rounded to 1e-16 per step, and the error is their difference
        torch.testing.assert_close(error[front], rate**t * expected[front], rtol=1e-12, atol=1e-14)
        assert not error[:front].any()


@ALL_KERNELS
@OPTIMIZERS
@DTYPES
def test_layers_that_no_signal_has_reached_have_errors_of_exactly_zero(
    kernel: str, optimizer: str, dtype: str
) -> None:
    depth, steps = 12, 4
    problem = make_problem(
        depth=depth,
        width=13,
        phi="relu",
        batch=5,
        dtype=dtype,
        conventions={"state_gradient": "sum"},
        inference={"optimizer": optimizer, "step_size": 0.5 if optimizer == "euler" else 0.005},
    )
    initial, final = problem.relax(kernel, steps=steps)
    error = final - predictions_of(problem, final, kernel)
    unreached = depth - 1 - steps
    assert not error[:unreached].any()
    assert torch.equal(final[:unreached], initial[:unreached])
    assert error[unreached:].abs().amax((1, 2)).gt(0).all()


@ALL_KERNELS
def test_the_first_nudge_of_a_highway_is_the_projected_output_error(kernel: str) -> None:
    """One step of gradient descent: eps_i = -lambda alpha V_i eps_L in S, exactly zero elsewhere below L-1."""
    step_size, alpha, endpoints = 0.3, 2.0, (1, 3, 5)
    problem = make_problem(
        "hep",
        depth=7,
        conventions={"state_gradient": "sum"},
        highway={"alpha": alpha, "every": 2},
        inference={"step_size": step_size, "steps": 1},
    )
    initial, final = problem.relax(kernel)
    p = feedforward(problem.parameters, problem.x, problem.architecture).softmax(-1)
    feedback = feedback_by_layer(problem)
    assert tuple(feedback) == endpoints
    moved = final - initial
    for layer in range(1, 6):
        if layer in endpoints:
            nudge = -step_size * alpha * (problem.y - p) @ feedback[layer].T
            torch.testing.assert_close(moved[layer - 1], nudge, rtol=0, atol=1e-15)
            assert nudge.abs().max() > 1e-3
        else:
            assert not moved[layer - 1].any()


def feedback_by_layer(problem: Problem) -> dict[int, Tensor]:
    """V_i of every endpoint i, (N, C)."""
    matrices = feedback_matrices(problem.spec, problem.y.shape[1])
    return dict(zip(problem.spec.endpoints, matrices, strict=True))


# Where they end


@ALL_KERNELS
@pytest.mark.parametrize("every", [1, 2, 3])
def test_equilibrium_errors_satisfy_the_highway_fixed_point(kernel: str, every: int) -> None:
    """eps_i = J_i^T eps_{i+1} - alpha V_i eps_L for i in S, and without the last term elsewhere.

    Soft targets and small gains keep the energy well conditioned, so that descent reaches 1e-15 soon.
    """
    alpha = 1.5
    problem = make_problem(
        "hep",
        depth=4,
        initialisation="orthogonal",
        highway={"alpha": alpha, "every": every},
        conventions={"state_gradient": "sum"},
        inference={"step_size": 0.25, "steps": 1000},
    )
    problem.parameters.gain.mul_(0.5)
    problem.y.mul_(0.6).add_(0.1)
    _, final = problem.relax(kernel)
    network, feedback = PlainNetwork(problem), feedback_by_layer(problem)
    z = [problem.x, *final]
    eps = {i: z[i] - network.prediction(i - 1, z[i - 1]).detach() for i in range(1, 4)}
    eps[4] = problem.y - network.prediction(3, z[3]).detach().softmax(-1)
    for i in range(1, 4):
        state = z[i].clone().requires_grad_()
        (expected,) = torch.autograd.grad(network.prediction(i, state), state, eps[i + 1])
        if i in feedback:
            expected = expected - alpha * eps[4] @ feedback[i].T
        torch.testing.assert_close(eps[i], expected, rtol=0, atol=1e-12)
        assert eps[i].abs().max() > 1e-2


@ALL_KERNELS
def test_inference_lowers_the_energy(kernel: str) -> None:
    problem = make_problem(conventions={"state_gradient": "sum"})
    network = PlainNetwork(problem)
    values = []
    for steps in (1, 2, 4, 8, 16):
        initial, final = problem.relax(kernel, step_size=0.01, steps=steps)
        values.append(network.energy(problem.x, problem.y, final).item())
    start = network.energy(problem.x, problem.y, initial).item()
    assert sorted([start, *values], reverse=True) == [start, *values]


# Euler and Adam


def test_euler_goes_down_the_gradient() -> None:
    update = state_optimizer(Inference("euler", step_size=0.25, steps=1), torch.zeros(2))
    z, gradient = torch.tensor([1.0, 2.0]), torch.tensor([4.0, -8.0])
    update(z, gradient, 1)
    assert torch.equal(z, torch.tensor([0.0, 4.0]))


def test_the_first_adam_step_is_the_gradient_over_its_size_plus_eps() -> None:
    step_size, eps = 0.005, 1e-8
    gradient = torch.tensor([1e-3, -4e-7, 4e-10, 0.0], dtype=torch.float64)
    z = torch.zeros(4, dtype=torch.float64)
    state_optimizer(Inference("adam", step_size=step_size, steps=1, eps=eps), z)(z, gradient, 1)
    expected = -step_size * gradient / (gradient.abs() + eps)
    torch.testing.assert_close(z, expected, rtol=1e-14, atol=0)
    assert abs(z[2]) < 0.04 * step_size  # a gradient far below eps hardly moves its state


@ALL_KERNELS
@pytest.mark.parametrize("eps", [1e-4, 1e-2])
def test_the_states_move_as_torch_adam_moves_them(kernel: str, eps: float) -> None:
    steps, step_size = 12, 0.01
    problem = make_problem(
        "hep",
        batch=4,
        inference={"optimizer": "adam", "step_size": step_size, "steps": steps, "eps": eps},
    )
    initial, final = problem.relax(kernel)
    z = initial.clone().requires_grad_()
    adam = torch.optim.Adam([z], lr=step_size, eps=eps)
    for _ in range(steps):
        z.grad = gradient_at(problem, z.detach()) / 4
        adam.step()
    # An update divides by at least eps, so it turns a rounding of 1e-15 into step_size * 1e-15 / 1e-4 = 1e-13:
    # over a dozen steps 1e-12, and a hundred times that as the dynamics amplify it.
    torch.testing.assert_close(final, z.detach(), rtol=0, atol=1e-10)
    assert (final - initial).abs().amax((1, 2)).gt(step_size).all()


@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_adam_on_given_gradients_is_torch_adam(eps: float) -> None:
    inference = Inference("adam", step_size=0.01, steps=1, eps=eps)
    gradients = torch.randn(30, 7, generator=stream(0)).double() * torch.logspace(-6, 0, 7).double()
    ours, theirs = torch.zeros(7).double(), torch.zeros(7).double().requires_grad_()
    update = state_optimizer(inference, ours)
    adam = torch.optim.Adam([theirs], lr=0.01, eps=eps)
    for t, gradient in enumerate(gradients, start=1):
        update(ours, gradient.clone(), t)
        theirs.grad = gradient.clone()
        adam.step()
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-14)


@ALL_KERNELS
def test_the_batch_mean_with_a_longer_step_is_the_batch_sum(kernel: str) -> None:
    """A batch of 4 scales by powers of two, so nothing is rounded differently."""
    step_size, batch = 0.05, 4
    finals = [
        make_problem(
            "hep",
            batch=batch,
            conventions={"state_gradient": reduction},
            inference={"step_size": step, "steps": 10},
        ).relax(kernel)[1]
        for reduction, step in (("mean", batch * step_size), ("sum", step_size))
    ]
    assert torch.equal(*finals)


@ALL_KERNELS
def test_adam_without_eps_does_not_feel_the_scale_of_the_gradient(kernel: str) -> None:
    settings = {"optimizer": "adam", "step_size": 0.01, "steps": 10}
    mean, total, large_eps = (
        make_problem(
            "hep", batch=4, conventions={"state_gradient": reduction}, inference={**settings, "eps": eps}
        ).relax(kernel)[1]
        for reduction, eps in (("mean", 1e-30), ("sum", 1e-30), ("sum", 0.1))
    )
    torch.testing.assert_close(mean, total, rtol=0, atol=1e-10)
    assert (total - large_eps).abs().max() > 1e-3


# All kernels agree

HIGHWAYS: list[dict[str, Any]] = [
    {},
    {"every": 1},
    {"every": 2},
    {"every": 3},
    {"every": 1, "highway_layers": "without_first"},
]


@OPTIMIZERS
@pytest.mark.parametrize(("dtype", "phi"), [("float64", "tanh"), ("float64", "relu"), ("float32", "tanh")])
@pytest.mark.parametrize("highway", HIGHWAYS, ids=lambda highway: name_of(highway) or "none")
@pytest.mark.parametrize("state_gradient", ["mean", "sum"])
@pytest.mark.parametrize("bias", [False, True], ids=["no_bias", "bias"])
@pytest.mark.parametrize("normalise", [False, True], ids=["plain_output", "normalised_output"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_kernels_agree(
    activation: str,
    normalise: bool,
    bias: bool,
    state_gradient: str,
    highway: dict[str, Any],
    dtype: str,
    phi: str,
    optimizer: str,
) -> None:
    """Up to rounding, amplified by the dynamics.

    A gradient is a sum of some dozens of terms of size 1 to 10, so two ways of adding it up differ by about
    20 u (u: the precision). Euler passes that on times its step of 0.1. So does Adam here: the slope of its
    update is at most step / eps = 0.1 (at the paper's eps of 1e-8 it would turn the rounding of a gradient
    near zero into a step of full size, in any two correct implementations). A step multiplies earlier
    differences by at most 1 + 0.1 ||H|| with a Hessian H of norm 10 to 20: 3^4 over 4 steps. In all 2000 u.
    The kink of relu would add the risk of a unit that is active in one kernel only: negligible in float64,
    where a state lies so close to the kink with a probability of about 1e-12, but not over all these cases
    in float32. Every layer has been reached after the 4 steps; in float64 by signals far above rounding.
    """
    problem = make_problem(
        "hep" if highway else "pc",
        depth=5,
        width=7,
        phi=phi,
        dtype=dtype,
        conventions={
            "activation": activation,
            "normalise_output_input": normalise,
            "bias": bias,
            "state_gradient": state_gradient,
            "highway_layers": highway.get("highway_layers", "all"),
        },
        highway={"every": highway.get("every", 1)},
        inference={"optimizer": optimizer, "step_size": 0.1 if optimizer == "euler" else 0.05, "eps": 0.5},
    )
    tolerance = 2000 * torch.finfo(problem.x.dtype).eps
    (initial_1, final_1), (initial_2, final_2) = (problem.relax(kernel) for kernel in KERNELS)
    torch.testing.assert_close(initial_1, initial_2, rtol=0, atol=tolerance)
    torch.testing.assert_close(final_1, final_2, rtol=0, atol=tolerance)
    moved = (final_2 - initial_2).abs().amax((1, 2))
    assert (moved if dtype == "float64" else moved[-1:]).gt(2 * tolerance).all()


@pytest.mark.parametrize("method", ["pc", "hep"])
def test_the_kernels_agree_on_the_default_network_in_single_precision(method: str) -> None:
    """The tolerance of `test_the_kernels_agree`, on a batch too small to meet the kink of relu."""
    problem = make_problem(method, phi="relu", dtype="float32", inference={"step_size": 0.1})
    finals = [problem.relax(kernel)[1] for kernel in KERNELS]
    torch.testing.assert_close(*finals, rtol=0, atol=2000 * torch.finfo(torch.float32).eps)


@ALL_KERNELS
@OPTIMIZERS
@pytest.mark.parametrize("method", ["pc", "hep"])
def test_one_hidden_layer_moves_against_its_own_gradient(kernel: str, optimizer: str, method: str) -> None:
    problem = make_problem(method, depth=2, inference={"optimizer": optimizer, "steps": 1, "eps": 1e-3})
    initial, final = problem.relax(kernel)
    gradient = gradient_at(problem, initial) / 3
    direction = gradient if optimizer == "euler" else gradient / (gradient.abs() + 1e-3)
    assert initial.shape == (1, 3, 6)
    torch.testing.assert_close(final - initial, -0.1 * direction, rtol=0, atol=1e-13)


# What it leaves alone


@ALL_KERNELS
@OPTIMIZERS
@pytest.mark.parametrize("start", ["exact", "rounded"])
def test_relaxing_twice_gives_the_same_states_and_changes_no_input(
    kernel: str, optimizer: str, start: str
) -> None:
    problem = make_problem(
        "hep",
        dtype="float32",
        phi="relu",
        conventions={"initial_state": start},
        inference={"optimizer": optimizer},
    )
    inputs = {**problem.parameters.named(), "x": problem.x, "y": problem.y}
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    first = problem.relax(kernel)
    second = problem.relax(kernel)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not torch.equal(*first)
    for name, tensor in inputs.items():
        assert torch.equal(tensor, before[name]), name
        assert tensor.grad is None, name


def test_initial_states_survive_the_relaxation() -> None:
    """The initial states that `relax` returns are no view of the states that inference moves."""
    problem = make_problem()
    initial, _ = problem.relax(steps=7)
    assert torch.equal(initial, problem.relax(steps=1)[0])
    mu_1 = first_prediction(problem.parameters, problem.x, problem.architecture)
    assert torch.equal(initial[0], mu_1)


# Arithmetic


@pytest.fixture
def arithmetic() -> Iterator[None]:
    """Restore the process's matmul precision and its treatment of denormals after the test."""
    tf32, flushed = torch.backends.cuda.matmul.allow_tf32, flushes_denormals()
    yield
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.set_flush_denormal(flushed)


def uses_tf32() -> bool:
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


def flushes_denormals() -> bool:
    smallest_normal = torch.finfo(torch.float32).tiny
    return not (torch.tensor([smallest_normal]) / 2).any()


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("flush", [False, True])
def test_exact_float32_is_exact_inside_and_restores_what_it_found(tf32: bool, flush: bool) -> None:
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = tf32
    torch.set_flush_denormal(flush)
    with exact_float32():
        assert not uses_tf32()
        assert flushes_denormals()
    assert (matmul.allow_tf32, flushes_denormals()) == (tf32, flush)
    with pytest.raises(ZeroDivisionError), exact_float32():
        raise ZeroDivisionError
    assert (matmul.allow_tf32, flushes_denormals()) == (tf32, flush)


@pytest.mark.usefixtures("arithmetic")
def test_exact_float32_restores_a_precision_that_was_set_by_its_new_name() -> None:
    matmul = torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32"
    with exact_float32():
        assert not uses_tf32()
    assert uses_tf32()


@pytest.mark.usefixtures("arithmetic")
@ALL_KERNELS
def test_relax_computes_in_exact_float32_and_leaves_the_caller_its_tf32(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = True
    torch.set_flush_denormal(False)
    module, exact = inference.KERNELS[kernel], []

    def watch(name: str) -> None:
        original = getattr(module, name)

        def watched(*arguments: Any) -> Any:
            exact.append(flushes_denormals() and not uses_tf32())
            return original(*arguments)

        monkeypatch.setattr(module, name, watched)

    watch("relax")
    make_problem(dtype="float32").relax(kernel)
    assert exact == [True]
    assert matmul.allow_tf32
    assert not flushes_denormals()


@pytest.mark.parametrize(("method", "optimizer"), [("hep", "euler"), ("pc", "adam")])
def test_a_schedule_of_precisions_is_refused_where_it_has_no_meaning(method: str, optimizer: str) -> None:
    problem = make_problem(method)
    settings = replace(problem.spec.inference, optimizer=optimizer)
    arguments = (settings, problem.architecture, problem.spec.conventions, problem.highways, "batched")
    with pytest.raises(ValueError, match="schedule"):
        inference.relax(problem.parameters, problem.x, problem.y, *arguments, Schedule(torch.ones(9, 5)))
