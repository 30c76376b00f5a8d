"""Backpropagation (appendix B, "Baselines"): the same network trained end to end on the cross-entropy."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways.methods import base
from highways.methods.base import Gradient
from highways.model.energy import Errors
from highways.model.network import Architecture, ParameterGradient, Parameters, output_error, sweep
from highways.specs.run import RunSpec


class Rule(base.Rule):
    """Autograd on the mean loss; the errors reported are -dl/dz_i, per sample."""

    reduction = "mean"

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.architecture = Architecture.of(spec)

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in parameters.named().items()}
        with torch.enable_grad():
            states, logits = sweep(Parameters(**leaves), x, self.architecture)
            squared = self.architecture.squared
            loss = 0.5 * (y - logits).square().sum(-1).mean() if squared else F.cross_entropy(logits, y)
            wanted = [*leaves.values(), *states]
            gradients = torch.autograd.grad(loss, wanted, materialize_grads=True)
        weights = ParameterGradient(**dict(zip(leaves, gradients, strict=False)))
        hidden = torch.stack(gradients[len(leaves) :]) * -x.shape[0]
        return Gradient(weights, logits, Errors(hidden, output_error(y, logits, self.architecture)))
