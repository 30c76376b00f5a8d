"""The skip-free MLP: its parameters, their initialisation, and the prediction of one layer from the next below.

Layers are numbered as in the paper: z_0 = x is the input, z_1..z_{L-1} are hidden, z_L = y is the output, and
W_l maps layer l to l+1 for l = 0..L-1. The L-2 hidden matrices have one shape and are stacked, so that one
batched product serves all layers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from highways.model.randomness import generator
from highways.specs.run import RunSpec


@dataclass(frozen=True)
class Architecture:
    """How a prediction is made: the options from `Conventions`, `Network` and `Parametrisation` of a spec."""

    phi: str
    activation: str
    normalise_output_input: bool
    rms_eps: float
    skips: bool = False
    squared: bool = False

    @classmethod
    def of(cls, spec: RunSpec) -> "Architecture":
        reading, asked = spec.conventions, spec.parametrisation
        activation = reading.activation if asked.standard else "pre"
        normalised = asked.standard and reading.normalise_output_input
        return cls(spec.network.phi, activation, normalised, reading.rms_eps, asked.skips, asked.squared)

    def __post_init__(self) -> None:
        if self.skips and self.activates_prediction:
            raise ValueError("skips are added after phi, whose slope is then not to be had from a prediction")

    @property
    def activates_prediction(self) -> bool:
        """Whether phi is applied after the matrix: mu = phi(W h)."""
        return self.activation in ("post", "both")


@dataclass
class Parameters:
    """The weights of a network.

    w_in (N, D), w_hidden (L-2, N, N), w_out (C, N): W_0, W_1..W_{L-2}, W_{L-1}.
    gain (L-2 or L-1, N): gamma of the normalised states, from z_1 upwards; no rows where nothing is normalised.
    b_in (N,), b_hidden (L-2, N), b_out (C,): biases, or None where the network has none.
    """

    w_in: Tensor
    w_hidden: Tensor
    w_out: Tensor
    gain: Tensor
    b_in: Tensor | None = None
    b_hidden: Tensor | None = None
    b_out: Tensor | None = None

    def named(self) -> dict[str, Tensor]:
        """The tensors that exist, by field name."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: tensor for name, tensor in pairs if tensor is not None}

    def detached(self) -> "Parameters":
        """The same tensors, detached from autograd."""
        return Parameters(**{name: tensor.detach() for name, tensor in self.named().items()})

    def clone(self) -> "Parameters":
        return Parameters(**{name: tensor.detach().clone() for name, tensor in self.named().items()})

    def to(self, device: torch.device) -> "Parameters":
        return Parameters(**{name: tensor.to(device) for name, tensor in self.named().items()})

    def matrices(self) -> list[Tensor]:
        """W_0..W_{L-1} as views."""
        return [self.w_in, *self.w_hidden.unbind(), self.w_out]

    def gains(self) -> list[Tensor | None]:
        """gamma_1..gamma_{L-1}; None where a state is not normalised."""
        found = list(self.gain.unbind())
        return [*found, *[None] * (self.depth - 1 - len(found))]

    def biases(self) -> list[Tensor | None]:
        """b_0..b_{L-1}; None where the network has none."""
        if self.b_hidden is None:
            return [None] * self.depth
        return [self.b_in, *self.b_hidden.unbind(), self.b_out]

    @property
    def depth(self) -> int:
        return self.w_hidden.shape[0] + 2

    @property
    def output_gain(self) -> Tensor | None:
        """gamma_{L-1}, (N,), where z_{L-1} is normalised."""
        hidden = self.w_hidden.shape[0]
        return self.gain[hidden] if self.gain.shape[0] > hidden else None

    @property
    def hidden_gain(self) -> Tensor | None:
        """gamma_1..gamma_{L-2}, (L-2, 1, N), where hidden states are normalised."""
        hidden = self.w_hidden.shape[0]
        return self.gain[:hidden].unsqueeze(1) if self.gain.shape[0] >= hidden else None


