"""The `mixed` kernel: `native` with bf16 products, added up in float32, on what has moved since the forward sweep.

    a_l = a0_l + bf16(W_l) bf16(h_l - h0_l)      h0_l, a0_l = W_l h0_l: at the start, in float32
    u_l = bf16(W_l)^T bf16(g_l)

Both roundings, of 2^-9, are relative to what has moved; a layer that no signal has reached has an error of exactly
zero. It needs a processor with AVX512-BF16 or AMX, and is never taken without being asked for.
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
    """The initial states, (L-1, B, N): the sweep, or those given; and where T steps from there end."""
    return native.relax(step, "mixed")
