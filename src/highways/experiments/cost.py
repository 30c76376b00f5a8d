"""The cost model: predicts the operations, seconds and memory of a run. Imports no torch.

Operations count matrix products only (a multiplication and an addition are two). Seconds follow from them by
the constants of a machine and kernel in `Rates`; `calibrate` measures two of the three.
"""

import math
from dataclasses import dataclass

from highways.specs.cost import Cost
from highways.specs.fields import SpecError
from highways.specs.registry import METHODS
from highways.specs.run import RunSpec


@dataclass(frozen=True)
class Rates:
    """gflops: GFLOP/s of the E-step's products, elementwise work included; call_seconds: fixed cost of one
    inference step; layer_seconds: fixed cost of one layer per weight step or pair of sweeps."""

    gflops: float = 70.0
    call_seconds: float = 1e-4
    layer_seconds: float = 3e-4


# One core of a server with AVX-512, kernel `native`, float32, width 128, batches of 128.
MEASURED = Rates()


def updates(spec: RunSpec) -> int:
    """The number of batches of a run; most rules make one update per batch."""
    return spec.epochs * math.ceil(spec.images.train / spec.batch_size)


def step_operations(spec: RunSpec) -> float:
    """Operations of one inference step on one batch: two products per matrix but W_0, one per highway."""
    width, batch, classes = spec.network.width, spec.batch_size, spec.images.classes
    chain = 2 * 2 * batch * (width * width * (spec.network.depth - 2) + width * classes)
    return float(chain + 2 * batch * width * classes * len(spec.endpoints))


def sweep_operations(spec: RunSpec) -> float:
    """Operations of one feedforward sweep of one batch."""
    width, inputs, classes = spec.network.width, spec.images.inputs, spec.images.classes
    hidden = width * width * (spec.network.depth - 2)
    return 2.0 * spec.batch_size * (inputs * width + hidden + width * classes)


def of_method(spec: RunSpec) -> Cost:
    """The cost of the method beyond its section `inference`; SpecError where METHODS gives it no cost."""
    cost = METHODS[spec.method].cost
    if cost is None:
        raise SpecError(f"method {spec.method!r} has no cost; give its entry of METHODS one (specs/registry.py)")
    return cost(spec.rule, spec.network.depth)


def operations(spec: RunSpec) -> float:
    """Operations of a run: per batch the sweeps (two per weight step) and inference steps; the validation."""
    own = of_method(spec)
    sweeps = 1 + 2 * own.weight_steps + own.sweeps
    per_update = sweeps * sweep_operations(spec) + own.steps * step_operations(spec)
    if spec.inference is not None:
        per_update += spec.inference.steps * step_operations(spec)
    validation = spec.epochs * sweep_operations(spec) * spec.images.validation / spec.batch_size
    return updates(spec) * per_update + validation


def seconds(spec: RunSpec, rates: Rates = MEASURED) -> float:
    """Expected seconds of a run on one core."""
    total = operations(spec) / (rates.gflops * 1e9)
    if spec.inference is not None:
        total += updates(spec) * spec.inference.steps * rates.call_seconds
    own = of_method(spec)
    total += updates(spec) * own.steps * rates.call_seconds
    layers = spec.network.depth * (own.weight_steps + own.sweeps / 2)
    return total + updates(spec) * layers * rates.layer_seconds


def extra_parameters(spec: RunSpec) -> tuple[int, bool]:
    """The number of feedback parameters that a method keeps beside the weights; whether it learns them."""
    width, own = spec.network.width, of_method(spec)
    direct = len(spec.endpoints) + own.direct
    return direct * width * spec.images.classes + own.neighbours * width**2, own.learned


def memory_mb(spec: RunSpec) -> int:
    """Expected peak memory in MiB: torch, the images (twice while they are prepared), states and weights."""
    size = 4 if spec.dtype == "float32" else 8
    images = spec.images
    pixels = 2 * (images.train + images.validation + images.test) * images.inputs
    states = 16 * (spec.network.depth - 1) * spec.batch_size * spec.network.width
    weights = 8 * (spec.network.depth - 2) * spec.network.width**2
    return 700 + math.ceil(size * (pixels + states + weights) / 2**20)


def calibrate(kernel: str) -> Rates:
    """Measure `gflops` and `call_seconds` of this machine from E-steps at depths 4 and 32; takes seconds."""
    import time

    import torch

    from highways.inference import relax
    from highways.model.energy import Highways
    from highways.model.network import Architecture, initialise
    from highways.specs.run import Highway, Inference, Learning, Network
    from highways.training.machine import Machine

    kernel = Machine(kernel=kernel).prepared("float32").kernel
    points = []
    for depth, steps in ((4, 40), (32, 10)):
        spec = RunSpec(
            "mnist", "hep", Network(depth), Learning(1e-3), Inference("adam", 5e-3, steps), Highway(0.1)
        )
        inputs, classes = spec.images.inputs, spec.images.classes
        parameters = initialise(spec, inputs, classes)
        x, y = (
            torch.randn(spec.batch_size, inputs),
            torch.eye(classes)[torch.arange(spec.batch_size) % classes],
        )
        highways = Highways(1e-4 * torch.randn(depth - 1, classes, spec.network.width), 1, 1)
        timings = []
        for _ in range(5):
            start = time.perf_counter()
            relax(parameters, x, y, spec.inference, Architecture.of(spec), spec.conventions, highways, kernel)  # type: ignore[arg-type]
            timings.append(time.perf_counter() - start)
        points.append((step_operations(spec), min(timings) / steps))
    (low, fast), (high, slow) = points
    per_operation = max((slow - fast) / (high - low), slow / high / 2)
    return Rates(1e-9 / per_operation, max(0.0, fast - low * per_operation), MEASURED.layer_seconds)
