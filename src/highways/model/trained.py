"""A trained network that takes unprocessed images; `highways.load` returns one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from highways import weights
from highways.model.network import Architecture, Parameters, feedforward
from highways.weights import About, WeightsError

_AT_A_TIME = 2000
Images = TypeVar("Images", Tensor, NDArray[Any])


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network. `about` describes its run, its epoch and its accuracies (`highways.weights.About`).

    Images are uint8 pixels from 0 to 255, of shape (n, height, width), (n, pixels) or any other with n first.
    The network standardises them itself, with the mean and deviation that it was trained with.
    """

    about: About
    parameters: Parameters

    def predict(self, images: Images) -> Images:
        """The class of every image, int64 (n,): a tensor for a tensor, an array for an array.

        Raises ValueError for images of another size or type.
        """
        classes = self.outputs(images).argmax(-1)
        return classes.numpy() if isinstance(images, np.ndarray) else classes

    @torch.no_grad()
    def outputs(self, images: Images) -> Tensor:
        """The output mu_L of every image, (n, classes): logits, or scores where the method has a squared loss."""
        architecture = Architecture.of(self.about.spec)
        chunks = torch.split(self._pixels(images), _AT_A_TIME)
        return torch.cat([feedforward(self.parameters, self.standardised(x), architecture) for x in chunks])

    def standardised(self, pixels: Tensor) -> Tensor:
        """The network's input, (n, D), computed as in training: in float32, then in the weights' type."""
        scaled = pixels.to(torch.float32).div_(255).sub_(self.about.mean).div_(self.about.std)
        return scaled.to(self.parameters.w_in.dtype)

    def _pixels(self, images: Tensor | NDArray[Any]) -> Tensor:
        kind = str(getattr(images, "dtype", type(images).__name__)).removeprefix("torch.")
        if kind != "uint8":
            raise ValueError(f"images of {kind}; the network takes pixels from 0 to 255 as uint8")
        pixels = images.cpu() if isinstance(images, Tensor) else torch.from_numpy(images.copy())
        size = self.parameters.w_in.shape[1]
        if pixels.ndim < 2 or pixels.shape[1:].numel() != size:
            raise ValueError(f"images of shape {tuple(pixels.shape)}; the network takes (n, ...) of {size} pixels")
        if pixels.ndim == 4 and 1 < pixels.shape[1] <= 4 < pixels.shape[3]:
            raise ValueError(
                f"images of shape {tuple(pixels.shape)}; channels come last: (n, height, width, channels)"
            )
        if len(pixels) and pixels.max() == 1:
            raise ValueError("pixels of 0 and 1; the network takes them from 0 to 255")
        return pixels.flatten(1)


def load(path: str | Path) -> Trained:
    """The network in a file of weights; raises WeightsError where the file is missing or holds no network."""
    about, arrays = weights.read(path)
    if about.epoch is None:
        raise WeightsError(f"{path}: no weights; the run diverged in its first epoch")
    try:
        parameters = Parameters(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    except TypeError as error:
        raise WeightsError(f"{path}: not the tensors of a network ({error}); {weights.REMEDY}") from None
    network = about.spec.network
    if (parameters.depth, parameters.w_in.shape[0]) != (network.depth, network.width):
        raise WeightsError(f"{path}: not of depth {network.depth} and width {network.width}; {weights.REMEDY}")
    return Trained(about, parameters)


def save(path: Path, about: About, parameters: Parameters | None) -> None:
    """Write a file of weights; parameters None: the run diverged in its first epoch and has none."""
    named = {} if parameters is None else parameters.named()
    weights.write(path, about, {name: tensor.cpu().numpy() for name, tensor in named.items()})
