"""ePC, error-based predictive coding (Goemaere et al., arXiv 2505.20137; the official code's MLP branch).

    s_i = mu_i(s_{i-1}) + e_i                      the errors are the free variables, 0 at first
    E(e) = sum_{i<L} 1/2 ||e_i||^2 + CE(y, mu_L)   per sample
    e_i <- e_i - lambda (e_i + dl/ds_i)            T times
    dE/dW_l = -(e_{l+1} * phi') h(s_l)^T           as in predictive coding, at the states s

Its minima are those of predictive coding. After few small steps e_i is about lambda T times the backprop
error. AdamW ignores that factor, so the method is backprop. Only the weight step is local; the errors need a
backward sweep. Cost: T + 1 forward and T backward sweeps, one layer after the other.
"""

import torch
from torch import Tensor

from highways.methods import base
from highways.methods.base import Gradient
from highways.methods.sweeps import downwards, upwards
from highways.model.energy import Errors, Relaxed, weight_gradient
from highways.model.network import Architecture, Parameters, output_error
from highways.specs.run import RunSpec


class Rule(base.Rule):
    """T gradient steps on the errors, then the local weight step."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)

    def infer(self, parameters: Parameters, x: Tensor, y: Tensor) -> tuple[Tensor, Relaxed]:
        """The logits before inference, (B, C), and the relaxed states."""
        sweep = upwards(parameters, x, self.architecture)
        logits, errors = sweep.logits, torch.zeros_like(sweep.states)
        for _ in range(self.options.steps):
            output = output_error(y, sweep.logits, self.architecture)
            carried = downwards(parameters, sweep, output, self.architecture)
            errors = errors - self.options.step_size * (errors - carried)
            sweep = upwards(parameters, x, self.architecture, errors)
        output = output_error(y, sweep.logits, self.architecture)
        return logits, Relaxed(sweep.states, sweep.predictions, Errors(errors, output))

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        logits, relaxed = self.infer(parameters, x, y)
        weights = weight_gradient(parameters, x, relaxed, self.architecture)
        return Gradient(weights, logits, relaxed.errors)
