"""The look of the figures: one colour and marker per method, safe for colour-blind readers."""

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from highways.files import write_atomically
from highways.methods import METHODS

# Okabe and Ito (2008): vermillion, blue, bluish green, orange, reddish purple, sky blue.
_PALETTE = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
_MARKERS = ("s", "o", "^", "D", "v", "P")
REFERENCE = "#555555"
_NOTE_SIZE = 6.5
DPI = 150
_RC: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    colour: str
    marker: str


def look(number: int) -> Look:
    """Colour and marker by number: the first six differ in both, the first 36 in at least one."""
    turns, place = divmod(number, len(_PALETTE))
    return Look(_PALETTE[place], _MARKERS[(place + turns) % len(_MARKERS)])


# A fixed order: these methods keep their looks when the registry gains another one.
_OWN = ("pc", "hep", "dfa", "backprop", "epc", "meta_pcn", "precision", "dkp", "dkp_pc", "lra", "mupc", "ipc")


def of_method(method: str) -> Look:
    return look([*_OWN, *(name for name in METHODS if name not in _OWN)].index(method))


def colour(method: str) -> str:
    return of_method(method).colour


def marker(method: str) -> str:
    return of_method(method).marker


@contextmanager
def journal() -> Iterator[None]:
    """Matplotlib's own defaults and our style, whatever the user's matplotlibrc says."""
    with matplotlib.style.context(["default", _RC]):
        yield


def literal(text: str) -> str:
    """Escape the dollar signs of a text, between which matplotlib reads a formula."""
    return text.replace("$", r"\$")


def finish(figure: Figure, lines: list[str]) -> None:
    """Add lines of small text below the plot, enlarge the figure by their height, and fix the layout."""
    width, height = figure.get_size_inches()
    characters = int(width * 72 / (0.58 * _NOTE_SIZE))
    text = [piece for line in lines for piece in textwrap.wrap(line, characters)]
    extra = (1.35 * len(text) * _NOTE_SIZE + 8) / 72
    figure.set_size_inches(width, height + extra)
    share = extra / (height + extra)
    figure.text(
        0.01,
        share * 0.9,
        literal("\n".join(text)),
        fontsize=_NOTE_SIZE,
        color=REFERENCE,
        va="top",
        linespacing=1.3,
    )
    # One layout only: a second one would start from the first and change its last digits, and so the bytes.
    ConstrainedLayoutEngine(rect=(0, share, 1, 1 - share)).execute(figure)
    figure.set_layout_engine(None)
    # Rounded, since the last digits depend on where the variables of the solver lie in memory.
    for axes in figure.axes:
        left, bottom, width, height = axes.get_position(original=True).bounds
        axes.set_position((round(left, 6), round(bottom, 6), round(width, 6), round(height, 6)))


_FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": DPI, "metadata": {"Software": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}


def write(figure: Figure, folder: Path, name: str) -> None:
    """Write `<name>.png` and `<name>.pdf`; equal figures give equal bytes."""
    with journal():
        for ending, options in _FORMATS.items():

            def save(path: Path, ending: str = ending, options: dict[str, Any] = options) -> None:
                figure.savefig(path, format=ending, **options)

            write_atomically(folder / f"{name}.{ending}", save)


def png(figure: Figure) -> bytes:
    """The bytes of `<name>.png`."""
    buffer = io.BytesIO()
    with journal():
        figure.savefig(buffer, format="png", **_FORMATS["png"])
    return buffer.getvalue()
