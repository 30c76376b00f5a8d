"""The M-step's optimizer: AdamW with the rule's own update as the gradient, and the learning-rate schedule."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from highways.model.network import Parameters, scales
from highways.specs.run import Learning, RunSpec


@dataclass(frozen=True)
class Group:
    """AdamW's settings for the tensors with these names; `scale` multiplies the learning rate."""

    names: tuple[str, ...]
    eps: float
    weight_decay: float
    scale: float = 1.0


class AdamW:
    """torch's AdamW update of named tensors, with the default betas; it stores their averages only.

    `torch.optim.AdamW` gives the same bits, but building one imports torch's compiler, which takes longer
    than a small run. fused: use torch's single kernel, which rounds differently from its separate operations.
    """

    def __init__(self, tensors: Mapping[str, Tensor], groups: Sequence[Group], *, fused: bool = False) -> None:
        self.groups, self.fused, self.updates = tuple(groups), fused, 0
        self.averages = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        self.squares = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}

    @torch.no_grad()
    def step(self, tensors: Mapping[str, Tensor], gradients: Mapping[str, Tensor], lr: float) -> None:
        """One update of the tensors in place."""
        for group in self.groups:
            own = [tensors[name] for name in group.names]
            # torch takes the number of earlier updates as tensors, and adds 1 itself.
            places = [tensor.device if self.fused else "cpu" for tensor in own]
            adamw(
                own,
                [gradients[name] for name in group.names],
                [self.averages[name] for name in group.names],
                [self.squares[name] for name in group.names],
                [],
                [torch.tensor(float(self.updates), device=place) for place in places],
                fused=self.fused or None,  # None: torch's choice for the device
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=group.scale * lr,
                weight_decay=group.weight_decay,
                eps=group.eps,
                maximize=False,
            )
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"updates": self.updates, "averages": self.averages, "squares": self.squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved `state_dict()`; KeyError or ValueError where it belongs to other tensors."""
        for ours, saved in ((self.averages, state["averages"]), (self.squares, state["squares"])):
            for name, tensor in ours.items():
                if saved[name].shape != tensor.shape:
                    raise ValueError(f"{name}: shape {tuple(saved[name].shape)} for {tuple(tensor.shape)}")
                tensor.copy_(saved[name])
        self.updates = int(state["updates"])


def weight_optimizer(spec: RunSpec, parameters: Parameters) -> AdamW:
    """AdamW over `parameters`; the gains decay only where the conventions say so.

    A step on muPC's W is one on the stored a W (`network.scales`) at rate a lr, epsilon eps/a, decay wd/a.
    """
    named, learning = parameters.named(), spec.learning
    gain_decay = learning.weight_decay if spec.conventions.weight_decay_on_gain else 0.0
    groups = [Group(("gain",), learning.eps, gain_decay)]
    factors = {name: 1.0 for name in named if name != "gain"} | scales(spec, parameters.w_in.shape[1])
    for a in dict.fromkeys(factors.values()):
        names = tuple(name for name, factor in factors.items() if factor == a)
        groups.append(Group(names, learning.eps / a, learning.weight_decay / a, a))
    return AdamW(named, groups, fused=True)


def apply(optimizer: AdamW, parameters: Parameters, gradient: Parameters, lr: float) -> None:
    """One update of the parameters in place."""
    optimizer.step(parameters.named(), gradient.named(), lr)


def learning_rate(learning: Learning, update: int, updates: int) -> float:
    """The learning rate of update 0, 1, ... in a run of `updates` updates.

    warmup_cosine rises linearly over `warmup_fraction` of the horizon, then falls as half a cosine to zero.
    """
    if learning.schedule == "constant":
        return learning.lr
    horizon = learning.horizon or updates
    warmup = round(learning.warmup_fraction * horizon)
    if update < warmup:
        return learning.lr * (update + 1) / warmup
    progress = min(1.0, (update - warmup) / max(1, horizon - warmup))
    return learning.lr * 0.5 * (1.0 + math.cos(math.pi * progress))
