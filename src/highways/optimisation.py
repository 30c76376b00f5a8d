"""The M-step's optimiser: AdamW with the rule's own update as the gradient, and the learning-rate schedule."""

import math
from typing import Any

import torch

from highways.network import Parameters, scales
from highways.spec import Learning, RunSpec


def weight_optimizer(spec: RunSpec, parameters: Parameters) -> torch.optim.AdamW:
    """torch's AdamW over the stacked tensors, decaying the gains only where the conventions say so.

    A step on muPC's W is one on a W with the rate a lr, the epsilon eps/a and the decay wd/a.
    """
    named, learning = parameters.named(), spec.learning
    gain_decay = learning.weight_decay if spec.conventions.weight_decay_on_gain else 0.0
    groups: list[dict[str, Any]] = [{"params": [named.pop("gain")], "weight_decay": gain_decay, "scale": 1.0}]
    factors = scales(spec, parameters.w_in.shape[1])
    for a in dict.fromkeys(factors.get(name, 1.0) for name in named):
        tensors = [tensor for name, tensor in named.items() if factors.get(name, 1.0) == a]
        groups.append(
            {"params": tensors, "eps": learning.eps / a, "weight_decay": learning.weight_decay / a, "scale": a}
        )
    return torch.optim.AdamW(
        groups, lr=learning.lr, eps=learning.eps, weight_decay=learning.weight_decay, fused=True
    )


def apply(optimizer: torch.optim.AdamW, parameters: Parameters, gradient: Parameters, lr: float) -> None:
    """One update of the parameters in place."""
    named = parameters.named()
    for name, tensor in gradient.named().items():
        named[name].grad = tensor
    for group in optimizer.param_groups:
        group["lr"] = group["scale"] * lr
    optimizer.step()


def learning_rate(learning: Learning, update: int, updates: int) -> float:
    """The rate of update 0, 1, ... of a run of that many updates.

    warmup_cosine rises linearly over the first part of the horizon and then falls as half a cosine to zero.
    """
    if learning.schedule == "constant":
        return learning.lr
    horizon = learning.horizon or updates
    warmup = round(learning.warmup_fraction * horizon)
    if update < warmup:
        return learning.lr * (update + 1) / warmup
    progress = min(1.0, (update - warmup) / max(1, horizon - warmup))
    return learning.lr * 0.5 * (1.0 + math.cos(math.pi * progress))
