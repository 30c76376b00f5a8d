"""A small propagation experiment: one image, shallow networks, few steps."""

from dataclasses import replace

import pytest
import torch

from highways.propagation.spec import Propagation
from highways.specs.run import Conventions, Highway, Inference, Learning, Network, RunSpec

INPUTS, CLASSES, DEPTH, WIDTH = 20, 10, 6, 12


@pytest.fixture
def image() -> tuple[torch.Tensor, torch.Tensor]:
    """x (D,) and a one-hot y (C,)."""
    x = torch.randn(INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return x, torch.eye(CLASSES, dtype=torch.float64)[4]


@pytest.fixture
def small():
    """A function that makes a `Propagation`; keywords replace settings of its run, others its own fields."""

    def make(
        network: str = "paper",
        method: str = "pc",
        *,
        steps: int = 30,
        depth: int = DEPTH,
        width: int = WIDTH,
        step_size: float = 0.05,
        phi: str = "relu",
        dtype: str = "float64",
        reading: Conventions | None = None,
        **fields,
    ) -> Propagation:
        run = RunSpec(
            "mnist",
            method,
            Network(depth, width=width, phi=phi),
            Learning(1.0),
            Inference("euler", step_size, steps) if method in ("pc", "hep") else None,
            Highway(0.3, sigma_v=0.1) if method in ("hep", "dfa") else None,
            reading or Conventions("both"),
            dtype=dtype,
        )
        return replace(Propagation(run, network), **fields)

    return make
