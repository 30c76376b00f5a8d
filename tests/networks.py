"""Small problems for the tests of the mathematics, and the same network built from torch's own modules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor, nn

from highways import methods
from highways.inference import relax
from highways.methods import METHODS
from highways.model.energy import Highways, Predictions, Relaxed, errors, predict
from highways.model.network import Architecture, Parameters, first_prediction, initialise
from highways.specs.run import RunSpec

INPUTS, CLASSES = 5, 4
KERNELS = ("reference", "batched")
ACTIVATIONS = ("post", "pre", "both", "pre_norm")
READINGS = [
    {"activation": activation, "normalise_output_input": normalise, "bias": bias}
    for activation, normalise, bias in product(ACTIVATIONS, (False, True), (False, True))
] + [{"activation": activation, "normalisation": "none"} for activation in ACTIVATIONS]


def name_of(reading: dict[str, Any]) -> str:
    """A test id for a choice of conventions."""
    return "-".join(key if value is True else str(value) for key, value in reading.items() if value)


def make_spec(
    method: str = "pc",
    *,
    depth: int = 5,
    width: int = 6,
    phi: str = "tanh",
    initialisation: str = "gaussian",
    inference: dict[str, Any] | None = None,
    highway: dict[str, Any] | None = None,
    learning: dict[str, Any] | None = None,
    rule: dict[str, Any] | None = None,
    conventions: dict[str, Any] | None = None,
    seed: int = 0,
    dtype: str = "float64",
) -> RunSpec:
    """A small spec in double precision; a section's argument holds the values that differ from those here."""
    sections: dict[str, Any] = {}
    if METHODS[method].inference:
        sections["inference"] = {"optimizer": "euler", "step_size": 0.1, "steps": 4, **(inference or {})}
    if METHODS[method].highway:
        sections["highway"] = {"alpha": 2.0, "sigma_v": 0.1, **(highway or {})}
    if METHODS[method].options is not None:
        sections["rule"] = rule or {}
    return RunSpec.from_dict(
        {
            "dataset": "mnist",
            "method": method,
            "network": {"depth": depth, "width": width, "phi": phi, "initialisation": initialisation},
            "learning": {"lr": 1e-3, **(learning or {})},
            "conventions": conventions or {},
            "seed": seed,
            "dtype": dtype,
            **sections,
        }
    )


@dataclass(frozen=True)
class Problem:
    """A network with nothing special about it (gains are not 1, biases are not 0) and a batch to infer on."""

    spec: RunSpec
    parameters: Parameters
    x: Tensor
    y: Tensor

    @property
    def architecture(self) -> Architecture:
        return Architecture.of(self.spec)

    @property
    def mu_1(self) -> Tensor:
        return first_prediction(self.parameters, self.x, self.architecture)

    @property
    def highways(self) -> Highways | None:
        return self.rule().highways(0)

    def rule(self, kernel: str = "batched") -> Any:
        return methods.rule(self.spec.method)(self.spec, self.parameters, kernel)

    def gradient(self, kernel: str = "batched") -> Any:
        return self.rule(kernel).gradient(self.parameters, self.x, self.y)

    def predict(self, z: Tensor) -> Predictions:
        return predict(self.parameters, z, self.mu_1, self.architecture)

    def at(self, z: Tensor) -> Relaxed:
        """Predictions and errors at the states z (L-1, B, N)."""
        predictions = self.predict(z)
        return Relaxed(z, predictions.mu, errors(z, self.y, predictions, self.architecture))

    def states(self) -> Tensor:
        """States somewhere off their predictions, (L-1, B, N)."""
        initial, _ = self.relax()
        return initial + 0.3 * torch.randn(initial.shape, generator=stream(3), dtype=initial.dtype)

    def relax(self, kernel: str = "batched", **inference: Any) -> tuple[Tensor, Tensor]:
        """The initial and final states, (L-1, B, N) each, of the E-step; keywords replace its settings."""
        settings = replace(self.spec.inference, **inference)
        arguments = (settings, self.architecture, self.spec.conventions, self.highways, kernel)
        initial, relaxed = relax(self.parameters, self.x, self.y, *arguments)
        return initial, relaxed.z


