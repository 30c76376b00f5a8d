"""The C++ kernel agrees with the reference, moves no layer before a signal arrives, and checks its arrays."""

import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from problems import (
    ADAM,
    EULER,
    Problem,
    assert_agree,
    assert_same_bits,
    lane_problem,
    problem,
    random_schedule,
)
from torch import Tensor

from highways.inference import KERNELS, batched, build, choose_kernel, mixed, native, relax
from highways.methods import rule
from highways.model.energy import Errors, Schedule, predict
from highways.model.network import Parameters, first_prediction
from highways.specs.fields import SpecError
from highways.specs.options import Mupc, Precision
from highways.training.machine import Machine
from networks import READINGS


def made_by(kernel: str) -> ModuleType:
    """The kernel of that name; skips the test where it cannot be built."""
    try:
        native.load(kernel)
    except build.BuildError as error:
        pytest.skip(f"no kernel {kernel} here: {error}")
    return {"native": native, "mixed": mixed}[kernel]


BOTH = pytest.mark.parametrize("kernel", ["native", "mixed"])


@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("reading", READINGS, ids=lambda r: "-".join(str(value) for value in r.values()))
def test_native_agrees_with_the_reference_in_every_reading(reading, phi, inference):
    case = problem(phi=phi, every=2, **reading)
    assert_agree(case.relax(inference), case.exact(inference))


@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
@pytest.mark.parametrize("activation", ["post", "pre"])
def test_native_agrees_without_the_chain(activation, inference):
    case = problem(activation=activation, every=2)
    with_chain = case.relax(inference)[0]
    case.highways = case.highways._replace(chain=False)
    assert_agree(case.relax(inference), case.exact(inference))
    assert not torch.allclose(case.relax(inference)[0], with_chain, rtol=0, atol=1e-3)


@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("reading", READINGS, ids=lambda r: "-".join(str(value) for value in r.values()))
def test_native_agrees_under_a_schedule_of_precisions(reading, phi):
    case = problem("pc", phi=phi, **reading)
    constant = case.relax(EULER)[0]
    case.schedule = random_schedule(6)
    assert_agree(case.relax(EULER), case.exact(EULER))
    assert not torch.allclose(case.relax(EULER)[0], constant, rtol=0, atol=1e-3)


def test_precisions_of_one_without_momentum_change_no_bit():
    case = problem("pc", activation="post")
    plain = case.relax(EULER)
    case.schedule = Schedule(torch.ones(EULER.steps, 6))
    assert_same_bits(case.relax(EULER), plain)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("depth", [2, 3, 7])
def test_native_agrees_on_mupcs_network(depth, phi, skips, loss):
    case = problem("mupc", phi=phi, depth=depth, rule=Mupc(skips=skips, loss=loss))
    case.parameters.w_out.mul_(5)  # a larger signal
    assert_agree(case.relax(EULER), case.exact(EULER))


def test_native_knows_no_skips_but_mupcs():
    case = problem("pc")
    case.architecture = replace(case.architecture, skips=True)
    with pytest.raises(ValueError, match="skips"):
        case.relax(EULER)


@pytest.mark.parametrize("batch", [1, 31, 32, 33, 80, 128])
@pytest.mark.parametrize("width", [1, 5, 16, 37, 128, 130])
def test_native_takes_any_batch_and_width(width, batch):
    case = problem(width=width, batch=batch, depth=5)
    assert_agree(case.relax(EULER), case.exact(EULER))


@pytest.mark.parametrize("depth", [2, 3, 4, 17])
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
def test_native_takes_any_depth_and_spacing(depth, every, inference):
    case = problem(depth=depth, every=min(every, depth - 1))
    assert_agree(case.relax(inference), case.exact(inference))


def test_the_sweep_is_that_of_the_other_kernels():
    case = problem(depth=9, activation="post", bias=True)
    theirs = batched.initial_states(case.parameters, case.x, case.architecture)
    torch.testing.assert_close(case.start(), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["post", "pre", "both", "pre_norm"])
