"""Predictions, errors and products with J^T of a network for one image, without a batch dimension.

    mu_1 = psi(W_0 x)      mu_{l+1} = psi(W_l h(z_l)) [+ z_l]      mu_L = W_{L-1} h(z_{L-1})

psi is phi or the identity, h the encoding of `network.encode`. States are (L-1, N).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from highways.model.network import (
    Architecture,
    Encoding,
    Parameters,
    activated,
    encode,
    encode_transposed,
    field_of,
    first_prediction,
    initialise,
    output_error,
    phi,
    prediction_of,
    times_phi_prime,
)
from highways.model.randomness import generator
from highways.propagation.spec import Propagation
from highways.specs.options import mupc_scales
from highways.specs.run import RunSpec


class SingleSampleNetwork(NamedTuple):
    """parameters: the matrices with their scale factors applied; no gains where nothing is normalised.

    transposed: W_l^T of the hidden matrices, (L-2, N, N).
    """

    parameters: Parameters
    architecture: Architecture
    transposed: Tensor

    @property
    def gain(self) -> Tensor | None:
        gain = self.parameters.gain[: self.parameters.depth - 2]
        return gain if len(self.parameters.gain) else None


class Point(NamedTuple):
    """The network at states z (L-1, N): a = W_l h(z_l) + b_l and active = psi(a), both (L-2, N), logits (C,),
    errors (L-1, N) and (C,), and the encodings below the hidden and the output matrices, which `pulls` needs.
    """

    z: Tensor
    a: Tensor
    active: Tensor
    logits: Tensor
    hidden_error: Tensor
    output_error: Tensor
    hidden: Encoding
    output: Encoding

    def rms(self) -> Tensor:
        """The rms error of layers 1..L, (L,), in double precision, so that squares do not underflow."""
        hidden = self.hidden_error.double().square().mean(-1)
        return torch.cat([hidden, self.output_error.double().square().mean().reshape(1)]).sqrt()


def build(spec: Propagation, inputs: int, classes: int, weights: Parameters | None = None) -> SingleSampleNetwork:
    """The network of a spec; `weights` of a trained network replace the drawn ones in the network `paper`."""
    run = spec.run
    if spec.network == "paper":
        parameters, architecture = weights or initialise(run, inputs, classes), Architecture.of(run)
    else:
        draw = _uniform if spec.network == "plain" else _mupc
        parameters = _drawn(run, inputs, classes, draw)
        skips = spec.network == "mupc"
        architecture = Architecture(run.network.phi, "pre", False, run.conventions.rms_eps, skips, squared=True)
    return SingleSampleNetwork(parameters, architecture, parameters.w_hidden.transpose(1, 2).contiguous())


# (weight, layer, depth, stream) -> weight: fills the matrix of a layer, in place, from a random stream.
Draw = Callable[[Tensor, int, int, torch.Generator], Tensor]


def _uniform(weight: Tensor, layer: int, depth: int, stream: torch.Generator) -> Tensor:
    bound = weight.shape[1] ** -0.5
    return weight.uniform_(-bound, bound, generator=stream)


def _mupc(weight: Tensor, layer: int, depth: int, stream: torch.Generator) -> Tensor:
    """N(0, 1) with the scalings of muPC."""
    fan_in = weight.shape[1]  # D below the first hidden layer, N above it
    scale = mupc_scales(depth, fan_in, fan_in)[field_of(layer, depth)]
    return weight.normal_(0.0, 1.0, generator=stream).mul_(scale)


def _drawn(run: RunSpec, inputs: int, classes: int, draw: Draw) -> Parameters:
    """Matrices that `draw` fills from the streams of `network.initialise`, without gains or biases."""
    depth, width = run.network.depth, run.network.width
    sizes = [inputs, *[width] * (depth - 1), classes]
    matrices = [
        draw(
            torch.empty(rows, columns, dtype=torch.float64),
            layer,
            depth,
            generator(run.seed, f"weights/{layer}"),
        ).to(getattr(torch, run.dtype))
        for layer, (columns, rows) in enumerate(pairwise(sizes))
    ]
    hidden = torch.stack(matrices[1:-1])
    return Parameters(matrices[0], hidden, matrices[-1], gain=hidden.new_zeros(0, width))


def product(stack: Tensor, h: Tensor) -> Tensor:
    """W_l h_l of every layer of a stack: (M, N, N) and (M, N) to (M, N)."""
    return torch.bmm(stack, h.unsqueeze(-1)).squeeze(-1)


def sweep(chain: SingleSampleNetwork, x: Tensor) -> Tensor:
    """Hidden states, (L-1, N), that equal their predictions bit for bit, from an input (D,)."""
    states = [first_prediction(chain.parameters, x, chain.architecture)]
    z = torch.stack(states * (chain.parameters.depth - 1))
    # Layer l is final after l repetitions, computed by the same product that predicts it later.
    for _ in range(chain.parameters.depth):
        a, _ = _products(chain, z)
        z = torch.cat([z[:1], prediction_of(a, z[:-1], chain.architecture)])
    return z


def _products(chain: SingleSampleNetwork, z: Tensor) -> tuple[Tensor, Encoding]:
    """W_l h(z_l) + b_l of the hidden matrices, and the encodings below them."""
    hidden = encode(z[:-1], chain.gain, chain.architecture)
    a = product(chain.parameters.w_hidden, hidden.h)
    return a if chain.parameters.b_hidden is None else a + chain.parameters.b_hidden, hidden


def at(chain: SingleSampleNetwork, mu_1: Tensor, y: Tensor, z: Tensor) -> Point:
    """The point of states z (L-1, N), given mu_1 (N,) and the target y (C,)."""
    a, hidden = _products(chain, z)
    active, mu = activated(a, chain.architecture), prediction_of(a, z[:-1], chain.architecture)
    output = encode(z[-1], chain.parameters.output_gain, chain.architecture)
    logits = torch.nn.functional.linear(output.h, chain.parameters.w_out, chain.parameters.b_out)
    error = torch.cat([z[:1] - mu_1, z[1:] - mu])
    return Point(z, a, active, logits, error, output_error(y, logits, chain.architecture), hidden, output)


def deviated(chain: SingleSampleNetwork, y: Tensor, start: Point, d: Tensor) -> Point:
    """The point of states start.z + d, where start has no hidden errors.

    eps = d - (mu(z + d) - mu(z)), every difference computed without cancellation. So errors of any size have
    full relative precision, whereas z - mu is lost below the rounding of z.
    """
    architecture, parameters = chain.architecture, chain.parameters
    z = start.z + d
    dh = _encode_change(start.z[:-1], start.hidden, d[:-1], chain.gain, architecture)
    da = product(parameters.w_hidden, dh)
    d_active = _phi_change(start.a, da, architecture) if architecture.activates_prediction else da
    d_mu = d_active + d[:-1] if architecture.skips else d_active
    dh = _encode_change(start.z[-1], start.output, d[-1], parameters.output_gain, architecture)
    logits = start.logits + parameters.w_out @ dh
    error = torch.cat([d[:1], d[1:] - d_mu])
    hidden = encode(z[:-1], chain.gain, architecture)
    output = encode(z[-1], parameters.output_gain, architecture)
    return Point(
        z,
        start.a + da,
        start.active + d_active,
        logits,
        error,
        output_error(y, logits, chain.architecture),
        hidden,
        output,
    )


def _phi_change(a: Tensor, d: Tensor, architecture: Architecture) -> Tensor:
    """phi(a + d) - phi(a) without cancellation."""
    if architecture.phi == "relu":
        return torch.where(a > 0, torch.maximum(d, -a), torch.relu(a + d))
    return d.sinh() / ((a + d).cosh() * a.cosh())


def _encode_change(
    z: Tensor, start: Encoding, d: Tensor, gain: Tensor | None, architecture: Architecture
) -> Tensor:
    """h(z + d) - h(z) without cancellation."""
    q = z
    if architecture.activation == "pre_norm":
        q, d = phi(z, architecture), _phi_change(z, d, architecture)
    if gain is not None and start.rms is not None and start.direction is not None:
        square = (2 * q * d + d * d).mean(-1, keepdim=True)
        rms = (start.rms.square() + square).sqrt()
        d = gain * (d - start.direction * (square / (rms + start.rms))) / rms
        q = gain * start.direction
    return _phi_change(q, d, architecture) if architecture.activation in ("pre", "both") else d


def pulls(chain: SingleSampleNetwork, point: Point) -> Tensor:
    """J_i^T eps_{i+1} of every hidden layer: (L-1, N)."""
    hidden = _hidden_pull(chain, point, point.hidden_error[1:])
    return torch.cat([hidden, _output_pull(chain, point, point.output_error).unsqueeze(0)])


def _hidden_pull(chain: SingleSampleNetwork, point: Point, error: Tensor) -> Tensor:
    g = (
        times_phi_prime(error, point.active, chain.architecture)
        if chain.architecture.activates_prediction
        else error
    )
    u = product(chain.transposed, g)
    pull, _ = encode_transposed(u, point.hidden, chain.gain, chain.architecture)
    return pull + error if chain.architecture.skips else pull


def _output_pull(chain: SingleSampleNetwork, point: Point, error: Tensor) -> Tensor:
    u = error @ chain.parameters.w_out
    return encode_transposed(u, point.output, chain.parameters.output_gain, chain.architecture)[0]


def carried(chain: SingleSampleNetwork, point: Point, nudge: Tensor | None = None) -> Tensor:
    """The output error carried down layer by layer: e_i = J_i^T e_{i+1} - nudge_i, (L-1, N).

    Without a nudge this is -dl/dz_i at the states of the point, a product of Jacobians. With the highways'
    nudge these are the errors of HEP at equilibrium.
    """
    error = _output_pull(chain, point, point.output_error)
    below = [error - nudge[-1] if nudge is not None else error]
    for layer in range(chain.parameters.depth - 3, -1, -1):
        one = SingleSampleNetwork(
            Parameters(
                chain.parameters.w_in,
                chain.parameters.w_hidden[layer : layer + 1],
                chain.parameters.w_out,
                chain.parameters.gain[layer : layer + 1],
            ),
            chain.architecture,
            chain.transposed[layer : layer + 1],
        )
        only = point._replace(active=point.active[layer : layer + 1], hidden=_layer(point.hidden, layer))
        error = _hidden_pull(one, only, below[-1].unsqueeze(0))[0]
        below.append(error - nudge[layer] if nudge is not None else error)
    return torch.stack(below[::-1])


def _layer(encoding: Encoding, layer: int) -> Encoding:
    direction, rms, active = (None if part is None else part[layer : layer + 1] for part in encoding[1:])
    return Encoding(encoding.h[layer : layer + 1], direction, rms, active)
