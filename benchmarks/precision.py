"""Error of the weight step against float64, by the arithmetic of the E-step: one line of JSON per arithmetic.

    python benchmarks/precision.py DEPTH METHOD [UPDATES]

On one batch of MNIST with the paper's settings, after UPDATES updates by the native kernel. TF32, the default of
some libraries on a GPU, is imitated in torch: both factors of a hidden product are rounded to 10 bits.
"""

import json
import sys
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from highways import data, methods
from highways.experiments import configuration
from highways.experiments.runs import cell_spec
from highways.methods import weight_step
from highways.model import network
from highways.model.network import Parameters
from highways.specs.run import RunSpec
from highways.training.machine import Machine

BATCH = 128


def tf32(t: Tensor) -> Tensor:
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def step_of(spec: RunSpec, parameters: Parameters, x: Tensor, y: Tensor, kernel: str) -> list[Tensor]:
    """dE/dW of every matrix, in double precision."""
    rule = methods.rule(spec.method)(spec, parameters, kernel)
    return [matrix.double() for matrix in rule.gradient(parameters, x, y, 0).weights.matrices()]


def compared(found: list[Tensor], exact: list[Tensor]) -> dict[str, float]:
    """Over the matrices with a gradient: median and largest relative error of the steps, and least cosine."""
    reached = [(a, b) for a, b in zip(found, exact, strict=True) if b.any()]
    errors = torch.tensor([((a - b).norm() / b.norm()).item() for a, b in reached])
    cosines = [torch.cosine_similarity(a.flatten(), b.flatten(), 0).item() for a, b in reached]
    return {"median": errors.median().item(), "largest": errors.max().item(), "least_cosine": min(cosines)}


def main() -> None:
    depth, method = int(sys.argv[1]), sys.argv[2]
    updates = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    Machine().prepared("float32")
    spec = cell_spec(configuration.load(Path(__file__).parents[1] / "config.yaml"), "mnist", depth, method, 0)
    images = data.load("mnist").train
    parameters = network.initialise(spec, 784, 10)
    stream = torch.Generator().manual_seed(0)

    def batch(indices: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.nn.functional.one_hot(images.labels[indices].long(), 10)
        return images.images[indices].float(), y.float()

    rule = methods.rule(method)(spec, parameters, "native")
    optimizer = weight_step.weight_optimizer(spec, parameters)
    for update in range(updates):
        chosen = torch.randint(0, len(images.labels), (BATCH,), generator=stream)
        weights = rule.gradient(parameters, *batch(chosen), update).weights
        weight_step.apply(optimizer, parameters, weights, spec.learning.lr)
    x, y = batch(torch.arange(BATCH))
    wide = Parameters(**{name: tensor.double() for name, tensor in parameters.named().items()})
    double = RunSpec.from_dict({**spec.to_dict(), "dtype": "float64"})
    exact = step_of(double, wide, x.double(), y.double(), "batched")
    bmm = torch.bmm
    with mock.patch.object(torch, "bmm", lambda a, b: bmm(tf32(a), tf32(b))):
        steps = {"TF32": step_of(spec, parameters, x, y, "batched")}
    steps |= {kernel: step_of(spec, parameters, x, y, kernel) for kernel in ("native", "mixed")}
    for name, step in steps.items():
        row = {"depth": depth, "method": method, "updates": updates, "arithmetic": name}
        print(json.dumps(row | compared(step, exact)), flush=True)


if __name__ == "__main__":
    main()
