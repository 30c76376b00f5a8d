"""LRA-E and rec-LRA: their targets by autograd, and the rules that they turn into."""

from typing import Any

import pytest
import torch

from highways.methods import weight_step
from highways.model.network import Parameters
from networks import READINGS, PlainNetwork, assert_gradients_match, make_problem, name_of
from rules import ALL_READINGS, ROUNDING, assert_normal, layers_of, linear_problem, plain_output_error


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
    """e_l = phi(a_l) - phi(a_l - beta d_l); d_l comes from the output for l in `direct`, else from l + 1."""
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
    """e_l = beta^{L-l} dl/dz_l."""
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
    """The gradients of rec-LRA with m = 1 and of DFA with its matrices, over beta except at the output."""
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
    """No phi follows the matrix, so e_l = beta d_l exactly."""
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
    optimizer = weight_step.weight_optimizer(problem.spec, problem.parameters)
    gradient = learner.gradient(problem.parameters, problem.x, problem.y)

    def descend() -> None:
        weight_step.apply(optimizer, problem.parameters, gradient.weights, 0.1)

    learner.step(problem.parameters, gradient, 0.1, descend)
    assert torch.equal(torch.cat([*learner.learned.tensors]), before)
    assert not torch.equal(problem.parameters.w_in, weights)
