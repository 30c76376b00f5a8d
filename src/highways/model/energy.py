"""The paper's equations in closed form, for all layers at once.

    E = sum_{i<L} 1/2 ||eps_i||^2 + CE(y, mu_L)                       Eq. energy
    eps_i = z_i - mu_i,   eps_L = y - softmax(mu_L)                   Eq. errors
    dE/dz_i = eps_i - J_i^T eps_{i+1}                                 Eq. z_update_pc
            + alpha V_i eps_L   for i in S                            Eq. z_update (the highway)
    dE/dW_l = -(eps_{l+1} * phi'(W_l h_l)) h_l^T                      Eq. W_update_pc

Shapes: states z (L-1, B, N) stack z_1..z_{L-1}; x (B, D); y (B, C) one-hot. Everything is per sample.
Only the gradient of the weights sums over the batch; other reductions (mean or sum) are the caller's.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from highways.model.network import (
    Architecture,
    Encoding,
    ParameterGradient,
    Parameters,
    climb,
    encode,
    encode_transposed,
    output_error,
    prediction_of,
    times_phi_prime,
)


class Predictions(NamedTuple):
    """Predictions of every layer from the states below, and the encodings that made them.

    mu (L-1, B, N): mu_1..mu_{L-1};  logits (B, C): mu_L.
    hidden: encoding of z_1..z_{L-2};  output: encoding of z_{L-1}.
    """

    mu: Tensor
    logits: Tensor
    hidden: Encoding
    output: Encoding


class Errors(NamedTuple):
    """hidden (L-1, B, N): eps_1..eps_{L-1};  output (B, C): eps_L."""

    hidden: Tensor
    output: Tensor

    def rms(self) -> Tensor:
        """Root mean square of every layer's error over batch and units, (L,), layer 1 first."""
        hidden = self.hidden.square().mean((1, 2)).sqrt()
        return torch.cat([hidden, self.output.square().mean().sqrt().reshape(1)])


class Relaxed(NamedTuple):
    """Result of the E-step: states z_1..z_{L-1}, predictions mu_1..mu_{L-1}, (L-1, B, N) each, and errors."""

    z: Tensor
    mu: Tensor
    errors: Errors


class Highways(NamedTuple):
    """feedback (|S|, C, N): alpha V_i^T of the highway endpoints S = {first, first + every, ...} up to L-1.

    A highway carries the current output error, without a gradient (the stop-gradient of Eq. aug_energy).
    Without the chain, an ablation, J_i^T eps_{i+1} reaches the last hidden layer only.
    """

    feedback: Tensor
    first: int
    every: int
    chain: bool = True


class Schedule(NamedTuple):
    """Precisions that change from step to step: step t descends sum_{i<L} pi_i/2 ||eps_i||^2 + pi_L CE(y, mu_L).

    precisions (T, L): pi_1..pi_L at t = 1..T. momentum: Nesterov momentum of Euler's steps.
    """

    precisions: Tensor
    momentum: float = 0.0

    def weighted(self, error: "Errors", t: int) -> "Errors":
        """pi_i eps_i at step t = 1, 2, ..."""
        pi = self.precisions[t - 1]
        return Errors(error.hidden * pi[:-1].reshape(-1, 1, 1), error.output * pi[-1])


def hidden_product(h: Tensor, parameters: Parameters) -> Tensor:
    """W_l h_l + b_l of all hidden matrices in one product: (L-2, B, N) to (L-2, B, N)."""
    transposed = parameters.w_hidden.transpose(1, 2)
    if parameters.b_hidden is None:
        return torch.bmm(h, transposed)
    return torch.baddbmm(parameters.b_hidden.unsqueeze(1), h, transposed)


def predict(parameters: Parameters, z: Tensor, mu_1: Tensor, architecture: Architecture) -> Predictions:
    """Predictions of all layers from the states z of one step; mu_1 is fixed, since the input is clamped."""
    hidden = encode(z[:-1], parameters.hidden_gain, architecture)
    mu = prediction_of(hidden_product(hidden.h, parameters), z[:-1], architecture)
    output = encode(z[-1], parameters.output_gain, architecture)
    logits = torch.nn.functional.linear(output.h, parameters.w_out, parameters.b_out)
    return Predictions(torch.cat([mu_1.unsqueeze(0), mu]), logits, hidden, output)


