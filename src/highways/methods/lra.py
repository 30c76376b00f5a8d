"""Local representation alignment: LRA-E (Ororbia & Mali, AAAI 2019, arXiv 1805.11703), and rec-LRA (Ororbia et
al., AAAI 2023) without skips, a re-implementation from secondary descriptions.

    d_l = E_l e_{l+1}, or E_{L->l} e_L         e_L = softmax(mu_L) - y
    e_l = phi(a_l) - phi(a_l - beta d_l)       a_l = W_{l-1} h_{l-1}; the target is phi(a_l - beta d_l)
    dW_{l-1} = e_l h_{l-1}^T                   no phi'
    dE_l = gamma h_l e_{l+1}^T, or h_l e_L^T   Kolen-Pollack: E follows W^T; or E stays as drawn, N(0, 1)

LRA-E feeds back from layer to layer, rec-LRA at every m-th layer from the output. With m = 1 and a fixed E,
rec-LRA is direct feedback alignment, except that e_l is a difference of phi. Where phi stands before the
matrix only (the readings pre and pre_norm), e_l is beta d_l, and the two are the same. Left out of rec-LRA:
the noise, the signed errors and the projection of the updates. Local, without W^T (except in the gain's
step). Extra parameters: about those of W for LRA-E. Cost: a forward and a backward sweep.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from highways.methods import base
from highways.methods.base import Gradient, Learned
from highways.methods.sweeps import Sweep, upwards
from highways.model.energy import Errors, outer_products
from highways.model.network import Architecture, Parameters, output_error, phi
from highways.model.randomness import generator
from highways.specs.run import RunSpec


class Rule(base.Rule):
    """A forward sweep, then targets from the top down: from the output for `direct`, else from above."""

    learned: Learned

    def __init__(self, spec: RunSpec, parameters: Parameters, kernel: str) -> None:
        self.options, self.architecture = spec.rule, Architecture.of(spec)
        classes, width = parameters.w_out.shape
        depth = spec.network.depth
        self.direct = spec.rule.direct(depth)
        self.neighbour = [i for i in range(1, depth) if i not in self.direct]

        def drawn(layers: list[int], columns: int) -> Tensor:
            found = torch.empty(len(layers), width, columns, dtype=torch.float64)
            for row, i in enumerate(layers):
                found[row].normal_(generator=generator(spec.seed, f"feedback/{i}"))
            return found.to(parameters.w_out)

        self.learned = Learned(spec.learning, drawn(self.direct, classes), drawn(self.neighbour, width))

    def batch_gradient(self, parameters: Parameters, x: Tensor, y: Tensor, update: int) -> Gradient:
        sweep = upwards(parameters, x, self.architecture)
        output = output_error(y, sweep.logits, self.architecture)
        errors = Errors(self.hidden_errors(sweep, output), output)
        weights = outer_products(parameters, x, sweep.states, errors, self.architecture)
        feedback = self.feedback_gradients(sweep, errors) if self.options.learned else ()
        return Gradient(weights, sweep.logits, errors, feedback=feedback)

    def hidden_errors(self, sweep: Sweep, output: Tensor) -> Tensor:
        """eps_l = -e_l of layers 1..L-1, (L-1, B, N); output (B, C) is eps_L = -e_L."""
        direct, neighbour = self.learned.tensors
        feed = dict(zip(self.direct, output @ direct.transpose(1, 2), strict=True))
        matrix = dict(zip(self.neighbour, neighbour, strict=True))
        found: list[Tensor] = []
        for i in range(len(sweep.states), 0, -1):
            d = feed[i] if i in feed else found[-1] @ matrix[i].T
            a = sweep.products[i - 1]
            target = a + self.options.beta * d
            if self.architecture.activates_prediction:
                found.append(phi(target, self.architecture) - sweep.predictions[i - 1])
            else:
                found.append(target - a)
        return torch.stack(found[::-1])

    def feedback_gradients(self, sweep: Sweep, errors: Errors) -> tuple[Tensor, ...]:
        """dE of the layers `direct`, (., N, C), and `neighbour`, (., N, N), means over the batch."""
        scale = -self.options.gamma / len(errors.output)
        h = torch.stack([encoding.h for encoding in sweep.encodings]).transpose(1, 2)
        direct = [i - 1 for i in self.direct]
        neighbour = [i - 1 for i in self.neighbour]
        above = errors.hidden[self.neighbour]  # row i is eps_{i+1}
        return scale * (h[direct] @ errors.output), scale * (h[neighbour] @ above)

    def step(self, parameters: Parameters, gradient: Gradient, lr: float, descend: Callable[[], None]) -> None:
        descend()
        if gradient.feedback:
            self.learned.step(gradient.feedback, lr)
