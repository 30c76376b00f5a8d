"""Precision-guided predictive coding (Qi et al., arXiv 2506.23800; the official code's schedule S and update FU).

    z_i <- z_i - lambda (pi_i eps_i - J_i^T pi_{i+1} eps_{i+1})    t = 0..T-1, with Nesterov momentum
    pi_i(t) = 1 when the signal arrives, t = L - i, else off_spike (0.001)
    dW_l = -((z_{l+1}(T) - mu_{l+1}(0)) * phi') h(z_l(0))^T        the forward update: activities of the sweep

With off_spike = 0 and without momentum, dW_l is c times backprop's, with c = lambda^k (1 - lambda) and
k = L - 1 - l > 0: the schedule carries the backprop error down, and AdamW ignores c. With momentum m (0.1) a
state first moves by lambda (1 + m), and at rest c = (lambda (1 + m))^k (1/(1 + m) - lambda) / (1 - m). Above
lambda = 1/(1 + m) the weights ascend the loss. `literal` is their Eq. 4 as printed, with a precision of
1/lambda at arrival and 1 otherwise: a different algorithm. Local in space; it needs a clock.
Cost: T steps on the layers that the signal has reached, so about L^2/2 layer steps at T = L + 3.
"""

from dataclasses import replace

import torch
from torch import Tensor

from highways.methods import pc
from highways.methods.base import Gradient
from highways.model.energy import Errors, Relaxed, Schedule, weight_gradient
from highways.model.network import Architecture, Parameters, output_error, output_prediction
from highways.specs.options import Precision
from highways.specs.run import Inference, RunSpec


class Rule(pc.Rule):
    """Relaxation under a schedule of precisions, then the weight step at the initial or relaxed states."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture, self.kernel = spec.rule, Architecture.of(spec), kernel
        depth = spec.network.depth
        steps = spec.rule.steps_at(depth)
        self.inference = Inference("euler", spec.rule.step_size, steps)
        self.conventions = replace(spec.conventions, state_gradient="sum", initial_state="exact")
        self.schedule = Schedule(precisions(spec.rule, depth, steps).to(parameters.w_out), spec.rule.momentum)

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        start, found = self.infer(parameters, x, y, update)
        logits = output_prediction(parameters, start[-1], self.architecture)
        if self.options.forward_update:
            output = output_error(y, logits, self.architecture)
            found = Relaxed(start, start, Errors(found.z - start, output))
        weights = weight_gradient(parameters, x, found, self.architecture)
        return Gradient(weights, logits, found.errors)


def precisions(options: Precision, depth: int, steps: int) -> Tensor:
    """pi_1..pi_L at t = 0..T-1, (T, L)."""
    literal = options.schedule == "literal"
    pi = torch.full((steps, depth), 1.0 if literal else options.off_spike, dtype=torch.float64)
    for t in range(min(steps, depth)):
        pi[t, depth - 1 - t] = 1 / options.step_size if literal else 1.0
    return pi
