"""The fixed random feedback V from the output error to the hidden layers (section 4)."""

import torch
from torch import Tensor

from highways.model.randomness import generator
from highways.specs.run import RunSpec


def feedback_matrices(spec: RunSpec, classes: int, draw: str = "") -> Tensor:
    """V_{L->i} ~ N(0, sigma_v^2) for i in S, (|S|, N, C); the matrix of a layer does not depend on S.

    `draw` names one of several independent draws.
    """
    assert spec.highway is not None
    shape = (spec.network.width, classes)
    draws = [
        torch.empty(shape, dtype=torch.float64).normal_(generator=generator(spec.seed, f"highway/{i}{draw}"))
        for i in spec.endpoints
    ]
    return (spec.highway.sigma_v * torch.stack(draws)).to(getattr(torch, spec.dtype))
