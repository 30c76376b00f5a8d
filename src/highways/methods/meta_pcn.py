"""Meta-PCN (Ha et al., ICLR 2026): a re-implementation from secondary descriptions, since no code was found.

    c_l, J_l                                    the forward sweep and its Jacobians, frozen
    delta_l <- delta_l - lambda (delta_l - J_l^T delta_{l+1})    T times, delta_l = z_l - c_l, delta_L = eps_L
    dW_l = -(delta_{l+1} * phi') h(c_l)^T
    W <- W / ((sqrt m + sqrt n) std(W))         after every update, W of m x n

The recursion is linear, and its fixed point is the backprop error. With lambda = 1 it is reached exactly
after L - 1 steps. Local: neighbours, W^T and stored forward values. Cost: T products over all layers at once;
with lambda = 1 and T >= L - 1 one backward sweep computes the same errors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from highways.methods import base
from highways.methods.base import Gradient
from highways.methods.sweeps import Sweep, downwards, upwards
from highways.model.energy import Errors, Relaxed, weight_gradient
from highways.model.network import (
    Architecture,
    Parameters,
    encode,
    encode_transposed,
    output_error,
    times_phi_prime,
)
from highways.specs.run import RunSpec


class Rule(base.Rule):
    """Linear inference around the forward sweep, the local weight step, the normalisation of the weights."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        self.steps = spec.rule.steps_at(spec.network.depth)

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        sweep = upwards(parameters, x, self.architecture)
        output = output_error(y, sweep.logits, self.architecture)
        if self.options.step_size == 1.0 and self.steps >= parameters.depth - 1:
            delta = downwards(parameters, sweep, output, self.architecture)
        else:
            delta = self.relaxed(parameters, sweep, output)
        errors = Errors(delta, output)
        weights = weight_gradient(
            parameters, x, Relaxed(sweep.states, sweep.predictions, errors), self.architecture
        )
        return Gradient(weights, sweep.logits, errors)

    def relaxed(self, parameters: Parameters, sweep: Sweep, output: Tensor) -> Tensor:
        """delta after T steps from 0, all layers at once: (L-1, B, N)."""
        architecture = self.architecture
        hidden = encode(sweep.states[:-1], parameters.hidden_gain, architecture)
        u = output @ parameters.w_out
        top = encode_transposed(u, sweep.encodings[-1], parameters.output_gain, architecture)[0]
        delta = torch.zeros_like(sweep.states)
        for _ in range(self.steps):
            g = delta[1:]
            if architecture.activates_prediction:
                g = times_phi_prime(g, sweep.predictions[1:], architecture)
            u = torch.bmm(g, parameters.w_hidden)
            below = encode_transposed(u, hidden, parameters.hidden_gain, architecture)[0]
            if architecture.skips:
                below = below + delta[1:]
            delta = torch.lerp(delta, torch.cat([below, top.unsqueeze(0)]), self.options.step_size)
        return delta

    def step(self, parameters: Parameters, gradient: Gradient, lr: float, descend: Callable[[], None]) -> None:
        descend()
        if self.options.normalise:
            normalise(parameters)


def normalise(parameters: Parameters) -> None:
    """Scale every matrix to an expected spectral norm of 1, in place."""
    for matrix in parameters.matrices():
        rows, columns = matrix.shape
        matrix.div_((rows**0.5 + columns**0.5) * matrix.std())
