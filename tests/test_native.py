"""The C++ kernel computes what the reference does, moves nothing that no signal has reached, and is built once."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.cli import main
from highways.inference import KERNELS, batched, build, choose_kernel, native, reference, relax
from highways.inference.estep import EStep
from highways.methods import rule
from highways.model.energy import Errors, Highways, Schedule, predict
from highways.model.network import Architecture, Parameters, first_prediction, initialise
from highways.specs.fields import SpecError
from highways.specs.options import Mupc, Precision
from highways.specs.run import Conventions, Highway, Inference, Learning, Network, RunSpec
from highways.training.machine import Machine

READINGS = [
    {"activation": activation, "normalise_output_input": normalised, "bias": bias}
    for activation in ("post", "pre", "both", "pre_norm")
    for normalised in (False, True)
    for bias in (False, True)
] + [{"activation": activation, "normalisation": "none"} for activation in ("post", "pre", "both", "pre_norm")]
SCALE = 1 / 32  # of the gradient, as in the mean over a batch of 32
EULER = Inference("euler", 0.4, 8)
# With eps = 0.01 an update is at most 100 times as sensitive to rounding as the gradient.
ADAM = Inference("adam", 0.005, 8, eps=1e-2)


class Problem:
    """Random weights, gains, biases, images and targets of a small network in float32."""

    def __init__(self, spec: RunSpec, batch: int, inputs: int = 20, classes: int = 10) -> None:
        self.spec, self.architecture = spec, Architecture.of(spec)
        stream = torch.Generator().manual_seed(7)
        self.parameters = initialise(spec, inputs, classes)
        self.parameters.gain.add_(0.1 * torch.randn(self.parameters.gain.shape, generator=stream))
        for name, tensor in self.parameters.named().items():
            if name.startswith("b_"):
                tensor.normal_(std=0.1, generator=stream)
        self.x = torch.randn(batch, inputs, generator=stream)
        labels = torch.randint(classes, (batch,), generator=stream)
        self.y = torch.eye(classes)[labels]
        self.schedule: Schedule | None = None
        self.highways = None
        self.kernel: ModuleType = native
        if spec.highway is not None:
            shape = (len(spec.endpoints), classes, spec.network.width)
            feedback = 0.05 * torch.randn(shape, generator=stream)
            self.highways = Highways(feedback, spec.endpoints[0], spec.highway.every)

    def start(self) -> Tensor:
        return self.kernel.initial_states(self.parameters, self.x, self.architecture)

    def relax(
        self, inference: Inference, scale: float = SCALE, start: Tensor | None = None
    ) -> tuple[Tensor, Errors]:
        """From the sweep, where what no signal has reached is left out; from `start` everything is computed."""
        z, _, errors = self.kernel.relax(self.step(inference, scale, start))[1]
        return z, errors

    def step(self, inference: Inference, scale: float = SCALE, start: Tensor | None = None) -> EStep:
        settings = (self.architecture, inference, scale, self.highways, start, self.schedule)
        return EStep(self.parameters, self.x, self.y, *settings)

    def exact(self, inference: Inference, start: Tensor | None = None) -> tuple[Tensor, Errors]:
        """The reference kernel in double precision from the same states."""
        z = self.start() if start is None else start
        wide = Parameters(**{name: tensor.double() for name, tensor in self.parameters.named().items()})
        highways = self.highways
        if highways is not None:
            highways = highways._replace(feedback=highways.feedback.double())
        schedule = self.schedule
        if schedule is not None:
            schedule = schedule._replace(precisions=schedule.precisions.double())
        settings = (self.architecture, inference, SCALE, highways, z.double(), schedule)
        z, _, errors = reference.relax(EStep(wide, self.x.double(), self.y.double(), *settings))[1]
        return z, errors


def problem(
    method: str = "hep",
    depth: int = 6,
    width: int = 24,
    batch: int = 37,
    phi: str = "relu",
    every: int = 1,
    rule: Any = None,
    **reading,
) -> Problem:
    spec = RunSpec(
        "mnist",
        method,
        Network(depth, width=width, phi=phi),
        Learning(1e-3),
        EULER if method in ("pc", "hep") else None,
        Highway(1.0, every) if method == "hep" else None,
        Conventions(**reading),
        rule=rule,
    )
    return Problem(spec, batch)


def assert_agree(ours: tuple[Tensor, Errors], exact: tuple[Tensor, Errors]) -> None:
    """To the rounding of float32 (6e-8 of states up to about 4), grown over some layers and steps: 1e-5.

    Under Adam an update is step * g / (|g| + eps): a rounding of 1e-7 in g moves it by no more than
    0.005 * 1e-7 / 0.01, which is less than that."""
    for mine, theirs in (
        (ours[0], exact[0]),
        (ours[1].hidden, exact[1].hidden),
        (ours[1].output, exact[1].output),
    ):
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=1e-5)


def assert_same_bits(ours: tuple[Tensor, Errors], theirs: tuple[Tensor, Errors]) -> None:
    for mine, other in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
        assert torch.equal(mine, other)


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


def random_schedule(depth: int) -> Schedule:
    return Schedule(2 * torch.rand(EULER.steps, depth, generator=torch.Generator().manual_seed(1)), momentum=0.3)


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
    case.parameters.w_out.mul_(5)  # a signal that is felt
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
@pytest.mark.parametrize(("width", "batch"), [(24, 37), (128, 80)])
def test_initial_states_are_their_predictions_bit_for_bit(activation, width, batch):
    case = problem(width=width, batch=batch, activation=activation, bias=True)
    still, error = case.relax(EULER, scale=0.0)
    assert torch.equal(still, case.start())
    assert not error.hidden.any()


@pytest.mark.parametrize("inference", [EULER, replace(ADAM, eps=1e-8)], ids=["euler", "adam"])
def test_no_layer_moves_before_the_signal_reaches_it(inference):
    """Vanilla PC: after t steps layers below L-t are where they were, and their errors are exactly zero."""
    case = problem("pc", depth=12)
    start = case.start()
    for steps in range(1, 11):
        states, error = case.relax(replace(inference, steps=steps), scale=1.0)
        moved = [bool((states[i] != start[i]).any()) for i in range(11)]
        assert moved == [i >= 11 - steps for i in range(11)]
        assert [bool(layer.any()) for layer in error.hidden] == moved


def test_an_endpoint_starts_a_signal_downwards_and_upwards():
    """Highways at layers 5 and 10 of 15: after the first step only they and the last layer have moved."""
    case = problem(depth=15, every=5)
    start = case.start()
    states, _ = case.relax(replace(EULER, steps=1))
    assert [i + 1 for i in range(14) if not torch.equal(states[i], start[i])] == [5, 10, 14]
    states, _ = case.relax(replace(EULER, steps=3))
    assert [i + 1 for i in range(14) if torch.equal(states[i], start[i])] == [1, 2]


@pytest.mark.parametrize(("method", "every"), [("pc", 1), ("hep", 1), ("hep", 4)])
@pytest.mark.parametrize("inference", [EULER, ADAM], ids=["euler", "adam"])
def test_leaving_out_what_cannot_move_changes_no_bit(method, every, inference):
    """States that are handed over are computed in full, even where they are the sweep."""
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


def test_inputs_are_left_alone_and_a_second_call_gives_the_same():
    case = problem()
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


def lane_problem(**reading: Any) -> Problem:
    """128 samples whose mu_1, a sum of whole multiples of 2^-8, is exact and so does not depend on the batch."""
    case = problem(batch=128, width=24, every=2, **reading)
    case.x = torch.randint(-4, 5, (128, 20), generator=torch.Generator().manual_seed(0)).float()
    for tensor in (case.parameters.w_in, case.parameters.b_in):
        if tensor is not None:
            tensor.mul_(256).round_().div_(256)
    return case


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


# What is handed over is checked


def without_chain_row(case: Problem) -> None:
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
    ("feedback has the shape (3, 10, 24); it takes (5, 10, 24)", without_chain_row),
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


# Building


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache, and a compiler that copies the library that is built already, which takes no time."""
    built = build.library()
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "{built}" "$last"\n', encoding="utf-8")
    compiler.chmod(0o755)
    folder = tmp_path / "cache"
    monkeypatch.setenv("HIGHWAYS_CACHE", str(folder))
    monkeypatch.setenv("CXX", str(compiler))
    native.load.cache_clear()
    yield folder
    native.load.cache_clear()


