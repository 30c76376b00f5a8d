"""One measurement in a process of its own; prints JSON. `first DEPTH`, `repeat DEPTH STEPS N`, `late DEPTH`."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from contenders import Size, estep
from highways.inference import native
from highways.inference.estep import EStep
from highways.model.network import Architecture, Parameters, initialise
from highways.specs.run import Inference, Learning, Network, RunSpec
from highways.training.machine import Machine
from measure import in_turn


def peak_mib() -> float:
    """Peak memory of this process in MiB (getrusage would count what its parent held before the fork)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


NOTHING = torch.zeros(0, 128)


def first(depth: int) -> dict[str, Any]:
    """One E-step of only 8 steps, so that most of the time is the start of the process."""
    estep(Size(depth, 8), "native")()
    return {"peak_mib": peak_mib()}


def repeat(depth: int, steps: int, repeats: int) -> dict[str, Any]:
    seconds = in_turn({"native": estep(Size(depth, steps), "native")}, repeats)["native"]
    return {"seconds": seconds, "peak_mib": peak_mib()}


def late(depth: int) -> dict[str, Any]:
    """Vanilla PC without normalisation, whose errors decay to denormals: seconds of steps 1-50 and 301-350.

    The states are passed as `start`, so that every layer is computed in every step.
    """
    inference = Inference("euler", 0.1, 50)
    spec = RunSpec("mnist", "pc", Network(depth), Learning(1e-3), inference)
    parameters, architecture = initialise(spec, 784, 10), Architecture.of(spec)
    parameters = Parameters(parameters.w_in, parameters.w_hidden, parameters.w_out, gain=NOTHING)
    x, y = torch.randn(128, 784), torch.eye(10)[torch.arange(128) % 10]
    start = native.initial_states(parameters, x, architecture)

    def seconds(z: torch.Tensor) -> float:
        timings = []
        for _ in range(3):
            start = time.perf_counter()
            native.relax(EStep(parameters, x, y, architecture, inference, 1.0, start=z))
            timings.append(time.perf_counter() - start)
        return min(timings)

    early = seconds(start)
    longer = replace(inference, steps=300)
    later, _, error = native.relax(EStep(parameters, x, y, architecture, longer, 1.0, start=start))[1]
    rms = error.hidden.double().square().mean((1, 2)).sqrt()
    return {"early": early, "late": seconds(later), "smallest_rms": rms[rms > 0].min().item()}


if __name__ == "__main__":
    Machine().prepared("float32")
    task = {"first": first, "repeat": repeat, "late": late}[sys.argv[1]]
    print(json.dumps(task(*map(int, sys.argv[2:]))))
