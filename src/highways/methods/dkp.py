"""DKP: direct Kolen-Pollack feedback (Webster et al.): direct feedback alignment whose feedback is learned.

    eps_i = Psi_i eps_L           the error that layer i learns from, at its feedforward activity
    dW    as in predictive coding
    dPsi_i = -h(z_i) eps_L^T      with AdamW and weight decay, as W

Where Psi_{L-1} and W_{L-1}^T get the same steps and the same decay, every update multiplies their difference
by 1 - lr decay. Local: the output error is broadcast. Extra parameters: (L-1) N C. Cost: one forward sweep.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from highways.methods import base
from highways.methods.base import Gradient, Learned
from highways.model.energy import Errors, Relaxed, weight_gradient
from highways.model.network import Architecture, Parameters, encode, output_error, sweep
from highways.model.randomness import generator
from highways.specs.run import RunSpec


def feedback(spec: RunSpec, parameters: Parameters) -> Tensor:
    """Psi_1..Psi_{L-1}, (L-1, N, C), Glorot normal."""
    classes, width = parameters.w_out.shape
    std = (2 / (width + classes)) ** 0.5
    draws = [
        torch.empty(width, classes, dtype=torch.float64).normal_(
            0.0, std, generator=generator(spec.seed, f"feedback/{i}")
        )
        for i in range(1, spec.network.depth)
    ]
    return torch.stack(draws).to(parameters.w_out)


def feedback_gradient(parameters: Parameters, z: Tensor, output: Tensor, architecture: Architecture) -> Tensor:
    """-h(z_i) eps_L^T of every hidden layer, a mean over the batch: (L-1, N, C)."""
    hidden = encode(z[:-1], parameters.hidden_gain, architecture).h
    last = encode(z[-1], parameters.output_gain, architecture).h
    return torch.cat([hidden, last.unsqueeze(0)]).transpose(1, 2) @ output / -len(output)


class Rule(base.Rule):
    """One forward sweep, then the broadcast output error; the feedback learns too."""

    learned: Learned

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        self.learned = Learned(spec.learning, feedback(spec, parameters))

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        (psi,) = self.learned.tensors
        states, logits = sweep(parameters, x, self.architecture)
        z, output = torch.stack(states), output_error(y, logits, self.architecture)
        errors = Errors(output @ psi.transpose(1, 2), output)
        weights = weight_gradient(parameters, x, Relaxed(z, z, errors), self.architecture)
        d_psi = feedback_gradient(parameters, z, output, self.architecture)
        return Gradient(weights, logits, errors, feedback=(d_psi,))

    def step(self, parameters: Parameters, gradient: Gradient, lr: float, descend: Callable[[], None]) -> None:
        descend()
        self.learned.step(gradient.feedback, lr if self.options.feedback_lr is None else self.options.feedback_lr)