@torch.no_grad()
def initial_states(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """States that equal their predictions bit for bit, (L-1, B, N).

    A forward sweep computes them layer by layer. A product of one layer may round differently from the same
    product in a batch of layers, so the batched prediction is repeated until it reproduces itself. Layer l is
    final after at most l repetitions; usually the first one changes nothing.
    """

    def multiply(layer: int, h: Tensor) -> Tensor:
        row = slice(layer - 1, layer)
        biases = None if parameters.b_hidden is None else parameters.b_hidden[row]
        return hidden_product(
            h.unsqueeze(0), replace(parameters, w_hidden=parameters.w_hidden[row], b_hidden=biases)
        )[0]

    z = torch.stack([layer.state for layer in climb(parameters, x, architecture, multiply=multiply)])
    mu_1 = z[0]
    for _ in range(parameters.depth):
        predicted = predict(parameters, z, mu_1, architecture).mu
        if torch.equal(predicted, z):
            break
        z = predicted
    return z


def errors(z: Tensor, y: Tensor, predictions: Predictions, architecture: Architecture) -> Errors:
    """Eq. errors; the supervisory loss is cross-entropy, or the squared error of muPC's network."""
    return Errors(z - predictions.mu, output_error(y, predictions.logits, architecture))


def energy(y: Tensor, predictions: Predictions, error: Errors) -> Tensor:
    """Eq. energy, per sample: (B,)."""
    hidden = 0.5 * error.hidden.square().sum((0, 2))
    return hidden - (y * predictions.logits.log_softmax(-1)).sum(-1)


def state_gradient(
    parameters: Parameters,
    predictions: Predictions,
    error: Errors,
    architecture: Architecture,
    highways: Highways | None = None,
) -> Tensor:
    """dE/dz_i = eps_i - J_i^T eps_{i+1}, plus alpha V_i eps_L at the endpoints; per sample, (L-1, B, N)."""
    gradient = error.hidden.clone()
    if highways is None or highways.chain:
        g = error.hidden[1:]
        if architecture.activates_prediction:
            g = times_phi_prime(g, predictions.mu[1:], architecture)
        u = torch.bmm(g, parameters.w_hidden)
        gradient[:-1] -= encode_transposed(u, predictions.hidden, parameters.hidden_gain, architecture)[0]
        if architecture.skips:
            gradient[:-1] -= error.hidden[1:]
    u = error.output @ parameters.w_out
    gradient[-1] -= encode_transposed(u, predictions.output, parameters.output_gain, architecture)[0]
    if highways is not None:
        gradient[highways.first - 1 :: highways.every] += torch.matmul(error.output, highways.feedback)
    return gradient


def weight_gradient(
    parameters: Parameters, x: Tensor, relaxed: Relaxed, architecture: Architecture
) -> ParameterGradient:
    """dE/dW_l, dE/dgamma_l and dE/db_l, summed over the batch, shaped like the parameters.

    Local: the highway does not appear in it (Eq. W_update).
    """
    g = relaxed.errors.hidden
    if architecture.activates_prediction:
        g = times_phi_prime(g, relaxed.mu, architecture)
    return outer_products(parameters, x, relaxed.z, Errors(g, relaxed.errors.output), architecture)


def outer_products(
    parameters: Parameters, x: Tensor, z: Tensor, g: Errors, architecture: Architecture
) -> ParameterGradient:
    """-g_{l+1} h_l^T of every matrix, and the gradients of gains and biases, summed over the batch.

    g: the errors at the outputs of the matrices, before phi.
    """
    gain = parameters.hidden_gain
    hidden = encode(z[:-1], gain, architecture)
    output = encode(z[-1], parameters.output_gain, architecture)
    g_in, g_hidden, g_out = g.hidden[0], g.hidden[1:], g.output
    u = torch.bmm(g_hidden, parameters.w_hidden)
    _, pull = encode_transposed(u, hidden, gain, architecture)
    gains = [] if pull is None else [-pull.sum(1)]
    _, pull = encode_transposed(g_out @ parameters.w_out, output, parameters.output_gain, architecture)
    if pull is not None:
        gains.append(-pull.sum(0, keepdim=True))
    biases = {}
    if parameters.b_in is not None:
        biases = {"b_in": -g_in.sum(0), "b_hidden": -g_hidden.sum(1), "b_out": -g_out.sum(0)}
    return ParameterGradient(
        w_in=-(g_in.T @ x),
        w_hidden=-torch.bmm(g_hidden.transpose(1, 2), hidden.h),
        w_out=-(g_out.T @ output.h),
        gain=torch.cat(gains) if gains else torch.zeros_like(parameters.gain),
        **biases,
    )
