"""The diagnostic relaxation against autograd, closed forms and a higher precision."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from highways.methods.feedback import feedback_matrices
from highways.model import energy
from highways.model.network import first_prediction, prediction_of
from highways.propagation import chain as networks
from highways.propagation.chain import SingleSampleNetwork
from highways.propagation.relaxation import kept_steps, propagate
from highways.propagation.spec import Propagation
from highways.specs.fields import SpecError
from highways.specs.options import Ipc
from highways.specs.run import Conventions, Highway, Inference

ROUNDING = {"rtol": 1e-11, "atol": 1e-13}
READINGS = [
    Conventions(activation, normalise_output_input=output, bias=output)
    for activation in ("post", "pre", "both", "pre_norm")
    for output in (False, True)
]
NETWORKS = [("paper", reading) for reading in READINGS] + [("plain", None), ("mupc", None)]
EACH_NETWORK = pytest.mark.parametrize(
    ("network", "reading"), NETWORKS, ids=[f"{n}-{r and r.activation}-{r and r.bias}" for n, r in NETWORKS]
)


def rms_norm(z: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    return z if gain is None else gain * z / (z.square().mean() + eps).sqrt()


def energy_in_words(
    spec: Propagation, chain: SingleSampleNetwork, x: Tensor, y: Tensor, states: list[Tensor]
) -> Tensor:
    """1/2 sum ||z_i - mu_i||^2 plus the loss, layer by layer, from the definitions of the networks."""
    p, eps = chain.parameters, spec.run.conventions.rms_eps
    phi = torch.relu if spec.run.network.phi == "relu" else torch.tanh
    activation = spec.run.conventions.activation if spec.network == "paper" else "pre"
    gains = [p.gain[i] if i < len(p.gain) else None for i in range(p.depth - 1)]
    biases = [0.0] * (p.depth - 2) if p.b_hidden is None else list(p.b_hidden)

    def encoded(z: Tensor, gain: Tensor | None) -> Tensor:
        if activation == "pre_norm":
            return rms_norm(phi(z), gain, eps)
        normalised = rms_norm(z, gain, eps)
        return phi(normalised) if activation in ("pre", "both") else normalised

    def activated(a: Tensor) -> Tensor:
        return phi(a) if activation in ("post", "both") else a

    total = 0.5 * (states[0] - activated(p.w_in @ x + (0.0 if p.b_in is None else p.b_in))).square().sum()
    for i, weight in enumerate(p.w_hidden):
        mu = activated(weight @ encoded(states[i], gains[i]) + biases[i])
        if spec.network == "mupc":
            mu = mu + states[i]
        total = total + 0.5 * (states[i + 1] - mu).square().sum()
    logits = p.w_out @ encoded(states[-1], gains[-1]) + (0.0 if p.b_out is None else p.b_out)
    if spec.network == "paper":
        return total - (y * logits.log_softmax(-1)).sum()
    return total + 0.5 * (y - logits).square().sum()


def built(spec: Propagation, x: Tensor, y: Tensor) -> tuple[SingleSampleNetwork, Tensor]:
    chain = networks.build(spec, len(x), len(y))
    for name, tensor in chain.parameters.named().items():
        if name.startswith("b_") or name == "gain":  # 0 and 1 at first, which would hide mistakes
            tensor += 0.3 * torch.randn(
                tensor.shape, dtype=tensor.dtype, generator=torch.Generator().manual_seed(1)
            )
    return chain, networks.sweep(chain, x)


@EACH_NETWORK
@pytest.mark.parametrize("phi", ["relu", "tanh"])
def test_the_state_gradient_is_that_of_the_energy(small, image, network, reading, phi):
    spec = small(network, reading=reading, phi=phi)
    chain, z = built(spec, *image)
    z = z + 0.2 * torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(2))
    mu_1 = first_prediction(chain.parameters, image[0], chain.architecture)
    point = networks.at(chain, mu_1, image[1], z)
    states = [row.clone().requires_grad_() for row in z]
    truth = torch.autograd.grad(energy_in_words(spec, chain, *image, states), states)
    torch.testing.assert_close(point.hidden_error - networks.pulls(chain, point), torch.stack(truth), **ROUNDING)


@EACH_NETWORK
def test_the_sweep_has_no_hidden_error_and_passes_on_the_gradient_of_the_loss(small, image, network, reading):
    spec = small(network, reading=reading)
    chain, z = built(spec, *image)
    point = networks.at(chain, z[0], image[1], z)
    assert torch.count_nonzero(point.hidden_error) == 0
    # Moving z_i by an offset that all layers above follow changes the energy by the loss alone.
    offsets = torch.zeros_like(z, requires_grad=True)
    followed = [z[0] + offsets[0]]
    for i in range(1, len(z)):
        one = chain._replace(
            parameters=replace(
                chain.parameters,
                w_hidden=chain.parameters.w_hidden[i - 1 : i],
                gain=chain.parameters.gain[i - 1 : i],
                b_hidden=None if chain.parameters.b_hidden is None else chain.parameters.b_hidden[i - 1 : i],
            )
        )
        a, _ = networks._products(one, torch.stack([followed[-1], followed[-1]]))
        followed.append(prediction_of(a, followed[-1], chain.architecture)[0] + offsets[i])
    loss = energy_in_words(spec, chain, *image, [row.detach() for row in followed[:-1]] + [followed[-1]])
    (truth,) = torch.autograd.grad(loss, offsets)
    torch.testing.assert_close(networks.carried(chain, point), -truth, **ROUNDING)


def test_the_paper_s_network_relaxes_as_in_training(small, image):
    spec = small("paper", "hep")
    chain, z = built(spec, *image)
    z = z + 0.2
    point = networks.at(chain, z[0] * 0, image[1], z)
    y, states = image[1].unsqueeze(0), z.unsqueeze(1)
    predictions = energy.predict(chain.parameters, states, z[:1] * 0, chain.architecture)
    error = energy.errors(states, y, predictions, chain.architecture)
    truth = energy.state_gradient(chain.parameters, predictions, error, chain.architecture)[:, 0]
    torch.testing.assert_close(point.hidden_error - networks.pulls(chain, point), truth, **ROUNDING)


@pytest.mark.parametrize("network", ["paper", "plain", "mupc"])
def test_the_first_signal_is_the_backprop_error_times_a_power_of_the_step(small, image, network):
    """At the paper's depth 64 errors fall below 1e-80, which a state of size 1 cannot hold."""
    spec = small(network, depth=64, steps=64, form="deviations")
    trace = propagate(spec, *image)
    for layer in range(1, 64):
        arrived = trace.errors[64 - layer, layer - 1]
        assert arrived == pytest.approx(0.05 ** (64 - layer) * trace.backprop[layer - 1], rel=1e-9)
        assert trace.errors[64 - layer - 1, layer - 1] == 0
    assert 0 < trace.errors[63, 0] < 1e-80