def chosen(capsys) -> tuple[str, str]:
    """The kernel that auto takes in a new process, and what it says."""
    native.load.cache_clear()
    capsys.readouterr()
    return choose_kernel("auto", torch.device("cpu"), torch.float32), capsys.readouterr().err


def without_compiler(tmp_path) -> dict[str, str]:
    return {**os.environ, "CXX": "no-such-compiler", "HIGHWAYS_CACHE": str(tmp_path / "cache")}


def highways(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "highways", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, encoding="utf-8")


def test_without_a_compiler_batched_serves_and_says_so(tiny, tmp_path):
    out = tmp_path / "r.json"
    spec = tiny("pc", epochs=1).to_json()
    run = highways("train", "--spec", spec, "--out", str(out), environment=without_compiler(tmp_path))
    assert run.returncode == 0
    notices = [line for line in run.stderr.splitlines() if "native" in line]
    assert notices == [
        "highways: the native kernel cannot be built: no C++ compiler (no-such-compiler not found); using batched"
    ]
    assert '"kernel": "batched"' in out.read_text(encoding="utf-8")


def test_native_asked_for_by_name_does_not_fall_back(tiny, tmp_path):
    spec = tiny("pc", epochs=1).to_json()
    arguments = ("train", "--spec", spec, "--kernel", "native", "--out", str(tmp_path / "r.json"))
    run = highways(*arguments, environment=without_compiler(tmp_path))
    assert run.returncode == 1
    assert run.stderr.startswith("highways: error: kernel: native cannot be built: no C++ compiler")


