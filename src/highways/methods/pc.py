"""Vanilla predictive coding (section 2): relax the states on the energy, then one local step on the weights.

Local but for the transposed weights in J^T: layer l learns from its own activity and the error above it.
"""

from torch import Tensor

from highways.inference import relax
from highways.methods import base
from highways.methods.base import Gradient
from highways.model.energy import Highways, Relaxed, Schedule, weight_gradient
from highways.model.network import Architecture, Parameters, output_prediction
from highways.specs.run import RunSpec


class Rule(base.Rule):
    """E-step by `inference.relax`, M-step by Eq. W_update_pc."""

    schedule: Schedule | None = None

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        assert spec.inference is not None
        self.inference = spec.inference
        self.conventions = spec.conventions
        self.architecture = Architecture.of(spec)
        self.kernel = kernel

    def highways(self, update: int) -> Highways | None:
        """The highways of the E-step: none here; `hep.Rule` has them."""
        return None

    def infer(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> tuple[Tensor, Relaxed]:
        """The E-step: the initial states, (L-1, B, N), and the relaxed ones."""
        settings = (self.inference, self.architecture, self.conventions, self.highways(update), self.kernel)
        return relax(parameters, x, y, *settings, self.schedule)

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        initial, relaxed = self.infer(parameters, x, y, update)
        weights = weight_gradient(parameters, x, relaxed, self.architecture)
        logits = output_prediction(parameters, initial[-1], self.architecture)
        return Gradient(weights, logits, relaxed.errors)