@pytest.mark.parametrize("network", ["paper", "plain", "mupc"])
@pytest.mark.parametrize("method", ["pc", "hep"])
def test_errors_at_rest_are_what_the_layer_above_passes_on(small, image, network, method):
    """e_i = J_i^T e_{i+1} (Eq. app_steady), with highways minus alpha V_i eps_L."""
    if (network, method) == ("mupc", "hep"):
        pytest.skip("μPC has no highways")
    spec = small(network, method, depth=4, steps=6000, step_size=0.05, phi="tanh")
    trace = propagate(spec, *image)
    assert np.all(trace.errors[-1] > 1e-5)
    np.testing.assert_allclose(trace.steady, trace.errors[-1], rtol=1e-6)


def test_what_is_missing_of_the_equilibrium_are_units_on_the_kink_of_the_relu(small, image):
    """At rest every unit obeys Eq. app_steady, except units that the steps move to and fro across z = 0."""
    spec = small("plain", depth=8, width=32, steps=6000)
    chain = networks.build(spec, len(image[0]), len(image[1]))
    z = networks.sweep(chain, image[0])
    mu_1, signs = z[0].clone(), []
    for step in range(spec.run.inference.steps):
        point = networks.at(chain, mu_1, image[1], z)
        gradient = point.hidden_error - networks.pulls(chain, point)
        if step >= spec.run.inference.steps - 100:
            signs.append(z > 0)
        z = z - 0.05 * gradient
    on_the_kink = torch.stack(signs).diff(dim=0).any(dim=0)
    assert 0 < on_the_kink.sum() < on_the_kink.numel() / 2
    assert gradient[~on_the_kink].abs().max() < 0.01 * point.hidden_error.abs().max()
    assert gradient[on_the_kink].abs().max() > 0.1 * point.hidden_error.abs().max()


def test_a_highway_moves_its_layer_in_the_first_step(small, image):
    """eps_i = -lambda alpha V_i eps_L where the layer below has not moved."""
    spec = small("paper", "hep", reading=Conventions("both", highway_layers="without_first"))
    trace = propagate(spec, *image)
    chain = networks.build(spec, 20, 10)
    z = networks.sweep(chain, image[0])
    output = networks.at(chain, z[0], image[1], z).output_error
    moved = 0.05 * 0.3 * (feedback_matrices(spec.run, 10) @ output)
    np.testing.assert_allclose(trace.errors[1, 1], moved[0].square().mean().sqrt(), rtol=1e-9)
    assert trace.errors[1, 0] == 0


@pytest.mark.parametrize("reading", READINGS[::2], ids=[r.activation for r in READINGS[::2]])
@pytest.mark.parametrize("phi", ["relu", "tanh"])
def test_deviations_and_states_are_two_forms_of_one_relaxation(small, image, reading, phi):
    for method in ("pc", "hep"):
        spec = small("paper", method, reading=reading, phi=phi, steps=60)
        plain, deviations = propagate(spec, *image), propagate(replace(spec, form="deviations"), *image)
        np.testing.assert_allclose(deviations.errors, plain.errors, rtol=1e-7, atol=1e-13)


