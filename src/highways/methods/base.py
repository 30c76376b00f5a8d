"""The interface between a learning rule and the training loop."""

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from highways.errors import UserError
from highways.methods.weight_step import AdamW, Group
from highways.model.arithmetic import exact_float32
from highways.model.energy import Errors
from highways.model.network import ParameterGradient, Parameters
from highways.specs.run import Learning, RunSpec


class Gradient(NamedTuple):
    """The gradient of one update, and what comes with it.

    weights: +dE/dW, which AdamW descends, shaped like the parameters. `Rule.gradient` returns a mean over the
        batch, `Rule.batch_gradient` what `Rule.reduction` names.
    logits (B, C): the feedforward prediction before any inference.
    errors: the errors that the weights learn from, for the diagnostics.
    preliminary_step: the step that is added to the weights before AdamW's; None where the rule has none.
    feedback: the gradients of `Learned.tensors`, in their order, means over the batch.
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
    """A learning rule: a run's settings and the matrices learned beside the weights. It holds no weights.

    reduction: whether `batch_gradient` returns the `sum` over the batch or the `mean`.
    """

    reduction: ClassVar[str] = "sum"
    learned: "Learned | None" = None

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        raise NotImplementedError

    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        """The mean gradient of a batch, x (B, D) and y (B, C) one-hot; `update` counts the batches before it.

        Changes neither weights nor learned matrices. Runs without autograd, in exact float32.
        """
        with torch.no_grad(), exact_float32():
            return self._as_handed_out(self.batch_gradient(parameters, x, y, update), len(x))

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        """The gradient on a batch, reduced as `reduction` says, in new tensors; a subclass defines it."""
        raise NotImplementedError

    def gradients(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Iterator[Gradient]:
        """The gradients of a batch, on each of which the training steps; most rules have one."""
        yield self.gradient(parameters, x, y, update)

    def _as_handed_out(self, found: Gradient, batch: int) -> Gradient:
        weights = found.weights.detached()
        if self.reduction == "sum":
            mean_over_batch(weights, batch)
        errors = Errors(found.errors.hidden.detach(), found.errors.output.detach())
        return found._replace(weights=weights, logits=found.logits.detach(), errors=errors)

    def step(self, parameters: Parameters, gradient: Gradient, lr: float, descend: Callable[[], None]) -> None:
        """One update in place; `descend` is AdamW's step on the weights at the rate lr."""
        descend()


class Interleaved(Rule):
    """A rule that steps on the weights several times per batch, between the steps of its states."""

    def gradients(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Iterator[Gradient]:
        """One gradient per step on the weights; the caller steps on `parameters` before it asks for the next."""
        inner = self.batch_gradients(parameters, x, y, update)
        while True:
            with torch.no_grad(), exact_float32():
                found = next(inner, None)
                if found is None:
                    return
                handed_out = self._as_handed_out(found, len(x))
            yield handed_out

    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        """The mean of the batch's gradients at fixed weights, and the last errors: for the diagnostics."""
        steps, total = 0, None
        for found in self.gradients(parameters, x, y, update):
            steps += 1
            if total is None:
                total = found.weights
            else:
                for name, tensor in total.named().items():
                    tensor.add_(found.weights.named()[name])
        if total is None:
            raise UserError(
                f"{type(self).__module__}: no step on the weights in a batch; a batch needs one at least"
            )
        return found._replace(weights=mean_over_batch(total, steps))

    def batch_gradients(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Iterator[Gradient]:
        """One gradient, as of `Rule.batch_gradient`, per step on the weights; a subclass defines it.

        The caller steps while the generator waits, so `parameters` hold new numbers after every `yield`. All
        gradients have the logits from before the first step.
        """
        raise NotImplementedError


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
        """Continue from a saved `state()`."""
        saved: list[Tensor] = state["tensors"]  # type: ignore[assignment]
        for tensor, value in zip(self.tensors, saved, strict=True):
            tensor.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]


def _numbered(tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {str(number): tensor for number, tensor in enumerate(tensors)}
