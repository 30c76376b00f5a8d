"""What a learning rule hands to the training loop, and what it is asked for."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from highways.methods.weight_step import AdamW, Group
from highways.model.arithmetic import exact_float32
from highways.model.energy import Errors
from highways.model.network import ParameterGradient, Parameters
from highways.specs.run import Learning, RunSpec


class Gradient(NamedTuple):
    """One update's worth.

    weights: what AdamW descends, so +dE/dW, shaped like the parameters; a mean over the batch as a rule hands it
        out, a sum as it computes it (`Rule.reduction`).
    logits (B, C): the feedforward prediction before any inference.
    errors: the errors that the weights learn from, for the diagnostics.
    preliminary_step: what is added to the weights before AdamW's step; None where there is no such phase.
    feedback: what the rule's learned matrices descend, in their order, a mean over the batch.
    """

    weights: ParameterGradient
    logits: Tensor
    errors: Errors
    preliminary_step: ParameterGradient | None = None
    feedback: tuple[Tensor, ...] = ()


def mean_over_batch(gradient: ParameterGradient, batch: int) -> ParameterGradient:
    """The gradient divided by the size of the batch, in place."""
    for tensor in gradient.named().values():
        tensor.div_(batch)
    return gradient


class Rule:
    """A learning rule: holds what a run keeps fixed and what it learns beside the weights, never the weights.

    reduction: whether `batch_gradient` gives the `sum` over the batch or, as autograd on a mean loss, the `mean`.
    """

    reduction: ClassVar[str] = "sum"
    learned: "Learned | None" = None

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        raise NotImplementedError

    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        """x (B, D) images, y (B, C) one-hot targets; `update` counts the updates before this one.

        Changes nothing. Without autograd and in exact float32, the mean over the batch.
        """
        with torch.no_grad(), exact_float32():
            found = self.batch_gradient(parameters, x, y, update)
            weights = found.weights.detached()
            if self.reduction == "sum":
                mean_over_batch(weights, len(x))
        errors = Errors(found.errors.hidden.detach(), found.errors.output.detach())
        return found._replace(weights=weights, logits=found.logits.detach(), errors=errors)

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        """What a rule defines: its gradient on a batch, under `reduction`, in new tensors."""
        raise NotImplementedError

    def step(self, parameters: Parameters, gradient: Gradient, lr: float, descend: Callable[[], None]) -> None:
        """One update in place; `descend` is AdamW's step on the weights at the rate lr."""
        descend()


class Learned:
    """Matrices that a rule learns beside the weights, by an AdamW of their own with the weights' settings."""

    def __init__(self, learning: Learning, *tensors: Tensor) -> None:
        self.tensors = tensors
        named = _numbered(tensors)
        self.optimizer = AdamW(named, [Group(tuple(named), learning.eps, learning.weight_decay)])

    def step(self, gradients: tuple[Tensor, ...], lr: float) -> None:
        self.optimizer.step(_numbered(self.tensors), _numbered(gradients), lr)

    def state(self) -> dict[str, object]:
        """For a checkpoint."""
        return {"tensors": list(self.tensors), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, object]) -> None:
        """Go on from what `state` returned."""
        saved: list[Tensor] = state["tensors"]  # type: ignore[assignment]
        for tensor, value in zip(self.tensors, saved, strict=True):
            tensor.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]


def _numbered(tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {str(number): tensor for number, tensor in enumerate(tensors)}
