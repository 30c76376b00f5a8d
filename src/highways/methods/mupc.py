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
from highways.energy import Errors, Predictions, Relaxed, initial_states, predict, state_gradient, weight_gradient
from highways.methods import base
from highways.methods.base import Gradient, mean_over_batch
from highways.methods.sweeps import reached
from highways.network import Architecture, Parameters, output_error, output_prediction
from highways.spec import RunSpec


class Rule(base.Rule):
    """Gradient descent on the states, then the weight step of predictive coding."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        self.steps = spec.network.depth if spec.rule.steps is None else spec.rule.steps

    @torch.no_grad()
    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        with exact_float32():
            start = initial_states(parameters, x, self.architecture)
            logits = output_prediction(parameters, start[-1], self.architecture)
            z = start.clone()
            for t in range(self.steps):
                lowest, above = reached(parameters, t)
                predictions, error = self.at(above, z[lowest:], start[lowest], y)
                gradient = state_gradient(above, predictions, error, self.architecture)
                z[lowest:] -= self.options.step_size / len(x) * gradient
            predictions, error = self.at(parameters, z, start[0], y)
            relaxed = Relaxed(z, predictions.mu, error)
            weights = weight_gradient(parameters, x, relaxed, self.architecture)
        return Gradient(mean_over_batch(weights, len(x)), logits, error)

    def at(self, parameters: Parameters, z: Tensor, mu: Tensor, y: Tensor) -> tuple[Predictions, Errors]:
        """Predictions and errors of the states z, of which the lowest is predicted to be mu."""
        predictions = predict(parameters, z, mu, self.architecture)
        return predictions, Errors(z - predictions.mu, output_error(y, predictions.logits, self.architecture))