def test_a_compiler_that_fails_is_quoted(monkeypatch, tmp_path):
    monkeypatch.setenv("HIGHWAYS_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "SOURCE", tmp_path / "broken.cpp")
    (tmp_path / "broken.cpp").write_text("int main( {", encoding="utf-8")
    with pytest.raises(build.BuildError, match=r"failed: .*error"):
        build.library()
    assert list(tmp_path.rglob("*.so")) == []


def test_many_jobs_that_start_at_once_build_once(tmp_path):
    """A compiler that counts its calls; every job gets the same library."""
    counter, compiler = tmp_path / "calls", tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo x >> "{counter}" ;; esac\nexec c++ "$@"\n',
        encoding="utf-8",
    )
    compiler.chmod(0o755)
    environment = {**os.environ, "CXX": str(compiler), "HIGHWAYS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "highways", "build"]
    jobs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8")
        for _ in range(4)
    ]
    paths = {job.communicate()[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    assert len(paths) == 1
    assert counter.read_text(encoding="utf-8") == "x\n"


def test_a_machine_without_a_compiler_takes_the_library_that_another_has_built(cache, monkeypatch, capsys):
    first = build.library()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.library() == first
    assert chosen(capsys) == ("native", "")
    case = problem()
    assert case.relax(EULER)[0].isfinite().all()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("SOURCE", "// edited"),
        ("FLAGS", {"native": (*build.FLAGS["native"], "-O2")}),
        ("_processor", lambda: "another processor"),
    ],
)
def test_the_name_of_a_library_depends_on_source_flags_and_processor(monkeypatch, tmp_path, name, other):
    before = build._key("native")
    assert build._key("mixed") != before
    if name == "SOURCE":
        edited = tmp_path / "estep.cpp"
        edited.write_text(build.SOURCE.read_text(encoding="utf-8") + other, encoding="utf-8")
        other = edited
    monkeypatch.setattr(build, name, other)
    assert build._key("native") != before
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "another-compiler")
    assert build._key("native") == before


def damage(cache, how: str) -> str:
    """Spoil the library in the cache, which then has the right name; its contents."""
    library = build.library()
    text = library.read_bytes()
    spoilt = {
        "truncated": text[:5000],
        "one bit": text[:9000] + bytes([text[9000] ^ 1]) + text[9001:],
        "empty": b"",
    }
    library.unlink()  # this process may have loaded it
    library.write_bytes(spoilt[how])
    return text


@pytest.mark.parametrize("how", ["truncated", "one bit", "empty"])
def test_a_damaged_library_is_built_again_and_never_loaded(cache, monkeypatch, capsys, how):
    intact = damage(cache, how)
    kernel, said = chosen(capsys)
    assert kernel == "native"
    assert len(said.splitlines()) == 1
    assert "native-" in said
    assert "is damaged (its checksum differs); building it again" in said
    assert build.library().read_bytes() == intact
    damage(cache, how)
    monkeypatch.setenv("CXX", "no-such-compiler")
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert "is damaged (its checksum differs), and there is no C++ compiler" in said


