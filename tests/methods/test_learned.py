"""Matrices that a rule learns beside the weights: their AdamW, and their state in a checkpoint."""

import io

import torch
from torch import Tensor

from highways.methods.base import Learned
from highways.specs.run import Learning
from networks import stream
from rules import ROUNDING


def test_learned_matrices_go_on_from_a_checkpoint_as_if_nothing_had_happened() -> None:
    noise = stream(6)
    shapes = [(2, 3, 4), (0, 3, 3), (5,)]
    start = [torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes]
    steps = [tuple(torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes) for _ in range(6)]
    settings = Learning(0.1, weight_decay=0.2, eps=1e-4)

    def learn(learned: Learned, gradients: list[tuple[Tensor, ...]]) -> None:
        for update, gradient in enumerate(gradients):
            learned.step(gradient, 0.1 / (1 + update))

    unbroken = Learned(settings, *(tensor.clone() for tensor in start))
    learn(unbroken, steps[:3])
    file = io.BytesIO()
    torch.save(unbroken.state(), file)
    file.seek(0)
    resumed = Learned(settings, *(torch.zeros_like(tensor) for tensor in start))
    resumed.restore(torch.load(file, weights_only=True))
    learn(unbroken, steps[3:])
    learn(resumed, steps[3:])
    for ours, theirs, before in zip(resumed.tensors, unbroken.tensors, start, strict=True):
        assert torch.equal(ours, theirs)
        assert not len(before) or (ours - before).abs().min() > 1e-3


def test_learned_matrices_descend_as_torchs_adamw_does() -> None:
    start = torch.randn(3, 4, generator=stream(6), dtype=torch.float64)
    learned = Learned(Learning(0.1, weight_decay=0.2, eps=1e-2), start.clone())
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=1.0, weight_decay=0.2, eps=1e-2)
    for update in range(4):
        gradient = torch.randn(3, 4, generator=stream(10 + update), dtype=torch.float64)
        learned.step((gradient,), 0.1 / (1 + update))
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + update)
        theirs.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(learned.tensors[0], theirs.detach(), **ROUNDING)
