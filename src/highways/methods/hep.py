"""Highway error propagation (section 4): predictive coding whose states also see the output error directly.

At every inference step each endpoint i in S is moved by -lambda alpha V_i eps_L, with V_i fixed and random
(Eq. z_update). The weight step is that of predictive coding. Local: an endpoint uses its own state and the
broadcast output error.
"""

import torch
from torch import Tensor

from highways.energy import Highways
from highways.methods import pc
from highways.network import Parameters
from highways.randomness import generator
from highways.spec import RunSpec


class Rule(pc.Rule):
    """Predictive coding with highways; alpha = 0 is predictive coding bit for bit."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        super().__init__(spec, parameters, kernel)
        assert spec.highway is not None
        w_out = parameters.w_out
        feedback = spec.highway.alpha * feedback_matrices(spec, classes=w_out.shape[0])
        self.highways = Highways(
            feedback.transpose(1, 2).contiguous().to(w_out.device), spec.endpoints[0], spec.highway.every
        )


def feedback_matrices(spec: RunSpec, classes: int) -> Tensor:
    """V_{L->i} ~ N(0, sigma_v^2) for i in S, (|S|, N, C); the matrix of a layer does not depend on S."""
    assert spec.highway is not None
    shape = (spec.network.width, classes)
    draws = [
        torch.empty(shape, dtype=torch.float64).normal_(generator=generator(spec.seed, f"highway/{i}"))
        for i in spec.endpoints
    ]
    return (spec.highway.sigma_v * torch.stack(draws)).to(getattr(torch, spec.dtype))
