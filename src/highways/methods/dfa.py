"""Direct feedback alignment (Nokland 2016, arXiv 1609.01596) through HEP's highways: B_i = -alpha V_i.

    eps_i = -alpha V_i eps_L        the error that layer i learns from, at its feedforward activity
    dW    as in predictive coding   Eq. W_update_pc

There is no inference. It is HEP in the limit where only the highway moves a state. Local: the output error is
broadcast, and the gain of a layer uses the transposed matrix above it, as in predictive coding.
"""

import torch
from torch import Tensor

from highways.methods import base
from highways.methods.base import Gradient
from highways.methods.feedback import feedback_matrices
from highways.model.energy import Errors, Relaxed, weight_gradient
from highways.model.network import Architecture, Parameters, output_error, sweep
from highways.specs.run import RunSpec


class Rule(base.Rule):
    """One forward sweep, then the broadcast output error; every hidden layer is an endpoint."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        assert spec.highway is not None
        v = feedback_matrices(spec, classes=parameters.w_out.shape[0])
        self.architecture = Architecture.of(spec)
        self.feedback = (-spec.highway.alpha * v.transpose(1, 2)).to(parameters.w_out.device)  # B_i^T, (L-1, C, N)

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        states, logits = sweep(parameters, x, self.architecture)
        z, output = torch.stack(states), output_error(y, logits, self.architecture)
        errors = Errors(torch.matmul(output, self.feedback), output)
        weights = weight_gradient(parameters, x, Relaxed(z, z, errors), self.architecture)
        return Gradient(weights, logits, errors)
