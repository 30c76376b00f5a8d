"""The M-step's optimizer and its learning-rate schedule."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.methods import weight_step
from highways.model.network import Parameters, initialise
from highways.specs import options
from highways.specs.run import Learning
from networks import make_spec, stream


def gradients_like(parameters: Parameters, count: int) -> list[Parameters]:
    noise = stream(7)
    return [
        Parameters(
            **{
                name: torch.randn(tensor.shape, generator=noise, dtype=torch.float64).to(tensor.dtype)
                for name, tensor in parameters.named().items()
            }
        )
        for _ in range(count)
    ]


def layers(tensor: Tensor, name: str) -> list[Tensor]:
    """The tensor of every layer in a stacked parameter; any other parameter as it is."""
    return [*tensor.unbind()] if name in ("w_hidden", "b_hidden", "gain") else [tensor]


@pytest.mark.parametrize("depth", [2, 5])
@pytest.mark.parametrize("gain_decays", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_stacked_weights_learn_as_separate_weights_do(depth: int, gain_decays: bool, bias: bool) -> None:
    spec = make_spec(
        depth=depth,
        learning={"lr": 0.02, "weight_decay": 0.3, "eps": 1e-5},
        conventions={"weight_decay_on_gain": gain_decays, "bias": bias},
    )
    parameters = initialise(spec, 5, 4)
    single = {
        name: [layer.clone().requires_grad_() for layer in layers(tensor, name)]
        for name, tensor in parameters.named().items()
    }
    groups = [
        {"params": single.pop("gain"), "weight_decay": 0.3 if gain_decays else 0.0},
        {"params": [layer for tensors in single.values() for layer in tensors], "weight_decay": 0.3},
    ]
    groups = [group for group in groups if group["params"]]
    theirs = torch.optim.AdamW(groups, eps=1e-5, foreach=False)
    ours = weight_step.weight_optimizer(spec, parameters)
    gain = groups[0]["params"] if len(groups) == 2 else []
    for update, gradient in enumerate(gradients_like(parameters, 6)):
        lr = 0.02 / (1 + update)
        for name, tensor in gradient.named().items():
            for layer, grad in zip({**single, "gain": gain}[name], layers(tensor, name), strict=True):
                layer.grad = grad.clone()
        for group in theirs.param_groups:
            group["lr"] = lr
        theirs.step()
        weight_step.apply(ours, parameters, gradient, lr)
        for name, tensor in parameters.named().items():
            expected = {**single, "gain": gain}[name]
            for ours_layer, layer in zip(layers(tensor, name), expected, strict=True):
                torch.testing.assert_close(ours_layer, layer.detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fused", [False, True])
def test_the_update_is_torchs_bit_for_bit(dtype: str, fused: bool) -> None:
    """It equals that of `torch.optim.AdamW`, also after a resume from a saved state."""
    start = initialise(make_spec(dtype=dtype), 50, 40).named()
    theirs = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    gains, others = ("gain",), tuple(name for name in start if name != "gain")
    optimizer = torch.optim.AdamW(
        [
            {"params": [theirs[name] for name in names], "weight_decay": decay}
            for names, decay in ((gains, 0.0), (others, 0.15))
        ],
        eps=1e-5,
        fused=fused,
    )
    groups = [weight_step.Group(gains, 1e-5, 0.0), weight_step.Group(others, 1e-5, 0.15, scale=2.0)]
    ours, adamw = start, weight_step.AdamW(start, groups, fused=fused)
    for update, gradient in enumerate(gradients_like(Parameters(**start), 12)):
        lr = 0.02 / (1 + update)
        for name, tensor in gradient.named().items():
            theirs[name].grad = tensor.clone()
        optimizer.param_groups[0]["lr"] = lr
        optimizer.param_groups[1]["lr"] = 2.0 * lr
        optimizer.step()
        if update == 5:
            saved, adamw = adamw.state_dict(), weight_step.AdamW(ours, groups, fused=fused)
            adamw.load_state_dict(saved)
        adamw.step(ours, gradient.named(), lr)
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name].detach()), (update, name)


def test_a_state_of_other_tensors_is_refused() -> None:
    small, large = {"w": torch.zeros(1)}, {"w": torch.zeros(3)}
    groups = [weight_step.Group(("w",), 1e-8, 0.0)]
    with pytest.raises(ValueError, match=r"w: shape \(1,\) for \(3,\)"):
        weight_step.AdamW(large, groups).load_state_dict(weight_step.AdamW(small, groups).state_dict())


@pytest.mark.parametrize("method", ["hep", "lra"])
def test_training_imports_neither_the_compiler_nor_the_analysis(method: str, tiny: Any, tmp_path: Path) -> None:
    spec = tiny(method) if method == "hep" else tiny(method, inference=None, highway=None, rule=options.Lra())
    heavy = ["torch._dynamo", "sympy", "pandas", "matplotlib", "scipy", "jsonschema", "yaml", "jinja2"]
    code = (
        "import sys; from highways.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "train", "--spec", spec.to_json(), "--out", str(tmp_path / "r.json")]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize("gain_decays", [False, True])
def test_a_gain_without_a_gradient_decays_only_on_demand(gain_decays: bool) -> None:
    spec = make_spec(learning={"lr": 0.5, "weight_decay": 0.1}, conventions={"weight_decay_on_gain": gain_decays})
    parameters = initialise(spec, 5, 4)
    before = parameters.clone()
    zero = Parameters(**{name: torch.zeros_like(tensor) for name, tensor in parameters.named().items()})
    weight_step.apply(weight_step.weight_optimizer(spec, parameters), parameters, zero, lr=0.5)
    kept = 1 - 0.5 * 0.1
    torch.testing.assert_close(parameters.gain, before.gain * (kept if gain_decays else 1.0))
    for ours, start in zip(parameters.matrices(), before.matrices(), strict=True):
        torch.testing.assert_close(ours, start * kept)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_update_steps_down_the_gradient_by_the_learning_rate(dtype: str) -> None:
    spec = make_spec(dtype=dtype, learning={"weight_decay": 0.0})
    parameters = initialise(spec, 5, 4)
    before, (gradient,) = parameters.clone(), gradients_like(parameters, 1)
    weight_step.apply(weight_step.weight_optimizer(spec, parameters), parameters, gradient, lr=0.25)
    for name, tensor in parameters.named().items():
        torch.testing.assert_close(
            tensor - before.named()[name], -0.25 * gradient.named()[name].sign(), rtol=0, atol=1e-5
        )


# The schedule


def rates(updates: int, **settings: Any) -> list[float]:
    learning = Learning(**{"lr": 0.1, **settings})
    return [weight_step.learning_rate(learning, update, updates) for update in range(updates)]


def test_a_constant_rate_is_constant() -> None:
    assert rates(50, schedule="constant", horizon=7) == [0.1] * 50


def test_the_rate_warms_up_linearly_and_is_full_at_the_end_of_warm_up() -> None:
    warm = rates(100, schedule="warmup_cosine", warmup_fraction=0.2)
    assert warm[:20] == pytest.approx([0.1 * (update + 1) / 20 for update in range(20)], rel=1e-14)
    assert warm[20] == max(warm) == pytest.approx(0.1, rel=1e-14)


def test_after_warm_up_the_rate_falls_as_half_a_cosine_to_zero_at_the_horizon() -> None:
    learning = Learning(lr=0.1, schedule="warmup_cosine", warmup_fraction=0.2)
    for update, expected in ((20, 0.1), (60, 0.05), (40, 0.05 * (1 + math.sqrt(0.5))), (100, 0.0), (130, 0.0)):
        assert weight_step.learning_rate(learning, update, 100) == pytest.approx(expected, abs=1e-17)
    falling = rates(100, schedule="warmup_cosine", warmup_fraction=0.2)[20:]
    assert falling == sorted(falling, reverse=True)
    assert 0 < falling[-1] < 1e-4


def test_a_run_without_warm_up_starts_at_the_full_rate() -> None:
    assert rates(10, schedule="warmup_cosine", warmup_fraction=0.0)[0] == 0.1


def test_a_horizon_beyond_the_run_cuts_the_schedule_short() -> None:
    settings = {"schedule": "warmup_cosine", "warmup_fraction": 0.05}
    long = rates(200, **settings)
    assert rates(40, **settings, horizon=200) == long[:40]
    assert rates(40, **settings) != long[:40]
    assert rates(200, **settings, horizon=200) == long


def test_all_of_the_horizon_may_be_warm_up() -> None:
    warm = rates(10, schedule="warmup_cosine", warmup_fraction=1.0)
    assert warm == pytest.approx([0.01 * (update + 1) for update in range(10)], rel=1e-14)