@pytest.mark.parametrize(("width", "batch"), [(24, 37), (37, 80), (128, 80)])
@BOTH
def test_initial_states_are_their_predictions_bit_for_bit(activation, width, batch, kernel):
    case = problem(width=width, batch=batch, activation=activation, bias=True)
    case.kernel = made_by(kernel)
    still, error = case.relax(EULER, scale=0.0)
    assert torch.equal(still, case.start())
    assert not error.hidden.any()


@pytest.mark.parametrize("inference", [EULER, replace(ADAM, eps=1e-8)], ids=["euler", "adam"])
@BOTH
def test_no_layer_moves_before_the_signal_reaches_it(inference, kernel):
    """Vanilla PC: after t steps layers below L-t are where they were, and their errors are exactly zero."""
    case = problem("pc", depth=12)
    case.kernel = made_by(kernel)
    start = case.start()
    for steps in range(1, 11):
        states, error = case.relax(replace(inference, steps=steps), scale=1.0)
        moved = [bool((states[i] != start[i]).any()) for i in range(11)]
        assert moved == [i >= 11 - steps for i in range(11)]
        assert [bool(layer.any()) for layer in error.hidden] == moved


def test_an_endpoint_starts_a_signal_downwards_and_upwards():
    """Highways at layers 5 and 10 of 15: the first step moves only these and the last hidden layer."""
    case = problem(depth=15, every=5)
    start = case.start()
    states, _ = case.relax(replace(EULER, steps=1))
    assert [i + 1 for i in range(14) if not torch.equal(states[i], start[i])] == [5, 10, 14]
    states, _ = case.relax(replace(EULER, steps=3))
    assert [i + 1 for i in range(14) if torch.equal(states[i], start[i])] == [1, 2]


@pytest.mark.parametrize(("method", "every"), [("pc", 1), ("hep", 1), ("hep", 4)])
@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
def test_leaving_out_what_cannot_move_changes_no_bit(method, every, inference):
    """With a given start every layer is computed, even where the start is the sweep."""
    case = problem(method, depth=12, every=every)
    case.schedule = random_schedule(12) if method == "pc" and inference is EULER else None
    assert_same_bits(case.relax(inference), case.relax(inference, start=case.start()))


@pytest.mark.parametrize(("method", "every"), [("pc", 1), ("hep", 1), ("hep", 4)])
@pytest.mark.parametrize("depth", [2, 3, 12])
@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
def test_steps_that_go_down_together_change_no_bit(method, every, depth, inference, monkeypatch):
    case = problem(method, depth=depth, every=min(every, depth - 1))
    case.schedule = random_schedule(depth) if method == "pc" and inference is EULER else None
    results = []
    for walkers in (1, 2, 3, 5, 20):
        monkeypatch.setattr(native, "WALKERS", walkers)
        results.append(case.relax(inference))
    for result in results[1:]:
        assert_same_bits(result, results[0])


def test_states_off_their_predictions_are_relaxed_in_full():
    case = problem("pc", depth=12)
    start = case.start() + 0.1
    assert_agree(case.relax(EULER, start=start), case.exact(EULER, start))


def test_a_highway_of_strength_zero_changes_no_bit():
    plain, cut = problem("pc", depth=7), problem("hep", depth=7)
    cut.highways = cut.highways._replace(feedback=0.0 * cut.highways.feedback)
    assert_same_bits(cut.relax(ADAM), plain.relax(ADAM))


def test_the_result_depends_neither_on_threads_nor_on_what_is_beside_a_sample():
    case = problem(batch=128, width=64)
    alone, _ = case.relax(ADAM)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        together, _ = case.relax(ADAM)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(alone, together)


