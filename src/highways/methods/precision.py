"""Precision-guided predictive coding (Qi et al., arXiv 2506.23800; the official code's schedule S and update FU).

    z_i <- z_i - lambda (pi_i eps_i - J_i^T pi_{i+1} eps_{i+1})    T steps with Nesterov momentum, i = L - 1 first
    pi_i(t) = 1 when the signal arrives, t = L - i, else off_spike (0.001)
    dW_l = -((z_{l+1}(T) - mu_{l+1}(0)) * phi') h(z_l(0))^T        the forward update: activities of the sweep

With off_spike = 0 and without momentum dW_l is c times backprop's, c = lambda^k (1 - lambda), k hops below the
output: the schedule carries the backprop error down, and AdamW does not see c. With momentum m (0.1) a state
first moves by lambda (1 + m), and c = (lambda (1 + m))^k (1/(1 + m) - lambda) / (1 - m) once it has come to rest:
above lambda = 1/(1 + m) the weights climb. `literal` is their Eq. 4 as printed, with a precision of 1/lambda
at arrival and 1 else: another algorithm. Local in space; it needs a clock.
Cost: T steps on the layers that the signal has reached, that is, about L^2/2 layer steps at T = L + 3.
"""

import torch
from torch import Tensor

from highways.arithmetic import exact_float32
from highways.energy import Errors, Relaxed, errors, initial_states, predict, state_gradient, weight_gradient
from highways.methods import base
from highways.methods.base import Gradient, mean_over_batch
from highways.methods.sweeps import reached
from highways.network import Architecture, Parameters, output_error, output_prediction
from highways.spec import RunSpec


class Rule(base.Rule):
    """Relaxation under a schedule of precisions, then the weight step at the forward sweep or at the states."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        self.depth = spec.network.depth
        self.steps = self.depth + 3 if spec.rule.steps is None else spec.rule.steps

    def precisions(self, t: int) -> list[float]:
        """pi_1..pi_L at step t = 0, 1, ..."""
        literal = self.options.schedule == "literal"
        at_arrival = 1 / self.options.step_size if literal else 1.0
        else_ = 1.0 if literal else self.options.off_spike
        return [at_arrival if t == self.depth - i else else_ for i in range(1, self.depth + 1)]

    @torch.no_grad()
    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        with exact_float32():
            start = initial_states(parameters, x, self.architecture)
            logits = output_prediction(parameters, start[-1], self.architecture)
            z = self.relaxed(parameters, start, y)
            if self.options.forward_update:
                found = Relaxed(start, start, Errors(z - start, output_error(y, logits, self.architecture)))
            else:
                predictions = predict(parameters, z, start[0], self.architecture)
                found = Relaxed(z, predictions.mu, errors(z, y, predictions))
            weights = weight_gradient(parameters, x, found, self.architecture)
        return Gradient(mean_over_batch(weights, len(x)), logits, found.errors)

    def relaxed(self, parameters: Parameters, start: Tensor, y: Tensor) -> Tensor:
        """The states after T steps from the forward sweep `start`, (L-1, B, N)."""
        z, velocity, momentum = start.clone(), torch.zeros_like(start), self.options.momentum
        for t in range(self.steps):
            lowest, above = reached(parameters, t)
            predictions = predict(above, z[lowest:], start[lowest], self.architecture)
            error = errors(z[lowest:], y, predictions)
            *hidden, output = self.precisions(t)
            pi = torch.tensor(hidden[lowest:], dtype=z.dtype, device=z.device).reshape(-1, 1, 1)
            weighted = Errors(pi * error.hidden, output * error.output)
            gradient = state_gradient(above, predictions, weighted, self.architecture)
            v = velocity[lowest:].mul_(momentum).add_(gradient)
            z[lowest:] -= self.options.step_size * (gradient + momentum * v)
        return z
