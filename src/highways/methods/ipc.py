"""iPC, incremental predictive coding (Salvatori et al., ICLR 2024, arXiv 2212.00720): inference and learning
are not separate phases. States and weights move together, T times per batch, on one energy.

    z_i <- z_i - lambda dE/dz_i    starting at the states of the forward sweep
    W_l <- W_l - AdamW(dE/dW_l)    dE/dW_l as in predictive coding, from the same errors

The error descends one layer per step, so the first layer learns from step L on. AdamW's averages and decay
also move layers whose gradient is still zero; the errors that this causes pull them back. A batch has T steps
of AdamW, all at the learning rate of the batch. Local but for the transposed weights in J^T. Cost: T steps on
all layers and on the weights.
"""

from collections.abc import Iterator

from torch import Tensor

from highways.methods import base
from highways.methods.base import Gradient
from highways.model.energy import Relaxed, errors, initial_states, predict, state_gradient, weight_gradient
from highways.model.network import Architecture, Parameters, first_prediction
from highways.specs.run import RunSpec


class Rule(base.Interleaved):
    """Every step descends the energy in the states and in the weights at once."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        self.steps = spec.rule.steps_at(spec.network.depth)

    def batch_gradients(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Iterator[Gradient]:
        z, logits = initial_states(parameters, x, self.architecture), None
        for _ in range(self.steps):
            mu_1 = first_prediction(parameters, x, self.architecture)
            predictions = predict(parameters, z, mu_1, self.architecture)
            error = errors(z, y, predictions, self.architecture)
            logits = predictions.logits if logits is None else logits
            slope = state_gradient(parameters, predictions, error, self.architecture)
            relaxed = Relaxed(z, predictions.mu, error)
            yield Gradient(weight_gradient(parameters, x, relaxed, self.architecture), logits, error)
            z = z - self.options.step_size * slope
