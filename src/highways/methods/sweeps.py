"""Sequential sweeps: forward with errors added to the states, and backward with the output error."""

from typing import NamedTuple

import torch
from torch import Tensor

from highways.model.network import Architecture, Encoding, Parameters, climb, encode_transposed, times_phi_prime


class Sweep(NamedTuple):
    """states s_i = mu_i(s_{i-1}) + e_i and predictions mu_i, (L-1, B, N) for i = 1..L-1; logits mu_L (B, C).

    products: W_{i-1} h_{i-1}, what phi is applied to, (L-1, B, N). encodings: of s_1..s_{L-1}.
    """

    states: Tensor
    predictions: Tensor
    products: Tensor
    encodings: list[Encoding]
    logits: Tensor


def upwards(parameters: Parameters, x: Tensor, architecture: Architecture, errors: Tensor | None = None) -> Sweep:
    """A forward sweep from x (B, D), with the errors e_i, (L-1, B, N), added to the predictions on the way."""
    layers = list(climb(parameters, x, architecture, errors))
    states = torch.stack([layer.state for layer in layers])
    predictions = torch.stack([layer.prediction for layer in layers])
    products = torch.stack([layer.product for layer in layers])
    encodings = [layer.encoding for layer in layers]
    logits = torch.nn.functional.linear(encodings[-1].h, parameters.w_out, parameters.b_out)
    return Sweep(states, predictions, products, encodings, logits)


def downwards(parameters: Parameters, sweep: Sweep, output: Tensor, architecture: Architecture) -> Tensor:
    """The backward sweep: d_{L-1} = J_{L-1}^T eps_L and d_i = J_i^T d_{i+1}, (L-1, B, N), from eps_L (B, C).

    With eps_L = -dl/dmu_L, d_i is -dl/ds_i.
    """
    matrices, gamma = parameters.matrices(), parameters.gains()
    found: list[Tensor] = []
    g = output
    for layer in range(len(matrices) - 1, 0, -1):
        u = g @ matrices[layer]
        carried = encode_transposed(u, sweep.encodings[layer - 1], gamma[layer - 1], architecture)[0]
        found.append(carried + found[-1] if architecture.skips and found else carried)
        g = found[-1]
        if architecture.activates_prediction:
            g = times_phi_prime(g, sweep.predictions[layer - 1], architecture)
    return torch.stack(found[::-1])
