"""HEP: where its highways end, how they are drawn, what they change; and its ablations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.methods.feedback import feedback_matrices
from highways.specs.fields import SpecError
from networks import (
    CLASSES,
    KERNELS,
    make_problem,
    make_spec,
)
from rules import DEPTHS, ROUNDING


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
        # exceeded with a probability below 1e-5 (Massart); next, five standard deviations of a mean square
        assert math.sqrt(n) * torch.maximum(steps[1:] - normal, normal - steps[:-1]).max() < 2.5
        assert abs(sample.square().mean() - 1) < 5 * math.sqrt(2 / n)
    single = make_spec("hep", depth=5, width=200, dtype="float32", highway={"sigma_v": sigma_v})
    assert torch.equal(feedback_matrices(single, classes=50), feedback.to(torch.float32))


@pytest.mark.parametrize("optimizer", ["euler", "adam"])
def test_only_the_product_of_alpha_and_sigma_v_has_an_effect(optimizer: str) -> None:
    """So alpha = 0.1 at sigma_v = 0.01 equals alpha = 1 at the paper's printed sigma_v = 0.001."""
    settings: dict[str, Any] = {"phi": "relu", "inference": {"optimizer": optimizer}}
    one = make_problem("hep", **settings, highway={"alpha": 0.1, "sigma_v": 0.01}).gradient().weights.named()
    other = make_problem("hep", **settings, highway={"alpha": 1.0, "sigma_v": 0.001}).gradient().weights.named()
    none = make_problem("pc", **settings).gradient().weights.named()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], **ROUNDING)
    assert any((tensor - none[name]).abs().max() > 1e-6 for name, tensor in one.items())


def test_highways_change_the_gradient_of_layers_that_predictive_coding_leaves_silent() -> None:
    settings: dict[str, Any] = {"depth": 10, "inference": {"steps": 2}}
    without, with_highways = (make_problem(method, **settings).gradient() for method in ("pc", "hep"))
    assert not any(matrix.any() for matrix in without.weights.matrices()[:7])
    assert all(matrix.any() for matrix in with_highways.weights.matrices())


def test_without_the_chain_a_state_moves_by_its_own_error_and_its_highway() -> None:
    """Two Euler steps from the feedforward sweep, by hand: below the last hidden layer nothing else acts."""
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
