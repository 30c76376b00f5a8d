"""DKP-PC (Casnici et al., arXiv 2602.15571): a re-implementation from secondary descriptions; no code was found.

    1  W_l <- W_l + eta (Psi_{l+1} eps_L * phi') h_l^T for l < L - 1, at the states of the forward sweep
    2  T steps of predictive coding from these states, z_i <- z_i - lambda dE/dz_i, with the new W
    3  the weight step of predictive coding at the states of 2, and Psi as in DKP, with eps_L at those states

After 1 the error of a layer points against Psi eps_L, so without 2 the third phase would undo the first; the
published order is kept. Local: the output error is broadcast; the states need W^T.
Extra parameters: (L-1) N C. Cost: predictive coding with T steps, and about two more weight steps.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from highways.methods import dkp
from highways.methods.base import Gradient, mean_over_batch
from highways.model.energy import Errors, Relaxed, errors, initial_states, predict, state_gradient, weight_gradient
from highways.model.network import Parameters, first_prediction, output_error, output_prediction


class Rule(dkp.Rule):
    """A step along the direct feedback, T steps of inference, and the weight step of predictive coding."""

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        (psi,) = self.learned.tensors
        z = initial_states(parameters, x, self.architecture)
        logits = output_prediction(parameters, z[-1], self.architecture)
        output = output_error(y, logits, self.architecture)
        direct = Errors(output @ psi.transpose(1, 2), torch.zeros_like(output))
        first = mean_over_batch(weight_gradient(parameters, x, Relaxed(z, z, direct), self.architecture), len(x))
        first.gain.zero_()
        for tensor in first.named().values():
            tensor.mul_(-self.options.first_lr)
        after = shifted(parameters, first)
        relaxed = self.relaxed(after, x, y, z)
        weights = weight_gradient(after, x, relaxed, self.architecture)
        d_psi = dkp.feedback_gradient(after, relaxed.z, relaxed.errors.output, self.architecture)
        return Gradient(weights, logits, relaxed.errors, first, (d_psi,))

    def relaxed(self, parameters: Parameters, x: Tensor, y: Tensor, z: Tensor) -> Relaxed:
        """T steps of predictive coding from the states z."""
        mu_1 = first_prediction(parameters, x, self.architecture)
        for step in range(self.options.steps + 1):
            predictions = predict(parameters, z, mu_1, self.architecture)
            error = errors(z, y, predictions, self.architecture)
            if step < self.options.steps:
                gradient = state_gradient(parameters, predictions, error, self.architecture)
                z = z - self.options.step_size * gradient
        return Relaxed(z, predictions.mu, error)

    def step(self, parameters: Parameters, gradient: Gradient, lr: float, descend: Callable[[], None]) -> None:
        assert gradient.preliminary_step is not None
        changes = gradient.preliminary_step.named()
        for name, tensor in parameters.named().items():
            tensor.add_(changes[name])
        super().step(parameters, gradient, lr, descend)


def shifted(parameters: Parameters, change: Parameters) -> Parameters:
    """parameters + change, in new tensors."""
    added = change.named()
    return Parameters(**{name: tensor + added[name] for name, tensor in parameters.named().items()})
