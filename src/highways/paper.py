"""What the paper publishes, as typed values; the data are in paper.yaml."""

from dataclasses import dataclass
from typing import Any

from highways.files import packaged


@dataclass(frozen=True)
class Published:
    """A test accuracy in percent as the paper prints it: mean and std over three seeds."""

    mean: float
    std: float

    @property
    def text(self) -> str:
        """As a table prints it."""
        return f"{self.mean:.1f} ± {self.std:.1f}"


@dataclass(frozen=True)
class DepthSettings:
    """The settings of one depth, by the names of config.yaml."""

    depth: int
    alpha: float
    steps: int
    lr: float
    optimizer: str
    step_size: float


@dataclass(frozen=True)
class SharedSetting:
    """A setting that all runs share: its dotted key in config.yaml, its value, its place in the paper."""

    key: str
    value: Any
    place: str


@dataclass(frozen=True)
class LayerError:
    """The error norm of one layer; where `upper_bound`, the paper prints that it is below the value."""

    value: float
    upper_bound: bool


def _document() -> dict[str, Any]:
    return packaged("paper.yaml")


def place(block: str) -> str:
    """Where in the paper a block of paper.yaml stands: label and section."""
    return str(_document()[block]["place"])


def accuracy(dataset: str, depth: int, method: str) -> Published | None:
    """A cell of the table of accuracy against depth; None where the paper has no such cell."""
    for row in _document()["accuracy"]["rows"]:
        if (row["dataset"], row["depth"]) == (dataset, depth) and method in methods():
            return Published(*row[method])
    return None


def depths(dataset: str) -> tuple[int, ...]:
    """The depths at which the paper reports accuracies on this data set; empty for other data sets."""
    return tuple(row["depth"] for row in _document()["accuracy"]["rows"] if row["dataset"] == dataset)


def methods() -> tuple[str, ...]:
    """The methods that the paper compares, in its order."""
    return tuple(key for key in _document()["accuracy"]["rows"][0] if key not in ("dataset", "depth"))


def hep_range(dataset: str) -> tuple[float, float]:
    """Lowest and highest accuracy in percent between which the text says that HEP stays."""
    low, high = _document()["hep_range"][dataset]
    return low, high


def density(dataset: str, depth: int, every: int) -> Published | None:
    """The accuracy with a highway on every k-th hidden layer; None where the paper has no such cell."""
    for row in _document()["density"]["rows"]:
        if row["every"] == every and every in spacings(dataset, depth):
            return Published(*row["accuracy"])
    return None


def spacings(dataset: str, depth: int) -> tuple[int, ...]:
    """The spacings k that the paper reports for this data set and depth; empty for others."""
    block = _document()["density"]
    if (block["dataset"], block["depth"]) != (dataset, depth):
        return ()
    return tuple(row["every"] for row in block["rows"])


def strength_place() -> tuple[str, int]:
    """The data set and depth of the strength sweep."""
    block = _document()["strength"]
    return block["dataset"], block["depth"]


def epochs() -> int:
    """The epochs of every training."""
    return int(next(setting.value for setting in shared() if setting.key == "training.epochs"))


def alphas() -> tuple[float, ...]:
    """The highway strengths of the strength sweep."""
    return tuple(_document()["strength"]["alphas"])


def settings() -> tuple[DepthSettings, ...]:
    """The per-depth settings of HEP."""
    return tuple(DepthSettings(**row) for row in _document()["settings"]["rows"])


def shared() -> tuple[SharedSetting, ...]:
    """The settings that all runs share."""
    return tuple(SharedSetting(**row) for row in _document()["shared"]["rows"])


def exceptions() -> tuple[dict[str, Any], ...]:
    """What a method changes at one depth: the rows of `exceptions` in paper.yaml."""
    return tuple(dict(row) for row in _document()["exceptions"]["rows"])


def images() -> dict[str, int]:
    """The number of images in the training, validation and test parts of either data set."""
    return dict(_document()["data"]["images"])


def relaxation() -> dict[str, float]:
    """The depth, steps and step size of the diagnostic of signal propagation."""
    return {key: _document()["propagation"][key] for key in ("depth", "steps", "step_size")}


def error_layers() -> tuple[int, ...]:
    """The layers of the table of error norms after relaxation."""
    return tuple(row["layer"] for row in _document()["propagation"]["rows"])


def layer_error(layer: int, optimizer: str) -> LayerError:
    """An error norm after relaxation under `gd`, `adam_1e-8` or `adam_1e-2`."""
    row = next(row for row in _document()["propagation"]["rows"] if row["layer"] == layer)
    printed = row[optimizer]
    if isinstance(printed, dict):
        return LayerError(printed["below"], upper_bound=True)
    return LayerError(printed, upper_bound=False)


def open_points() -> tuple[dict[str, str], ...]:
    """What the paper leaves open: a dotted `key`, what the paper `says` and `why` our value is chosen."""
    return tuple(dict(row) for row in _document()["open"])


def claims() -> tuple[dict[str, Any], ...]:
    """The claims of the paper that can be checked; `rule` names the criterion that decides each."""
    return tuple(dict(claim) for claim in _document()["claims"])
