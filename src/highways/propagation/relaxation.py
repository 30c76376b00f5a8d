"""Relaxes the states of one image for many steps and traces the error of every layer."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from highways import __version__, methods
from highways.inference.optimizer import state_optimizer
from highways.methods.feedback import feedback_matrices
from highways.model.arithmetic import exact_float32
from highways.model.network import Parameters
from highways.propagation import chain as networks
from highways.propagation.chain import Point, SingleSampleNetwork
from highways.propagation.spec import Propagation
from highways.propagation.trace import Trace
from highways.provenance import propagation_code
from highways.specs.run import RunSpec
from highways.training.machine import Machine

DENSE_AFTER = 96  # steps that are kept beside the first L, evenly spaced in the logarithm


def kept_steps(steps: int, depth: int) -> list[int]:
    """The steps whose errors are kept: the first `depth`, in which the signal arrives, then fewer and fewer."""
    first = np.arange(min(depth, steps) + 1)
    later = np.geomspace(1, steps, DENSE_AFTER).round().astype(int)
    return sorted({*first.tolist(), *later.tolist(), steps})


@torch.no_grad()
def propagate(
    spec: Propagation,
    x: Tensor,
    y: Tensor,
    weights: Parameters | None = None,
    report: Callable[[int], None] = lambda step: None,
) -> Trace:
    """Relax the states of one image, x (D,) and y (C,) one-hot, and trace the errors of layers 1..L.

    A rule without inference is traced at step 0, before its sweep, and at step 1, after it.
    """
    dtype = getattr(torch, spec.run.dtype)
    x, y = x.to(dtype), y.to(dtype)
    chain = networks.build(spec, len(x), len(y), weights)
    with exact_float32():
        z = networks.sweep(chain, x)
        start = networks.at(chain, z[0], y, z)
        if spec.run.inference is None:
            return _swept(spec, chain, start, x, y)
        return _relaxed(spec, chain, start, y, report)


def _relaxed(
    spec: Propagation, chain: SingleSampleNetwork, start: Point, y: Tensor, report: Callable[[int], None]
) -> Trace:
    run, inference = spec.run, spec.run.inference
    assert inference is not None
    nudge = _nudge(run, start)
    plain = spec.form == "plain"
    free = start.z.clone() if plain else torch.zeros_like(start.z)
    update = state_optimizer(inference, free)
    kept = kept_steps(inference.steps, run.network.depth)
    wanted, rows, point = set(kept), [start.rms()], start
    for t in range(1, inference.steps + 1):
        gradient = point.hidden_error - networks.pulls(chain, point)
        if nudge is not None:
            gradient += nudge(point.output_error)
        update(free, gradient, t)
        point = networks.at(chain, start.z[0], y, free) if plain else networks.deviated(chain, y, start, free)
        if t in wanted:
            rows.append(point.rms())
            report(t)
    steady = networks.carried(chain, point, None if nudge is None else nudge(point.output_error))
    return _trace(spec, chain, start, kept, torch.stack(rows), point._replace(hidden_error=steady))


def _nudge(run: RunSpec, start: Point) -> Callable[[Tensor], Tensor] | None:
    """A map from eps_L to alpha V_i eps_L, (L-1, N), 0 in layers without highway; None without highways."""
    if run.highway is None:
        return None
    v = run.highway.alpha * feedback_matrices(run, classes=len(start.output_error))
    rows = torch.tensor(run.endpoints) - 1

    def nudge(output_error: Tensor) -> Tensor:
        moved = torch.zeros_like(start.z)
        moved[rows] = v @ output_error
        return moved

    return nudge


def _swept(spec: Propagation, chain: SingleSampleNetwork, start: Point, x: Tensor, y: Tensor) -> Trace:
    rule = methods.rule(spec.run.method)(spec.run, chain.parameters, "batched")
    errors = rule.gradient(chain.parameters, x.unsqueeze(0), y.unsqueeze(0)).errors
    hidden = errors.hidden[:, 0]
    after = start._replace(hidden_error=hidden, output_error=errors.output[0])
    return _trace(spec, chain, start, [0, 1], torch.stack([start.rms(), after.rms()]), after)


def _trace(
    spec: Propagation, chain: SingleSampleNetwork, start: Point, kept: list[int], errors: Tensor, steady: Point
) -> Trace:
    backprop = start._replace(hidden_error=networks.carried(chain, start))
    return Trace(
        spec,
        np.asarray(kept),
        errors.numpy(),
        backprop.rms().numpy(),
        steady.rms().numpy(),
        {
            "version": __version__,
            "code": propagation_code(spec.run.method),
            "torch": torch.__version__,
            "device": Machine().device_name(),
        },
    )


def in_precision(spec: Propagation, weights: Parameters) -> Parameters:
    """The weights in the precision of the relaxation."""
    dtype = getattr(torch, spec.run.dtype)
    return replace(weights, **{name: tensor.to(dtype) for name, tensor in weights.named().items()})
