"""The `native` kernel: estep.cpp, float32 on a CPU. The kernel `mixed` is the same with bf16 products."""

import ctypes
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

from highways.inference.build import BuildError, library
from highways.inference.estep import EStep, check_network
from highways.model.energy import Errors, Relaxed
from highways.model.network import Architecture, Parameters, first_prediction

# In the order of the enumerations of estep.cpp.
_ACTIVATIONS = ("post", "pre", "both", "pre_norm")
_PHIS = ("relu", "tanh")

# How many steps walk down the network together; with 0 the library chooses by the size of the cache.
WALKERS = 0


class _Problem(ctypes.Structure):
    """`struct Problem` of problem.h, which documents the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "width", "classes", "batch", "activation", "phi")),
        *((name, ctypes.c_int64) for name in ("normalised", "skips", "squared", "adam", "steps", "settled")),
        *((name, ctypes.c_int64) for name in ("first", "every", "cut", "threads", "walkers")),
        *((name, ctypes.c_float) for name in ("rms_eps", "step_size", "momentum", "eps", "scale")),
        *((name, ctypes.c_void_p) for name in ("w_hidden", "w_out", "gain", "b_hidden", "b_out", "feedback")),
        *((name, ctypes.c_void_p) for name in ("precisions", "mu_1", "y", "states", "predictions", "errors")),
        ("output_error", ctypes.c_void_p),
    )


@cache
def load(kernel: str = "native") -> ctypes.CDLL:
    """The library, built if the cache lacks it; raises BuildError where it cannot be built or loaded."""
    path = library(kernel)
    try:
        loaded = ctypes.CDLL(str(path))
        for function in ("highways_sweep", "highways_relax", "highways_amx"):
            getattr(loaded, function)
    except (OSError, AttributeError) as error:
        raise BuildError(f"{path} cannot be loaded ({error}); delete it") from None
    if loaded.highways_amx() < 0:
        print("highways: mixed: the system refuses AMX to this process; using AVX512-BF16", file=sys.stderr)
    return loaded


def supports(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cpu" and dtype == torch.float32


@torch.no_grad()
def initial_states(
    parameters: Parameters, x: Tensor, architecture: Architecture, kernel: str = "native"
) -> Tensor:
    """States that equal their predictions bit for bit, (L-1, B, N). Raises what `check_network` raises."""
    check_network(parameters, x)
    mu_1 = first_prediction(parameters, x, architecture)
    states = mu_1.new_empty(parameters.depth - 1, *mu_1.shape)
    _call(load(kernel).highways_sweep, parameters, mu_1, architecture, states=states)
    return states


@torch.no_grad()
def relax(step: EStep, kernel: str = "native") -> tuple[Tensor, Relaxed]:
    """The initial states, (L-1, B, N): `step.start`, else the forward sweep; and the result of T steps."""
    inference = step.inference
    swept = initial_states(step.parameters, step.x, step.architecture, kernel)
    initial = swept if step.start is None else step.start
    states = initial.clone(memory_format=torch.contiguous_format)
    mu, error = torch.empty_like(states), Errors(torch.empty_like(states), states.new_empty(step.y.shape))
    settings: dict[str, Any] = {
        "adam": inference.optimizer == "adam",
        "steps": inference.steps,
        "settled": step.start is None,
        "step_size": inference.step_size,
        "eps": inference.eps,
        "scale": step.scale,
        "threads": torch.get_num_threads(),
        "walkers": WALKERS,
    }
    if step.highways is not None:
        first, every, chain = step.highways[1:]
        settings |= {"first": first, "every": every, "cut": not chain, "feedback": step.highways.feedback}
    if step.schedule is not None:
        settings |= step.schedule._asdict()
    settings |= {"y": step.y, "states": states, "predictions": mu}
    settings |= {"errors": error.hidden, "output_error": error.output}
    _call(load(kernel).highways_relax, step.parameters, swept[0], step.architecture, **settings)
    return initial, Relaxed(states, mu, error)


def _call(
    function: Any, parameters: Parameters, mu_1: Tensor, architecture: Architecture, **settings: Any
) -> None:
    """Call a function of the library; tensors go to it by address, so the caller has checked their shapes."""
    if not supports(mu_1.device, mu_1.dtype):
        raise ValueError(f"native kernel: float32 on the CPU, not {mu_1.dtype} on {mu_1.device}")
    if architecture.skips and (architecture.activation != "pre" or parameters.gain.numel()):
        raise ValueError("native kernel: skips are those of muPC: phi before the matrix, nothing normalised")
    description = {
        "hidden": parameters.depth - 1,
        "width": mu_1.shape[1],
        "classes": parameters.w_out.shape[0],
        "batch": mu_1.shape[0],
        "activation": _ACTIVATIONS.index(architecture.activation),
        "phi": _PHIS.index(architecture.phi),
        "normalised": parameters.gain.shape[0],
        "skips": architecture.skips,
        "squared": architecture.squared,
        "rms_eps": architecture.rms_eps,
        "mu_1": mu_1,
        "w_hidden": parameters.w_hidden,
        "w_out": parameters.w_out,
        "gain": parameters.gain,
        "b_hidden": parameters.b_hidden,
        "b_out": parameters.b_out,
        **settings,
    }
    # Kept until the library returns, since some are copies. Arrays that it writes to are contiguous already.
    arrays = {name: value.contiguous() for name, value in description.items() if isinstance(value, Tensor)}
    addresses = {name: array.data_ptr() for name, array in arrays.items()}
    problem = _Problem(**{**description, **addresses})
    if function(ctypes.byref(problem)) != 0:
        raise MemoryError("the kernel found no memory for the states")