def scales(spec: RunSpec, inputs: int) -> dict[str, float]:
    """The factor a of every matrix, by field name.

    The method draws and learns W; `Parameters` hold the product a W, which multiplies a state.
    """
    return spec.parametrisation.scales(spec.network.depth, spec.network.width, inputs)


# A gradient has the shapes of the parameters.
ParameterGradient = Parameters


def field_of(layer: int, depth: int) -> str:
    """The field of `Parameters` that holds W_layer."""
    return "w_in" if layer == 0 else "w_out" if layer == depth - 1 else "w_hidden"


def initialise(spec: RunSpec, inputs: int, classes: int) -> Parameters:
    """Draw the weights of a run: N(0, 1/fan_in), N(0, a^2) where scaled, or orthogonal; gains are 1 and biases 0.

    Every matrix is drawn on the CPU in double precision from a random stream of (seed, layer), so all devices
    and precisions start from the same numbers.
    """
    depth, width = spec.network.depth, spec.network.width
    dtype = getattr(torch, spec.dtype)
    asked, factors = spec.parametrisation, scales(spec, inputs)

    def matrix(layer: int, rows: int, columns: int) -> Tensor:
        stream = generator(spec.seed, f"weights/{layer}")
        weight = torch.empty(rows, columns, dtype=torch.float64)
        if spec.network.initialisation == "orthogonal":
            return torch.nn.init.orthogonal_(weight, generator=stream).to(dtype)
        std = factors[field_of(layer, depth)] if asked.scaled else columns**-0.5
        return weight.normal_(0.0, std, generator=stream).to(dtype)

    hidden = [matrix(layer, width, width) for layer in range(1, depth - 1)]
    normalised = 0
    if asked.standard and spec.conventions.normalisation == "rms":
        normalised = depth - 1 if spec.conventions.normalise_output_input else depth - 2
    biases = {}
    if spec.conventions.bias:
        shapes = {"b_in": (width,), "b_hidden": (depth - 2, width), "b_out": (classes,)}
        biases = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    return Parameters(
        w_in=matrix(0, width, inputs),
        w_hidden=torch.stack(hidden) if hidden else torch.zeros(0, width, width, dtype=dtype),
        w_out=matrix(depth - 1, classes, width),
        gain=torch.ones(normalised, width, dtype=dtype),
        **biases,
    )


def phi(a: Tensor, architecture: Architecture) -> Tensor:
    return torch.relu(a) if architecture.phi == "relu" else torch.tanh(a)


def times_phi_prime(delta: Tensor, activity: Tensor, architecture: Architecture) -> Tensor:
    """delta * phi'(a), with phi' taken from the activity phi(a)."""
    if architecture.phi == "relu":
        # One pass: delta where the activity is positive.
        masked: Tensor = torch.ops.aten.threshold_backward(delta, activity, 0.0)
        return masked
    return delta * (1 - activity * activity)


class Encoding(NamedTuple):
    """The input h(z) of a matrix, and the terms of its Jacobian; all (..., B, N) but rms (..., B, 1).

    direction: the normalised state zhat (None without normalisation). active: the output of phi (None where
    phi stands after the matrix only).
    """

    h: Tensor
    direction: Tensor | None
    rms: Tensor | None
    active: Tensor | None


def encode(z: Tensor, gain: Tensor | None, architecture: Architecture) -> Encoding:
    """h(z) of Eq. rmsnorm in the chosen reading: n(z), phi(n(z)) or n(phi(z)); gain (..., 1, N) or None."""
    q = phi(z, architecture) if architecture.activation == "pre_norm" else z
    direction = rms = None
    n = q
    if gain is not None:
        rms = (q.square().mean(-1, keepdim=True) + architecture.rms_eps).sqrt()
        direction = q / rms
        n = direction * gain
    if architecture.activation in ("pre", "both"):
        h = phi(n, architecture)
        return Encoding(h, direction, rms, h)
    return Encoding(n, direction, rms, q if architecture.activation == "pre_norm" else None)


