"""The parametrisation of the network that a method trains. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass

Scales = dict[str, float]


def unscaled(depth: int, width: int, inputs: int) -> Scales:
    """The factor of every matrix, by field of `network.Parameters`: 1."""
    return {"w_in": 1.0, "w_hidden": 1.0, "w_out": 1.0}


@dataclass(frozen=True)
class Parametrisation:
    """The network of a method. `STANDARD` is that of the benchmark, which the conventions of a run describe.

    standard: whether the conventions hold; without them phi stands before every matrix and nothing is normalised.
    skips: mu_{l+1} = z_l + ... between hidden layers.
    squared: the loss is 1/2 ||y - mu_L||^2, not cross-entropy.
    scales: maps depth, width and the number of inputs to a factor a of every matrix. The network multiplies
        with a W, where W ~ N(0, 1) is drawn and learned. Unscaled matrices are drawn as the spec says.
    """

    standard: bool = True
    skips: bool = False
    squared: bool = False
    scales: Callable[[int, int, int], Scales] = unscaled

    @property
    def scaled(self) -> bool:
        return self.scales is not unscaled


STANDARD = Parametrisation()
