"""What a learning rule hands to the training loop."""

from typing import NamedTuple, Protocol

from torch import Tensor

from highways.energy import Errors
from highways.network import Parameters
from highways.spec import RunSpec


class Gradient(NamedTuple):
    """One update's worth.

    weights: what AdamW descends, a mean over the batch, shaped like the parameters.
    logits (B, C): the feedforward prediction before any inference.
    errors: the errors that the weights learn from, for the diagnostics.
    """

    weights: Parameters
    logits: Tensor
    errors: Errors


class Rule(Protocol):
    """A learning rule: holds what is fixed over a run (such as feedback matrices), never the weights."""

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None: ...

    def gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int = 0) -> Gradient:
        """x (B, D) images, y (B, C) one-hot targets; `update` counts the updates before this one."""
        ...