def encode_transposed(
    u: Tensor, encoding: Encoding, gain: Tensor | None, architecture: Architecture
) -> tuple[Tensor, Tensor | None]:
    """(dh/dz)^T u, and (dh/dgamma)^T u per sample, (..., B, N) (None without normalisation)."""
    inner = architecture.activation in ("pre", "both")
    if inner and encoding.active is not None:
        u = times_phi_prime(u, encoding.active, architecture)
    gain_pull = None
    if gain is not None and encoding.direction is not None and encoding.rms is not None:
        gain_pull = u * encoding.direction
        u = u * gain
        radial = (u * encoding.direction).mean(-1, keepdim=True)
        u = (u - encoding.direction * radial) / encoding.rms
    if not inner and encoding.active is not None:
        u = times_phi_prime(u, encoding.active, architecture)
    return u, gain_pull


def first_prediction(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """mu_1, (B, N), from the clamped input x, (B, D), which is neither normalised nor passed through phi."""
    return activated(torch.nn.functional.linear(x, parameters.w_in, parameters.b_in), architecture)


def output_prediction(parameters: Parameters, z: Tensor, architecture: Architecture) -> Tensor:
    """Logits mu_L, (B, C), from z_{L-1}, (B, N)."""
    h = encode(z, parameters.output_gain, architecture).h
    return torch.nn.functional.linear(h, parameters.w_out, parameters.b_out)


class Layer(NamedTuple):
    """One hidden layer of a forward pass, each (B, N): the product W h + b, the prediction mu that it makes, the
    state mu + e, and its encoding.
    """

    product: Tensor
    prediction: Tensor
    state: Tensor
    encoding: Encoding


def climb(
    parameters: Parameters,
    x: Tensor,
    architecture: Architecture,
    errors: Tensor | None = None,
    multiply: Callable[[int, Tensor], Tensor] | None = None,
) -> Iterator[Layer]:
    """The forward pass from x (B, D), hidden layer by hidden layer, with errors (L-1, B, N) added on the way.

    multiply(l, h_l) returns W_l h_l + b_l for l = 1..L-2 and h_l (B, N); by default torch's linear map.
    """
    matrices, gains, biases = parameters.matrices(), parameters.gains(), parameters.biases()

    def linear(layer: int, h: Tensor) -> Tensor:
        return torch.nn.functional.linear(h, matrices[layer], biases[layer])

    product = linear(0, x)
    prediction = activated(product, architecture)
    for layer, gain in enumerate(gains, start=1):
        state = prediction if errors is None else prediction + errors[layer - 1]
        encoding = encode(state, gain, architecture)
        yield Layer(product, prediction, state, encoding)
        if layer < len(gains):
            product = (multiply or linear)(layer, encoding.h)
            prediction = prediction_of(product, state, architecture)


def activated(product: Tensor, architecture: Architecture) -> Tensor:
    """phi(product) where phi stands after the matrix, else the product."""
    return phi(product, architecture) if architecture.activates_prediction else product


def prediction_of(product: Tensor, below: Tensor, architecture: Architecture) -> Tensor:
    """mu_{l+1} of a hidden matrix, from W_l h(z_l) + b_l and the state z_l below; any leading dimensions."""
    mu = activated(product, architecture)
    return mu + below if architecture.skips else mu


def sweep(parameters: Parameters, x: Tensor, architecture: Architecture) -> tuple[list[Tensor], Tensor]:
    """A plain forward sweep: the predictions mu_1..mu_{L-1}, each (B, N), and the logits mu_L, (B, C)."""
    states = []
    for layer in climb(parameters, x, architecture):
        states.append(layer.state)
    return states, torch.nn.functional.linear(layer.encoding.h, parameters.w_out, parameters.b_out)


def output_error(y: Tensor, logits: Tensor, architecture: Architecture) -> Tensor:
    """eps_L = -dl/dmu_L, per sample (B, C)."""
    return y - (logits if architecture.squared else logits.softmax(-1))


def feedforward(parameters: Parameters, x: Tensor, architecture: Architecture) -> Tensor:
    """Logits mu_L, (B, C), of a plain forward sweep: how every method is evaluated."""
    return sweep(parameters, x, architecture)[1]
