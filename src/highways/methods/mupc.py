"""muPC (Innocenti et al., arXiv 2505.13124; the official code's scalings): predictive coding on a scaled network.

    mu_1 = a_1 W_1 x,  mu_{l+1} = z_l + a W_l phi(z_l),  mu_L = a_L W_L phi(z_{L-1}),  W ~ N(0, 1)
    a_1 = 1/sqrt(D),  a = 1/sqrt(N L) with skips, 1/sqrt(N) without,  a_L = 1/N
    z_i <- z_i - (lambda / B) dE/dz_i      T steps on the batch mean of the energy

With forward skips it is not a network of this benchmark's kind; without them it is the standard initialisation
with a small output. No normalisation. Adam acts on W, whose step in a W is a lr. Local but for W^T. Cost: T steps.
"""

import torch
from torch import Tensor

from highways.arithmetic import exact_float32
from highways.energy import Errors, Relaxed, predict, state_gradient, weight_gradient
from highways.methods import base
from highways.methods.base import Gradient
from highways.methods.sweeps import mean_over_batch
from highways.network import Architecture, Parameters, output_error, sweep
from highways.spec import RunSpec


class Rule(base.Rule):
    """Gradient descent on the states, then the weight step of predictive coding."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        self.steps = spec.network.depth if spec.rule.steps is None else spec.rule.steps

    @torch.no_grad()
    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        with exact_float32():
            states, logits = sweep(parameters, x, self.architecture)
            start = torch.stack(states)
            z = start
            for step in range(self.steps + 1):
                predictions = predict(parameters, z, start[0], self.architecture)
                output = output_error(y, predictions.logits, self.architecture)
                error = Errors(z - predictions.mu, output)
                if step < self.steps:
                    gradient = state_gradient(parameters, predictions, error, self.architecture)
                    z = z - self.options.step_size / len(x) * gradient
            relaxed = Relaxed(z, predictions.mu, error)
            weights = weight_gradient(parameters, x, relaxed, self.architecture)
        return Gradient(mean_over_batch(weights, len(x)), logits, error)