def make_problem(
    method: str = "pc", *, batch: int = 3, inputs: int = INPUTS, classes: int = CLASSES, **settings: Any
) -> Problem:
    spec = make_spec(method, **settings)
    parameters = initialise(spec, inputs=inputs, classes=classes)
    noise = stream(1)
    for name, tensor in parameters.named().items():
        if name == "gain" or name.startswith("b_"):
            tensor += 0.2 * torch.randn(tensor.shape, generator=noise, dtype=torch.float64).to(tensor.dtype)
    x = torch.randn(batch, inputs, generator=noise, dtype=torch.float64).to(parameters.w_in.dtype)
    y = torch.eye(classes, dtype=x.dtype)[torch.randint(classes, (batch,), generator=noise)]
    return Problem(spec, parameters, x, y)


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class PlainNetwork(nn.Module):
    """The network as torch users write it: one Linear and one RMSNorm after the other."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        spec, parameters = problem.spec, problem.parameters
        self.activation = spec.conventions.activation
        self.nonlinearity = {"relu": nn.ReLU(), "tanh": nn.Tanh()}[spec.network.phi]
        depth, width, dtype = spec.network.depth, spec.network.width, parameters.w_in.dtype
        sizes = [parameters.w_in.shape[1], *[width] * (depth - 1), parameters.w_out.shape[0]]
        self.linears = nn.ModuleList(
            nn.Linear(below, above, bias=spec.conventions.bias, dtype=dtype) for below, above in pairwise(sizes)
        )
        normalised = depth - 1 if spec.conventions.normalise_output_input else depth - 2
        if spec.conventions.normalisation == "none":
            normalised = 0
        self.norms = nn.ModuleList(
            nn.RMSNorm(width, eps=spec.conventions.rms_eps, dtype=dtype) for _ in range(normalised)
        )
        with torch.no_grad():
            for linear, matrix in zip(self.linears, parameters.matrices(), strict=True):
                linear.weight.copy_(matrix)
            for norm, gain in zip(self.norms, parameters.gain, strict=True):
                norm.weight.copy_(gain)
            if spec.conventions.bias:
                biases = [parameters.b_in, *parameters.b_hidden, parameters.b_out]
                for linear, bias in zip(self.linears, biases, strict=True):
                    linear.bias.copy_(bias)

    def prediction(self, layer: int, z: Tensor) -> Tensor:
        """mu_{layer+1} from z_layer."""
        phi, last = self.nonlinearity, len(self.linears) - 1
        norm = self.norms[layer - 1] if 0 < layer <= len(self.norms) else nn.Identity()
        linear = self.linears[layer]
        inner = {
            "post": lambda z: norm(z),
            "pre": lambda z: phi(norm(z)),
            "both": lambda z: phi(norm(z)),
            "pre_norm": lambda z: norm(phi(z)),
        }[self.activation]
        a = linear(inner(z) if layer > 0 else z)
        return phi(a) if self.activation in ("post", "both") and layer < last else a

    def forward(self, x: Tensor, offsets: Tensor | None = None) -> Tensor:
        """The logits, after adding an offset (L-1, B, N) to every hidden state on the way."""
        z = x
        for layer in range(len(self.linears) - 1):
            z = self.prediction(layer, z)
            if offsets is not None:
                z = z + offsets[layer]
        return self.prediction(len(self.linears) - 1, z)

    def energy(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Eq. energy, summed over the batch."""
        below, total = x, torch.zeros((), dtype=x.dtype)
        for layer, state in enumerate(z):
            total = total + 0.5 * (state - self.prediction(layer, below)).pow(2).sum()
            below = state
        logits = self.prediction(len(self.linears) - 1, below)
        return total + nn.functional.cross_entropy(logits, y, reduction="sum")

    def named_gradients(self) -> Iterator[tuple[str, int | None, Tensor]]:
        """Every gradient with its field of `Parameters` and its row there (None: the whole field)."""
        last = len(self.linears) - 1
        for layer, linear in enumerate(self.linears):
            place = "in" if layer == 0 else "out" if layer == last else "hidden"
            row = layer - 1 if place == "hidden" else None
            yield f"w_{place}", row, linear.weight.grad
            if linear.bias is not None:
                yield f"b_{place}", row, linear.bias.grad
        for row, norm in enumerate(self.norms):
            yield "gain", row, norm.weight.grad


def backprop_errors(problem: Problem) -> Tensor:
    """-dl/dz_i per sample, (L-1, B, N), by torch's autograd on a plain network."""
    network = problem.spec.network
    shape = (network.depth - 1, len(problem.x), network.width)
    offsets = torch.zeros(shape, dtype=problem.x.dtype, requires_grad=True)
    logits = PlainNetwork(problem)(problem.x, offsets)
    nn.functional.cross_entropy(logits, problem.y, reduction="sum").backward()
    assert offsets.grad is not None
    return -offsets.grad


def assert_gradients_match(gradient: Parameters, network: PlainNetwork, atol: float) -> None:
    """The hand-written gradient against what backward() left in the plain network."""
    ours, entries = gradient.named(), 0
    for name, row, expected in network.named_gradients():
        tensor = ours[name] if row is None else ours[name][row]
        torch.testing.assert_close(tensor, expected, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")
        entries += expected.numel()
    assert entries == sum(tensor.numel() for tensor in ours.values())


def central_differences(function: Callable[[Tensor], Tensor], at: Tensor, h: float = 1e-4) -> Tensor:
    """The gradient of a scalar function, entry by entry, by five-point differences.

    The error is h^4 / 30 = 3e-18 times a fifth derivative, plus the rounding of the function over h:
    some 1e-11 for a function of size 10.
    """
    gradient = torch.empty_like(at)
    for index in range(at.numel()):
        step = torch.zeros_like(at)
        step.view(-1)[index] = h
        near = function(at + step) - function(at - step)
        far = function(at + 2 * step) - function(at - 2 * step)
        gradient.view(-1)[index] = (8 * near - far) / (12 * h)
    return gradient
