"""The network: its initialisation, its readings and its random streams."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from highways.data import load
from highways.model.network import Architecture, feedforward, initialise, sweep
from highways.model.randomness import generator
from networks import KERNELS, READINGS, PlainNetwork, make_problem, make_spec, name_of, stream

WIDE = {"depth": 6, "width": 128}


@pytest.mark.parametrize("layer", range(6))
def test_every_matrix_is_drawn_from_a_normal_of_variance_one_over_fan_in(layer: int) -> None:
    weight = initialise(make_spec(**WIDE), inputs=50, classes=20).matrices()[layer]
    fan_in = {0: 50}.get(layer, 128)
    entries = weight.numel()
    sample = (weight * math.sqrt(fan_in)).flatten().sort().values
    normal = 0.5 * (1 + torch.erf(sample / math.sqrt(2)))
    steps = torch.arange(entries + 1, dtype=torch.float64) / entries
    distance = torch.maximum(steps[1:] - normal, normal - steps[:-1]).max()
    # Massart: P(sqrt(n) D > 2.5) < 2 exp(-2 * 2.5^2) < 1e-5
    assert math.sqrt(entries) * distance < 2.5
    # the mean square of n normals has a standard deviation of sqrt(2/n); five are exceeded with 6e-7
    assert abs(sample.square().mean() - 1) < 5 * math.sqrt(2 / entries)


def test_no_two_matrices_and_no_two_seeds_share_their_numbers() -> None:
    matrices = [*initialise(make_spec(**WIDE), 128, 128).matrices()]
    matrices += initialise(make_spec(**WIDE, seed=1), 128, 128).matrices()
    numbers = torch.stack([matrix.flatten() for matrix in matrices])
    correlation = torch.corrcoef(numbers) - torch.eye(len(matrices))
    # the correlation of n = 128^2 independent pairs has a standard deviation of n^-1/2 = 1/128
    assert correlation.abs().max() < 5 / 128


def test_the_matrix_of_a_layer_does_not_depend_on_the_depth() -> None:
    shallow, deep = (initialise(make_spec(depth=depth), 5, 4) for depth in (8, 16))
    assert torch.equal(shallow.w_in, deep.w_in)
    assert torch.equal(shallow.w_hidden, deep.w_hidden[:6])


@pytest.mark.parametrize("inputs", [40, 5])
def test_orthogonal_matrices_are_orthogonal(inputs: int) -> None:
    spec = make_spec(depth=5, width=16, initialisation="orthogonal")
    parameters = initialise(spec, inputs=inputs, classes=4)
    for weight in parameters.matrices():
        short = weight if weight.shape[0] <= weight.shape[1] else weight.T
        torch.testing.assert_close(short @ short.T, torch.eye(len(short), dtype=torch.float64), rtol=0, atol=1e-12)
    assert not torch.equal(parameters.w_hidden[0], parameters.w_hidden[1])


@pytest.mark.parametrize("initialisation", ["gaussian", "orthogonal"])
def test_single_precision_starts_from_the_rounded_double_precision_numbers(initialisation: str) -> None:
    single, double = (
        initialise(make_spec(initialisation=initialisation, dtype=dtype, conventions={"bias": True}), 5, 4)
        for dtype in ("float32", "float64")
    )
    for name, tensor in double.named().items():
        assert torch.equal(single.named()[name], tensor.to(torch.float32)), name


@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("normalise", [False, True])
def test_gains_start_at_one_and_exist_for_every_normalised_state(depth: int, normalise: bool) -> None:
    spec = make_spec(depth=depth, conventions={"normalise_output_input": normalise})
    parameters = initialise(spec, 5, 4)
    assert torch.equal(parameters.gain, torch.ones(depth - 1 if normalise else depth - 2, 6).double())
    assert (parameters.output_gain is not None) == normalise
    assert parameters.depth == depth == len(parameters.matrices())


def test_biases_start_at_zero_and_exist_only_on_demand() -> None:
    with_bias = initialise(make_spec(depth=6, conventions={"bias": True}), 5, 4).named()
    assert {name: tensor.shape for name, tensor in with_bias.items() if name.startswith("b_")} == {
        "b_in": (6,),
        "b_hidden": (4, 6),
        "b_out": (4,),
    }
    assert all(not tensor.any() for name, tensor in with_bias.items() if name.startswith("b_"))
    without = initialise(make_spec(depth=6), 5, 4).named()
    assert not any(name.startswith("b_") for name in without)


@pytest.mark.parametrize("initialisation", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_draws_from_the_global_random_stream(initialisation: str, kernel: str) -> None:
    before = torch.random.get_rng_state()
    make_problem("hep", initialisation=initialisation).gradient(kernel)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_named_stream_depends_on_its_seed_and_its_name_only() -> None:
    def numbers(seed: int, name: str) -> Tensor:
        return torch.randn(8, generator=generator(seed, name))

    assert torch.equal(numbers(3, "weights/1"), numbers(3, "weights/1"))
    others = [numbers(4, "weights/1"), numbers(3, "weights/2"), numbers(31, "weights/"), numbers(3, "weights/11")]
    assert not any(torch.equal(numbers(3, "weights/1"), other) for other in others)


@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("reading", READINGS, ids=name_of)
def test_the_sweep_is_the_network_of_that_reading(reading: dict[str, Any], phi: str) -> None:
    problem = make_problem(phi=phi, conventions={**reading, "rms_eps": 1e-2})
    network = PlainNetwork(problem)
    states, logits = sweep(problem.parameters, problem.x, problem.architecture)
    z = problem.x
    for layer, state in enumerate(states):
        z = network.prediction(layer, z)
        torch.testing.assert_close(state, z, rtol=0, atol=1e-13)
    torch.testing.assert_close(logits, network(problem.x), rtol=0, atol=1e-13)
    assert torch.equal(feedforward(problem.parameters, problem.x, problem.architecture), logits)


@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("reading", READINGS, ids=name_of)
def test_every_layer_is_predicted_from_the_state_below_it(reading: dict[str, Any], phi: str) -> None:
    problem = make_problem(phi=phi, conventions={**reading, "rms_eps": 1e-2})
    network, z = PlainNetwork(problem), problem.states()
    predictions = problem.predict(z)
    for layer, below in enumerate([problem.x, *z[:-1]]):
        torch.testing.assert_close(predictions.mu[layer], network.prediction(layer, below), rtol=0, atol=1e-13)
    torch.testing.assert_close(predictions.logits, network.prediction(4, z[-1]), rtol=0, atol=1e-13)


def test_the_output_does_not_feel_the_scale_of_a_normalised_layer() -> None:
    conventions = {"rms_eps": 0.0, "normalise_output_input": True, "activation": "post"}
    problem = make_problem(width=24, phi="relu", conventions=conventions)
    before = feedforward(problem.parameters, problem.x, problem.architecture)
    problem.parameters.w_in.mul_(3.0)
    problem.parameters.w_hidden.mul_(torch.rand(3, 1, 1, generator=stream(0)).double() + 0.5)
    after = feedforward(problem.parameters, problem.x, problem.architecture)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-13)


def test_a_silent_layer_is_normalised_to_zero() -> None:
    problem = make_problem(phi="relu", conventions={"activation": "post"})
    problem.parameters.w_in.zero_()
    logits = feedforward(problem.parameters, problem.x, problem.architecture)
    assert torch.equal(logits, torch.zeros(3, 4).double())


def test_the_architecture_is_read_off_the_spec() -> None:
    spec = make_spec(phi="relu", conventions={"activation": "both", "rms_eps": 0.5})
    assert Architecture.of(spec) == Architecture("relu", "both", False, 0.5)


def test_in_a_deep_network_from_the_gaussian_start_all_images_look_alike() -> None:
    """A wide layer of relu maps two unit vectors at an angle a to an angle with the cosine
    (sin a + (pi - a) cos a) / pi (Cho & Saul 2009); at width 128 shallow networks come near it.
    """

    def cosines(z: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(z, dim=1)
        return unit @ unit.T

    def over_pairs(values: Tensor) -> float:
        return values[~torch.eye(len(values), dtype=torch.bool)].mean().item()

    images = load("fashion_mnist_excerpt").train.images[:128].double()
    spec = make_spec(depth=128, width=128, phi="relu", conventions={"activation": "both"})
    z, _ = sweep(initialise(spec, images.shape[1], 10), images, Architecture.of(spec))
    expected = cosines(z[0])
    for _ in range(6):
        angle = expected.clamp(-1, 1).arccos()
        expected = (angle.sin() + (math.pi - angle) * expected) / math.pi
    assert 1 - over_pairs(cosines(z[6])) == pytest.approx(1 - over_pairs(expected), rel=0.35)
    assert over_pairs(cosines(z[126])) > 0.999
