"""The cost model counts what the E-step does."""

from dataclasses import replace

import pytest

from highways.cli import main
from highways.experiments import cost
from highways.experiments.configuration import all_runs
from highways.specs.options import Ipc
from highways.specs.registry import METHODS
from highways.specs.run import Conventions, Highway, Inference, Learning, Network, RunSpec
from mappings import experiment, only
from networks import make_spec


@pytest.fixture
def deep() -> RunSpec:
    return RunSpec("mnist", "hep", Network(32), Learning(6e-5), Inference("adam", 0.005, 96), Highway(0.1))


def test_operations_are_those_that_torch_counts(deep):
    """Against torch's counter of floating-point operations, on E-steps of three and four steps."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from highways.methods import rule
    from highways.model.network import initialise

    spec = replace(deep, inference=Inference("euler", 0.01, 3), conventions=Conventions(activation="post"))
    parameters = initialise(spec, 784, 10)
    learner = rule("hep")(spec, parameters, "batched")
    x, y = torch.randn(128, 784), torch.eye(10)[torch.arange(128) % 10]

    def counted(steps: int) -> int:
        learner.inference = Inference("euler", 0.01, steps)
        with FlopCounterMode(display=False) as counter:
            learner.gradient(parameters, x, y)
        return counter.get_total_flops()

    assert counted(4) - counted(3) == cost.step_operations(spec)
    whole = replace(spec, epochs=1)
    per_update = (cost.operations(whole) - cost.sweep_operations(whole) * 10_000 / 128) / cost.updates(whole)
    assert per_update == pytest.approx(counted(3), rel=0.35)  # the sweeps around the steps are approximate


def test_operations_of_interleaved_steps_are_those_that_torch_counts(deep):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from highways.methods import rule
    from highways.model.network import initialise

    spec = replace(deep, method="ipc", inference=None, highway=None, rule=Ipc(steps=7), epochs=1)
    parameters = initialise(spec, 784, 10)
    x, y = torch.randn(128, 784), torch.eye(10)[torch.arange(128) % 10]
    with FlopCounterMode(display=False) as counter:
        rule("ipc")(spec, parameters, "").gradient(parameters, x, y)
    per_update = (cost.operations(spec) - cost.sweep_operations(spec) * 10_000 / 128) / cost.updates(spec)
    assert per_update == pytest.approx(counter.get_total_flops(), rel=0.1)


def test_the_paper_costs_about_50_petaflop(paper):
    """The table of depth, and the sweeps of the highways' strength and density."""
    full = experiment(paper, "strength", cells__seeds=[0, 1, 2], set={})
    runs = all_runs(only(full, "depth", "strength", "density"))
    assert sum(cost.operations(run.spec) for run in runs.values()) == pytest.approx(50e15, rel=0.1)


def test_cost_grows_with_the_run(deep):
    assert cost.updates(deep) == 12 * 391
    for larger in (
        replace(deep, epochs=24),
        replace(deep, network=Network(64)),
        replace(deep, inference=Inference("adam", 0.005, 192)),
    ):
        assert cost.seconds(larger) > 1.8 * cost.seconds(deep)
    assert cost.memory_mb(replace(deep, network=Network(128))) > cost.memory_mb(deep)


def test_calibration_measures_this_machine():
    rates = cost.calibrate("batched")
    assert 0.5 < rates.gflops < 5000
    assert 0.0 <= rates.call_seconds < 0.1


def test_the_cost_command_adds_up(root, loaded, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert main(["cost"]) == 0
    *rows, total, rate = capsys.readouterr().out.splitlines()[1:]
    assert sum(int(row.split()[3]) for row in rows) == int(total.split()[1]) == len(all_runs(loaded))
    assert sum(float(row.split()[5]) for row in rows) == pytest.approx(float(total.split()[3]), abs=0.2)
    assert "GFLOP/s" in rate


@pytest.mark.parametrize(
    ("method", "rule", "steps", "sweeps"),
    [
        ("epc", {"steps": 5}, 0, 10),  # up and down, five times
        ("precision", {}, 3 + 5 / 2, 0),  # T = L + 3; half the layers move while the signal descends
        ("mupc", {"steps": 7}, 2 + 5 / 2, 0),
        ("dkp_pc", {"steps": 2}, 2, 3),
        ("meta_pcn", {}, 0, 0),  # one sweep down, as for backprop
        ("meta_pcn", {"step_size": 0.5}, 4, 0),
        ("lra", {}, 0, 0),
        ("ipc", {}, 5, 8),  # T = L; four more steps on the weights
    ],
)
def test_what_a_rule_does_beside_learning_is_counted(method, rule, steps, sweeps):
    spec = make_spec(method, depth=5, rule=rule)
    own = cost.of_method(spec)
    assert (own.steps, own.sweeps + 2 * (own.weight_steps - 1)) == (pytest.approx(steps), sweeps)
    plain = make_spec("backprop", depth=5)
    more = cost.operations(spec) - cost.operations(plain)
    expected = steps * cost.step_operations(spec) + sweeps * cost.sweep_operations(spec)
    assert more == pytest.approx(cost.updates(spec) * expected)


def test_every_method_says_what_it_costs():
    for method in METHODS:
        assert cost.seconds(make_spec(method)) > 0
        assert cost.extra_parameters(make_spec(method))[0] >= 0


@pytest.mark.parametrize(
    ("method", "petaflop", "hours", "parameters"),
    [
        ("pc", 0.11593, 0.485063, (0, False)),
        ("hep", 0.120505, 0.50322, (39680, False)),
        ("dfa", 0.00227975, 0.0215586, (39680, False)),
        ("backprop", 0.00227975, 0.0215586, (0, False)),
        ("epc", 0.00940441, 0.112391, (0, False)),
        ("meta_pcn", 0.00227975, 0.0215586, (0, False)),
        ("precision", 0.024773, 0.113294, (0, False)),
        ("dkp", 0.00227975, 0.0215586, (39680, True)),
        ("dkp_pc", 0.00560101, 0.0536365, (39680, True)),
        ("lra", 0.00227975, 0.0215586, (492800, True)),
        ("mupc", 0.0212214, 0.0988094, (0, False)),
    ],
)
def test_the_estimates_are_those_that_the_time_limits_were_tried_with(method, petaflop, hours, parameters):
    """Depth 32, T = 96: the estimates from before every method had a cost function of its own."""
    spec = make_spec(method, depth=32, width=128, inference={"optimizer": "adam", "step_size": 0.005, "steps": 96})
    assert cost.operations(spec) / 1e15 == pytest.approx(petaflop, rel=1e-5)
    assert cost.seconds(spec) / 3600 == pytest.approx(hours, rel=1e-5)
    assert cost.extra_parameters(spec) == parameters