def test_a_library_without_its_checksum_is_built_again(cache):
    library = build.library()
    library.with_name(library.name + ".sha256").unlink()
    library.write_bytes(b"half")
    assert len(build.library().read_bytes()) > 1000


@pytest.mark.parametrize("contents", [b"", b"no library", None])
def test_what_is_no_kernel_is_named_and_batched_serves(cache, monkeypatch, tmp_path, capsys, contents):
    """Even with a checksum that fits; None: a library of something else."""
    (tmp_path / "other.c").write_text("int other(void) { return 1; }", encoding="utf-8")
    foreign = tmp_path / "foreign.so"
    if contents is None:
        subprocess.run(["c++", "-shared", "-fPIC", str(tmp_path / "other.c"), "-o", str(foreign)], check=True)
    else:
        foreign.write_bytes(contents)
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "{foreign}" "$last"\n', encoding="utf-8")
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert len(said.splitlines()) == 1
    assert "cannot be loaded" in said
    assert "delete it; using batched" in said


UNSAFE = [
    ("can be written by others", lambda folder: folder.chmod(0o777)),
    ("can be written by others", lambda folder: folder.chmod(0o1777)),
    ("can be written by others", lambda folder: folder.chmod(0o770)),
    ("can be written by others", lambda folder: build.library().chmod(0o757)),
    ("can be written by others", lambda folder: next(folder.glob("*.sha256")).chmod(0o666)),
    ("can be written by others", lambda folder: folder.parent.chmod(0o777)),
    ("neither a folder nor a plain file", lambda folder: replace_by_a_link(build.library())),
    ("belongs to another user (uid 12345)", lambda folder: os.chown(folder, 12345, -1)),
    ("belongs to another user (uid 12345)", lambda folder: os.chown(build.library(), 12345, -1)),
    ("belongs to another user (uid 12345)", lambda folder: os.chown(next(folder.glob("*.sha256")), 12345, -1)),
]


def replace_by_a_link(path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


@pytest.mark.parametrize(("message", "expose"), UNSAFE)
def test_what_another_user_could_have_written_is_not_loaded(cache, capsys, monkeypatch, message, expose):
    build.library()
    if "uid" in message and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    expose(cache)
    loaded: list[str] = []
    monkeypatch.setattr(native.ctypes, "CDLL", loaded.append)
    kernel, said = chosen(capsys)
    assert (kernel, loaded) == ("batched", [])
    assert len(said.splitlines()) == 1
    assert message in said
    assert "set HIGHWAYS_CACHE to a folder of your own" in said


def test_nothing_is_built_into_a_folder_that_others_can_write(cache):
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(build.BuildError, match="can be written by others"):
        build.library()
    assert list(cache.iterdir()) == []


def test_what_is_built_under_a_lax_umask_is_safe(cache):
    before = os.umask(0)
    try:
        build.library()
        native.load.cache_clear()
        assert native.load()
    finally:
        os.umask(before)


def test_the_lock_follows_no_link_and_empties_nothing(cache, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept", encoding="utf-8")
    cache.mkdir(mode=0o700)
    (cache / "lock").symlink_to(precious)
    with pytest.raises(build.BuildError, match="lock: Too many levels of symbolic links"):
        build.library()
    (cache / "lock").unlink()
    (cache / "lock").hardlink_to(precious)
    build.library()
    assert precious.read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_a_compiler_that_cannot_be_executed_falls_back(cache, monkeypatch, tmp_path, capsys, mode):
    compiler = tmp_path / "not-a-program"
    compiler.write_bytes(b"\x00\x01\x02")
    compiler.chmod(mode)
    monkeypatch.setenv("CXX", str(compiler))
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert len(said.splitlines()) == 1
    assert ("cannot be executed" if mode == 0o755 else "not found") in said


def test_a_compiler_that_writes_nothing_falls_back(cache, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "true")
    kernel, said = chosen(capsys)
    assert (kernel, len(said.splitlines())) == ("batched", 1)
    assert "true wrote no library" in said


@pytest.mark.parametrize("environment", [{"CXX": '"c++'}, {"CXX": ""}, {"HIGHWAYS_CACHE": "/dev/null/x"}])
def test_an_environment_that_cannot_be_used_falls_back_too(cache, monkeypatch, capsys, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert len(said.splitlines()) == 1
    assert "using batched" in said


def test_the_build_command_needs_a_compiler(cache, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["build"]) == 1
    assert "`batched` serves" in capsys.readouterr().err


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
