"""The two ways of moving the states: Euler (gradient descent) and Adam. Moments start at zero at each call."""

from collections.abc import Callable

import torch
from torch import Tensor

from highways.specs.run import Inference

BETA_1, BETA_2 = 0.9, 0.999  # "default betas", appendix B

Update = Callable[[Tensor, Tensor, int], None]


def state_optimizer(inference: Inference, z: Tensor, momentum: float = 0.0) -> Update:
    """A function update(z, gradient, t) that moves z in place at step t = 1, 2, ..., with fresh moments.

    momentum: Nesterov momentum of Euler's steps; Adam ignores it.
    """
    if inference.optimizer == "euler" and momentum:
        velocity = torch.zeros_like(z)

        def nesterov(z: Tensor, gradient: Tensor, t: int) -> None:
            velocity.mul_(momentum).add_(gradient)
            z.sub_(gradient.add(velocity, alpha=momentum), alpha=inference.step_size)

        return nesterov

    if inference.optimizer == "euler":

        def euler(z: Tensor, gradient: Tensor, t: int) -> None:
            z.sub_(gradient, alpha=inference.step_size)

        return euler

    m, v = torch.zeros_like(z), torch.zeros_like(z)

    def adam(z: Tensor, gradient: Tensor, t: int) -> None:
        m.lerp_(gradient, 1 - BETA_1)
        v.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        denominator = v.sqrt().div_((1 - BETA_2**t) ** 0.5).add_(inference.eps)
        z.addcdiv_(m, denominator, value=-inference.step_size / (1 - BETA_1**t))

    return adam