@BOTH
def test_inputs_are_left_alone_and_a_second_call_gives_the_same(kernel):
    case = problem()
    case.kernel = made_by(kernel)
    start = case.start()
    before = [tensor.clone() for tensor in (start, case.x, case.y, *case.parameters.named().values())]
    first, _ = case.relax(ADAM)
    second, _ = case.relax(ADAM)
    assert torch.equal(first, second)
    after = [start, case.x, case.y, *case.parameters.named().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_denormals_are_flushed():
    """Errors that shrink by a factor of 1e5 a layer leave float32's normal range, and end as zeros there."""
    case = problem("pc", depth=12)
    case.parameters.w_hidden.mul_(1e-5)
    conventions = case.spec.conventions
    arguments = (replace(EULER, steps=12), case.architecture, conventions)
    error = relax(case.parameters, case.x, case.y, *arguments, kernel="native")[1].errors
    sizes = error.hidden[error.hidden != 0].abs()
    assert sizes.min() >= torch.finfo(torch.float32).tiny
    assert not error.hidden[0].any()


def test_a_rule_learns_from_native_errors():
    """The gradient of the weights is that of the reference kernel, and exactly zero where no signal came."""
    case = problem("pc", depth=12)
    spec = replace(case.spec, inference=replace(EULER, steps=3))
    ours, theirs = (
        rule("pc")(spec, case.parameters, kernel).gradient(case.parameters, case.x, case.y)
        for kernel in ("native", "reference")
    )
    for name, tensor in ours.weights.named().items():
        torch.testing.assert_close(tensor, getattr(theirs.weights, name), rtol=1e-4, atol=1e-6)
    assert not ours.weights.w_in.any()
    assert not ours.weights.w_hidden[:6].any()
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("method", "options"), [("precision", Precision()), ("mupc", Mupc(step_size=20.0))])
def test_the_baselines_that_relax_learn_from_native_errors(method, options):
    case = problem(method, depth=9, rule=options)
    case.parameters.w_out.mul_(5)
    ours, theirs = (
        rule(method)(case.spec, case.parameters, kernel).gradient(case.parameters, case.x, case.y)
        for kernel in ("native", "reference")
    )
    for name, tensor in ours.weights.named().items():
        torch.testing.assert_close(tensor, getattr(theirs.weights, name), rtol=1e-4, atol=1e-6)
        assert tensor.any() or name == "gain"
    torch.testing.assert_close(ours.errors.hidden, theirs.errors.hidden, rtol=0, atol=1e-5)


def test_what_native_cannot_do_is_refused():
    case = problem()
    wide = Parameters(**{name: tensor.double() for name, tensor in case.parameters.named().items()})
    with pytest.raises(ValueError, match="float32 on the CPU"):
        native.initial_states(wide, case.x.double(), case.architecture)
    with pytest.raises(SpecError, match=r"float32 on a CPU, not torch.float64 on cpu; use batched"):
        choose_kernel("native", torch.device("cpu"), torch.float64)
    assert choose_kernel("auto", torch.device("cpu"), torch.float64) == "batched"
    assert choose_kernel("auto", torch.device("cpu"), torch.float32) == "native"
    assert Machine().prepared("float64").kernel == "batched"


@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("activation", ["post", "pre", "both", "pre_norm"])
@pytest.mark.parametrize("bias", [False, True])
def test_a_sample_alone_and_in_any_lane_of_a_tile_has_the_same_bits(bias, activation, phi, inference):
    case = lane_problem(activation=activation, phi=phi, bias=bias, normalise_output_input=True)
    together, errors = case.relax(inference)
    x, y = case.x, case.y
    for lane in range(0, 128, 3):
        case.x, case.y = x[lane : lane + 1], y[lane : lane + 1]
        alone = case.relax(inference)
        inside = Errors(errors.hidden[:, lane : lane + 1], errors.output[lane : lane + 1])
        assert_same_bits(alone, (together[:, lane : lane + 1], inside))


@pytest.mark.parametrize("activation", ["post", "pre", "both", "pre_norm"])
def test_a_nan_is_passed_on_as_the_reference_does(activation):
    case = problem(activation=activation, batch=5)
    case.x[2, 0] = float("nan")
    case.parameters.w_hidden[2, 3, 1] = float("nan")
    for ours, theirs in zip(case.relax(EULER), case.exact(EULER), strict=True):
        for mine, other in zip(*((t,) if isinstance(t, Tensor) else t for t in (ours, theirs)), strict=True):
            assert torch.equal(mine.isnan(), other.isnan())
            assert mine.isnan().any()


# Arrays that do not fit


def without_feedback_row(case: Problem) -> None:
    case.highways = case.highways._replace(feedback=case.highways.feedback[:3])


