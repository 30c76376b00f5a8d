"""A fixed sequence of GPU work as one CUDA graph: launching many small kernels takes longer than running them."""

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
Work = Callable[[Tensors], tuple[Tensor, ...]]

# Graphs kept at a time: for whole batches and an epoch's last one, in training and in the diagnostics.
KEPT = 4


class Replay:
    """A CUDA graph of `work`, recorded once and replayed on other tensors of the same shapes.

    The work must launch the same kernels whatever the tensors hold, and must not wait for the device.
    """

    def __init__(self, work: Work, tensors: Tensors) -> None:
        self.inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        self.outputs, self.replay = record(work, self.inputs)

    def __call__(self, tensors: Tensors) -> tuple[Tensor, ...]:
        for name, tensor in tensors.items():
            self.inputs[name].copy_(tensor)
        self.replay()
        return tuple(output.clone() for output in self.outputs)


def record(work: Work, inputs: Tensors) -> tuple[tuple[Tensor, ...], Callable[[], None]]:
    """The result tensors, and a function that recomputes them in place from what `inputs` hold then."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(inputs)  # libraries set themselves up outside the graph
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = work(inputs)
    return outputs, graph.replay


_recorded: dict[Hashable, Replay] = {}


def replayed(work: Work, settings: Hashable, tensors: Tensors) -> tuple[Tensor, ...]:
    """work(tensors) by a CUDA graph; every combination of settings, shapes, types and devices has its own."""
    key = (settings, tuple((name, t.shape, t.dtype, t.device) for name, t in tensors.items()))
    if key not in _recorded:
        while len(_recorded) >= KEPT:
            del _recorded[next(iter(_recorded))]
        _recorded[key] = Replay(work, tensors)
    return _recorded[key](tensors)
