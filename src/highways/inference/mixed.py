"""The `mixed` kernel: `native` with bf16 products of the change since the initial states, summed in float32.

    a_l = a0_l + bf16(W_l) bf16(h_l - h0_l)      h0_l and a0_l = W_l h0_l: at the initial states, in float32
    u_l = bf16(W_l)^T bf16(g_l)

Both roundings, of 2^-9, are relative to the change; a layer that no signal has reached has errors of exactly
zero. It needs a processor with AVX512-BF16 or AMX, and is used on request only.
"""

from torch import Tensor

from highways.inference import native
from highways.inference.estep import EStep
from highways.model.energy import Relaxed
from highways.model.network import Architecture, Parameters


def initial_states(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """The sweep in float32, (L-1, B, N): states that equal their predictions bit for bit."""
    return native.initial_states(parameters, x, architecture, "mixed")


def relax(step: EStep) -> tuple[Tensor, Relaxed]:
    """The initial states, (L-1, B, N): `step.start`, else the forward sweep; and the result of T steps."""
    return native.relax(step, "mixed")