def set_parameter(name: str, change: Any) -> Any:
    return lambda case: setattr(case.parameters, name, change(getattr(case.parameters, name)))


def set_own(name: str, change: Any) -> Any:
    return lambda case: setattr(case, name, change(getattr(case, name)))


MISFITS = [
    ("y has the shape (37, 9); it takes (37, 10)", set_own("y", lambda y: y[:, :9])),
    ("y has the shape (36, 10); it takes (37, 10)", set_own("y", lambda y: y[1:])),
    ("y is torch.float64 on cpu", set_own("y", lambda y: y.double())),
    ("y is torch.int64 on cpu", set_own("y", lambda y: y.long())),
    ("y is torch.float32 on meta", set_own("y", lambda y: y.to("meta"))),
    ("y is torch.sparse_coo", set_own("y", lambda y: y.to_sparse())),
    ("x has the shape (37, 19); it takes (37, 20)", set_own("x", lambda x: x[:, :19])),
    ("x, w_in and w_out must be matrices", set_own("x", lambda x: x[0])),
    ("w_hidden has the shape (4, 24, 23)", set_parameter("w_hidden", lambda w: w[:, :, :23])),
    ("w_out has the shape (10, 23)", set_parameter("w_out", lambda w: w[:, :23])),
    ("w_out is torch.float16", set_parameter("w_out", lambda w: w.half())),
    ("gain has 2 rows; it takes 0, 4 or 5", set_parameter("gain", lambda g: g[:2])),
    ("gain has the shape (4, 23)", set_parameter("gain", lambda g: g[:, :23])),
    ("b_out has the shape (9,)", set_parameter("b_out", lambda b: b[:9])),
    ("biases: all of", set_parameter("b_hidden", lambda b: None)),
    ("feedback has the shape (3, 10, 24); it takes (5, 10, 24)", without_feedback_row),
    ("both take 1 or more", set_own("highways", lambda h: h._replace(every=0))),
]


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize(("message", "spoil"), MISFITS, ids=[message for message, _ in MISFITS])
def test_an_array_that_does_not_fit_is_refused_by_every_kernel_in_the_same_words(message, spoil, kernel):
    case = problem(bias=True)
    spoil(case)
    arguments = (EULER, case.architecture, case.spec.conventions, case.highways, kernel)
    with pytest.raises(ValueError, match=re.escape(message)):
        relax(case.parameters, case.x, case.y, *arguments)


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_a_schedule_and_a_start_that_do_not_fit_are_refused(kernel):
    case = problem("pc")
    case.schedule = Schedule(torch.ones(EULER.steps, 5))
    with pytest.raises(ValueError, match=re.escape("precisions has the shape (8, 5); it takes (8, 6)")):
        KERNELS[kernel].relax(case.step(EULER))
    case.schedule = None
    with pytest.raises(ValueError, match=re.escape("start has the shape (4, 37, 24); it takes (5, 37, 24)")):
        KERNELS[kernel].relax(case.step(EULER, start=case.start()[1:]))


def test_arrays_in_any_order_of_memory_give_the_same_bits():
    case = problem(bias=True, every=2)
    expected = case.relax(ADAM)
    case.y = case.y.T.contiguous().T
    case.highways = case.highways._replace(feedback=case.highways.feedback.mT.contiguous().mT)
    for name, tensor in case.parameters.named().items():
        setattr(case.parameters, name, torch.stack([tensor, tensor], -1)[..., 0])
    assert not case.parameters.w_hidden.is_contiguous()
    assert_same_bits(case.relax(ADAM), expected)


def test_predictions_of_native_states_are_close_to_torch():
    case = problem(depth=5)
    states = case.start()
    mu_1 = first_prediction(case.parameters, case.x, case.architecture)
    mu = predict(case.parameters, states, mu_1, case.architecture).mu
    torch.testing.assert_close(mu, states, rtol=0, atol=1e-5)
    relaxed = native.relax(case.step(ADAM))[1]
    assert torch.equal(relaxed.errors.hidden, relaxed.z - relaxed.mu)
    mu = predict(case.parameters, relaxed.z, mu_1, case.architecture).mu
    torch.testing.assert_close(mu, relaxed.mu, rtol=0, atol=1e-5)
