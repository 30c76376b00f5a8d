"""The evaluation of every method: a plain feedforward sweep over all images of a part of the data."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways.data import Part
from highways.model.network import Architecture, Parameters, feedforward

CHUNK = 2000


@torch.no_grad()
def evaluate(parameters: Parameters, part: Part, architecture: Architecture) -> tuple[float, float]:
    """Mean cross-entropy and accuracy (a fraction) over all images of a part."""
    loss, correct = 0.0, 0
    chunks = zip(torch.split(part.images, CHUNK), torch.split(part.labels, CHUNK), strict=True)
    for images, labels in chunks:
        logits = feedforward(parameters, images, architecture)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        correct += correct_predictions(logits, labels)
    return loss / len(part.labels), correct / len(part.labels)


def correct_predictions(logits: Tensor, labels: Tensor) -> int:
    return int((logits.argmax(-1) == labels).sum().item())
