"""Highway error propagation (section 4): predictive coding whose states also see the output error directly.

At every inference step each endpoint i in S is moved by -lambda alpha V_i eps_L, with V_i fixed and random
(Eq. z_update). The weight step is that of predictive coding. Local: an endpoint uses its own state and the
broadcast output error.
"""

from torch import Tensor

from highways.methods import pc
from highways.methods.feedback import feedback_matrices
from highways.model.energy import Highways
from highways.model.network import Parameters
from highways.specs.run import RunSpec


class Rule(pc.Rule):
    """Predictive coding with highways; alpha = 0 is predictive coding bit for bit."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        super().__init__(spec, parameters, kernel)
        self.spec, self.like = spec, parameters.w_out
        self.fixed = self._highways(feedback_matrices(spec, classes=self.like.shape[0]))

    def highways(self, update: int) -> Highways:
        assert self.spec.highway is not None
        if not self.spec.highway.redraw:
            return self.fixed
        return self._highways(feedback_matrices(self.spec, self.like.shape[0], f"/{update}"))

    def _highways(self, v: Tensor) -> Highways:
        assert self.spec.highway is not None
        feedback = self.spec.highway.alpha * v.transpose(1, 2).contiguous().to(self.like.device)
        return Highways(feedback, self.spec.endpoints[0], self.spec.highway.every, self.spec.highway.chain)