def test_deviations_have_no_floor_at_the_rounding_of_the_states(small, image):
    """In float32 they agree with float64, also where the plain form has rounded the error to zero."""
    truth = propagate(small("paper", depth=20, steps=25, form="deviations"), *image)
    single = propagate(small("paper", depth=20, steps=25, form="deviations", dtype="float32"), *image)
    states = propagate(small("paper", depth=20, steps=25, dtype="float32"), *image)
    assert 0 < truth.errors[-1, 0] < 1e-20
    np.testing.assert_allclose(single.errors[-1], truth.errors[-1], rtol=1e-3)
    assert states.errors[-1, 6] == 0


def test_networks_are_drawn_as_their_authors_define_them(small):
    depth, width, inputs = 10, 64, 100
    plain = networks.build(small("plain", depth=depth, width=width), inputs, 10).parameters
    mupc = networks.build(small("mupc", depth=depth, width=width), inputs, 10)
    for weight, fan_in in zip(plain.matrices(), [inputs, *[width] * (depth - 1)], strict=True):
        bound = fan_in**-0.5
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert len(plain.gain) == 0
    stds = [weight.std().item() for weight in mupc.parameters.matrices()]
    wanted = [inputs**-0.5, *[(width * depth) ** -0.5] * (depth - 2), 1 / width]
    assert stds == pytest.approx(wanted, rel=0.12)
    assert mupc.architecture.skips
    assert mupc.architecture.squared


def test_mupc_keeps_its_activity_over_depth(image, small):
    """With skips the state of layer 63 is of size 1; without them it is below 1e-50."""
    spec = small("mupc", depth=64, width=128)
    chain = networks.build(spec, 20, 10)
    top = networks.sweep(chain, image[0])[-1].square().mean().sqrt().item()
    bare = (
        networks.sweep(chain._replace(architecture=replace(chain.architecture, skips=False)), image[0])[-1]
        .square()
        .mean()
        .sqrt()
        .item()
    )
    assert 0.3 < top < 3
    assert bare < 1e-50


@pytest.mark.parametrize("method", ["dfa", "backprop"])
def test_a_rule_without_inference_has_its_errors_at_once(small, image, method):
    spec = small("paper", method)
    trace = propagate(spec, *image)
    assert trace.steps.tolist() == [0, 1]
    assert np.all(trace.errors[0, :-1] == 0)
    if method == "backprop":
        np.testing.assert_allclose(trace.errors[1], trace.backprop, rtol=1e-12)
    else:
        chain = networks.build(spec, 20, 10)
        z = networks.sweep(chain, image[0])
        output = networks.at(chain, z[0], image[1], z).output_error
        wanted = 0.3 * (feedback_matrices(spec.run, 10) @ output)
        np.testing.assert_allclose(trace.errors[1, :-1], wanted.square().mean(-1).sqrt(), rtol=1e-12)


def test_the_trace_of_ipc_is_its_own(small, image):
    """With the weights held, its errors are those of PC after L - 1 steps at iPC's step size."""
    rule = Ipc(step_size=0.4)
    still = small(depth=6, step_size=0.4, steps=5)
    own = replace(still, run=replace(still.run, method="ipc", inference=None, rule=rule))
    theirs, ours = propagate(still, *image).errors[-1], propagate(own, *image).errors[-1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-11)
    assert ours[0] > 0
    assert "/ipc/untrained/sweep/" in own.path


def test_adam_moves_an_untouched_coordinate_by_one_step(small, image):
    """The first step of Adam is -lambda g / (|g| + eps), in each coordinate of the last hidden layer."""
    spec = small("plain")
    spec = replace(spec, run=replace(spec.run, inference=Inference("adam", 0.05, 1, 1e-2)))
    trace = propagate(spec, *image)
    chain = networks.build(spec, 20, 10)
    z = networks.sweep(chain, image[0])
    g = networks.pulls(chain, networks.at(chain, z[0], image[1], z))[-1]
    wanted = (0.05 * g / (g.abs() + 1e-2)).square().mean().sqrt().item()
    assert trace.errors[1, -2] == pytest.approx(wanted, rel=1e-9)


def test_the_kept_steps_hold_the_arrival_and_the_end():
    assert kept_steps(10_000, 64)[:65] == list(range(65))
    assert kept_steps(10_000, 64)[-1] == 10_000
    assert len(kept_steps(10_000, 64)) < 170
    assert kept_steps(1, 64) == [0, 1]


def test_what_cannot_be_relaxed_says_what_can(small):
    with pytest.raises(SpecError, match="mupc is predictive coding"):
        small("mupc", "hep")
    with pytest.raises(SpecError, match="has no inference; it takes network paper"):
        small("plain", "dfa")
    with pytest.raises(SpecError, match="never trained"):
        small("plain", trained=small().run)
    cut = replace(small("paper", "hep").run, highway=Highway(0.3, chain=False))
    with pytest.raises(SpecError, match="without its chain"):
        Propagation(cut)
