"""The C++ kernel computes what the reference does, moves nothing that no signal has reached, and is built once."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.cli import main
from highways.energy import Errors, Highways, Schedule, predict
from highways.fields import SpecError
from highways.inference import batched, build, choose_kernel, native, reference, relax
from highways.machine import Machine
from highways.methods import rule
from highways.network import Architecture, Parameters, first_prediction, initialise
from highways.spec import Conventions, Highway, Inference, Learning, Network, RunSpec
from highways.specs.options import Mupc, Precision

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
        if spec.highway is not None:
            shape = (len(spec.endpoints), classes, spec.network.width)
            feedback = 0.05 * torch.randn(shape, generator=stream)
            self.highways = Highways(feedback, spec.endpoints[0], spec.highway.every)

    def start(self) -> Tensor:
        return native.initial_states(self.parameters, self.x, self.architecture)

    def relax(
        self, inference: Inference, scale: float = SCALE, start: Tensor | None = None
    ) -> tuple[Tensor, Errors]:
        """From the sweep, where what no signal has reached is left out; from `start` everything is computed."""
        arguments = (self.architecture, inference, scale, self.highways, start, self.schedule)
        z, _, errors = native.relax(self.parameters, self.x, self.y, *arguments)[1]
        return z, errors

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
        arguments = (self.architecture, inference, SCALE, highways, z.double(), schedule)
        z, _, errors = reference.relax(wide, self.x.double(), self.y.double(), *arguments)[1]
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
def test_the_remedies_that_relax_learn_from_native_errors(method, options):
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
    with pytest.raises(ValueError, match="contiguous float32"):
        native.initial_states(wide, case.x.double(), case.architecture)
    with pytest.raises(SpecError, match=r"float32 on a CPU, not torch.float64 on cpu; use batched"):
        choose_kernel("native", torch.device("cpu"), torch.float64)
    assert choose_kernel("auto", torch.device("cpu"), torch.float64) == "batched"
    assert choose_kernel("auto", torch.device("cpu"), torch.float32) == "native"
    assert Machine().prepared("float64").kernel == "batched"


# Building


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


@pytest.mark.parametrize("environment", [{"CXX": '"c++'}, {"HIGHWAYS_CACHE": "/dev/null/x"}])
def test_an_environment_that_cannot_be_used_falls_back_too(monkeypatch, capsys, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    native.load.cache_clear()
    assert choose_kernel("auto", torch.device("cpu"), torch.float32) == "batched"
    assert "using batched" in capsys.readouterr().err
    native.load.cache_clear()


def test_a_library_that_cannot_be_loaded_is_named(monkeypatch, tmp_path):
    broken = tmp_path / "estep.so"
    broken.write_bytes(b"")
    monkeypatch.setattr(native, "library", lambda: broken)
    native.load.cache_clear()
    with pytest.raises(build.BuildError, match=r"estep.so cannot be loaded .* delete it"):
        native.load()
    native.load.cache_clear()


def test_the_build_command_needs_a_compiler(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["build"]) == 1
    assert "`batched` serves" in capsys.readouterr().err


def test_another_source_is_another_library(monkeypatch, tmp_path):
    monkeypatch.setenv("HIGHWAYS_CACHE", str(tmp_path))
    build._key.cache_clear()
    first = build._key(("c++",))
    edited = tmp_path / "estep.cpp"
    edited.write_text(build.SOURCE.read_text(encoding="utf-8") + "\n// edited\n", encoding="utf-8")
    monkeypatch.setattr(build, "SOURCE", edited)
    build._key.cache_clear()
    assert build._key(("c++",)) != first
    build._key.cache_clear()


def test_predictions_of_native_states_are_close_to_torch():
    case = problem(depth=5)
    states = case.start()
    mu_1 = first_prediction(case.parameters, case.x, case.architecture)
    mu = predict(case.parameters, states, mu_1, case.architecture).mu
    torch.testing.assert_close(mu, states, rtol=0, atol=1e-5)
    arguments = (case.architecture, ADAM, SCALE, case.highways)
    relaxed = native.relax(case.parameters, case.x, case.y, *arguments)[1]
    assert torch.equal(relaxed.errors.hidden, relaxed.z - relaxed.mu)
    mu = predict(case.parameters, relaxed.z, mu_1, case.architecture).mu
    torch.testing.assert_close(mu, relaxed.mu, rtol=0, atol=1e-5)
