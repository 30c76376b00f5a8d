"""muPC (Innocenti et al., arXiv 2505.13124; the official code's scalings): predictive coding on a scaled network.

    mu_1 = a_1 W_1 x,  mu_{l+1} = z_l + a W_l phi(z_l),  mu_L = a_L W_L phi(z_{L-1}),  W ~ N(0, 1)
    a_1 = 1/sqrt(D),  a = 1/sqrt(N L) with skips, 1/sqrt(N) without,  a_L = 1/N
    z_i <- z_i - (lambda / B) dE/dz_i      T steps on the batch mean of the energy

With skips the network is not one of this skip-free benchmark; without them it is the standard initialisation
with a small output. No normalisation. Adam acts on W, so a W moves at the rate a lr. Local but for W^T.
Cost: T steps.
"""

from dataclasses import replace

from highways.methods import pc
from highways.model.network import Architecture, Parameters
from highways.specs.run import Inference, RunSpec


class Rule(pc.Rule):
    """Predictive coding by gradient descent on the states, on muPC's network."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.inference = Inference("euler", spec.rule.step_size, spec.rule.steps_at(spec.network.depth))
        self.conventions = replace(spec.conventions, state_gradient="mean", initial_state="exact")
        self.architecture, self.kernel = Architecture.of(spec), kernel
