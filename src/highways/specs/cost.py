"""The cost of a method beyond the section `inference` of its specification. Imports no torch."""

from typing import NamedTuple


class Cost(NamedTuple):
    """Work per batch beside the section `inference`; numbers kept beside the weights and the highways.

    steps: updates of the states of all layers at once. sweeps: sweeps up or down the layers, beside the first.
    weight_steps: steps on the weights.
    direct, neighbours: feedback matrices from the output, (N, C), and from the next layer, (N, N).
    learned: whether these matrices are learned.
    """

    steps: float = 0.0
    sweeps: float = 0.0
    weight_steps: int = 1
    direct: int = 0
    neighbours: int = 0
    learned: bool = False


def no_more(options: object, depth: int) -> Cost:
    """The cost of a method without work beyond its section `inference`."""
    return Cost()
