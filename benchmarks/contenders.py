"""What is timed: the ceilings and our kernels, on one E-step of the paper's network with highways and Adam."""

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from highways.inference import build, relax
from highways.model.energy import Highways
from highways.model.network import Architecture, initialise
from highways.specs.run import Highway, Inference, Learning, Network, RunSpec


@dataclass(frozen=True)
class Size:
    """One E-step: T steps of L-1 hidden layers of width N on a batch of B."""

    depth: int
    steps: int
    width: int = 128
    batch: int = 128

    @property
    def operations(self) -> float:
        """Floating-point operations of the hidden products alone: two products per hidden matrix and step."""
        return 2.0 * 2.0 * self.steps * (self.depth - 2) * self.batch * self.width**2


def estep(size: Size, kernel: str) -> Callable[[], object]:
    """One whole E-step with highways and Adam, the feedforward sweep included, as training calls it."""
    spec = RunSpec(
        "mnist",
        "hep",
        Network(size.depth, width=size.width),
        Learning(6e-5),
        Inference("adam", 0.005, size.steps),
        Highway(0.1),
    )
    stream = torch.Generator().manual_seed(0)
    parameters, architecture = initialise(spec, 784, 10), Architecture.of(spec)
    x = torch.randn(size.batch, 784, generator=stream)
    y = torch.eye(10)[torch.randint(10, (size.batch,), generator=stream)]
    highways = Highways(1e-4 * torch.randn(size.depth - 1, 10, size.width, generator=stream), 1, 1)
    assert spec.inference is not None
    arguments = (parameters, x, y, spec.inference, architecture, spec.conventions, highways, kernel)
    return lambda: relax(*arguments)


def streaming(size: Size) -> Callable[[], object]:
    """Only the hidden products of one E-step, by torch, over the network's stacked weights and states."""
    weights = torch.randn(size.depth - 2, size.width, size.width)
    states = torch.randn(size.depth - 2, size.batch, size.width)
    out, transposed = torch.empty_like(states), weights.transpose(1, 2)

    def run() -> None:
        for _ in range(size.steps):
            torch.bmm(states, transposed, out=out)
            torch.bmm(states, weights, out=out)

    return run


def hot(size: Size) -> Callable[[], object]:
    """As many products as `streaming`, all of the same layer: everything stays in the nearest cache."""
    weight, states = torch.randn(size.width, size.width), torch.randn(size.batch, size.width)
    out, transposed = torch.empty_like(states), weight.t()

    def run() -> None:
        for _ in range(size.steps * (size.depth - 2)):
            torch.mm(states, transposed, out=out)
            torch.mm(states, weight, out=out)

    return run


@cache
def multiply_adds() -> Callable[[ctypes.c_int64], object]:
    """The function of peak.cpp, compiled once."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "peak.so"
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        source = [Path(__file__).with_name("peak.cpp"), "-I", build.SOURCE.parent]
        subprocess.run([*compiler, *build.FLAGS["native"], *source, "-o", library], check=True)
        return ctypes.CDLL(str(library)).multiply_adds


def peak(size: Size) -> Callable[[], object]:
    """As many operations as these products, by fused multiply-adds on registers: no product is faster."""
    run, operations = multiply_adds(), ctypes.c_int64(int(size.operations))
    return lambda: run(operations)
