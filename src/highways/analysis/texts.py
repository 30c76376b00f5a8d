"""The tables of README and docs: parts of the report's tables, put between markers.

A table stands between `<!-- table: NAME -->` and `<!-- table: end -->`, where NAME is a key of BLOCKS.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from highways.analysis.commands import make_table
from highways.analysis.data.cells import cell, strength_cells
from highways.analysis.data.notes import place_label, printed_sigma_v
from highways.analysis.data.rendering import Table, frame_to_markdown
from highways.errors import UserError
from highways.experiments.plan import plan
from highways.experiments.results import Sources
from highways.experiments.runs import Config
from highways.files import write_text
from highways.methods import METHODS

_BLOCK = re.compile(r"<!-- table: (?!end )(\S+) -->\n(.*?)<!-- table: end -->", re.DOTALL)
_MARKER = re.compile(r"<!-- table: (?!end )\S+ -->")


class TextError(UserError):
    """A text has no table to renew, an unpaired marker, or an unknown table name."""


@dataclass(frozen=True, eq=False)
class Tables:
    """The report's tables, each made once."""

    config: Config
    sources: Sources
    made: dict[str, Table] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        if name not in self.made:
            self.made[name] = make_table(name, self.config, self.sources)
        return self.made[name]

    def frame(self, name: str) -> pd.DataFrame:
        return self.table(name).frame


def renew(path: Path, tables: Tables) -> None:
    """Rewrite the tables between markers of a text; TextError without a table or for an unknown name."""
    text = path.read_text(encoding="utf-8")
    if not _BLOCK.findall(text) or len(_BLOCK.findall(text)) != len(_MARKER.findall(text)):
        raise TextError(f"{path}: needs <!-- table: NAME --> and <!-- table: end --> around each table")

    def table(found: re.Match[str]) -> str:
        name = found[1]
        if name not in BLOCKS:
            raise TextError(f"{path}: table {name!r} does not exist; it takes {', '.join(BLOCKS)}")
        body = frame_to_markdown(BLOCKS[name](tables))
        return f"<!-- table: {name} -->\n{body}\n<!-- table: end -->"

    write_text(path, _BLOCK.sub(table, text))


def _depth(title: str, depths: Iterable[int] = ()) -> Callable[[Tables], pd.DataFrame]:
    """Accuracy against depth on one data set, at these depths or, if none is given, at all."""

    def frame(tables: Tables) -> pd.DataFrame:
        table = tables.frame("depth")
        rows = table[table.index.get_level_values("Data set") == title].droplevel("Data set")
        return rows.loc[[*depths]] if depths else rows

    return frame


def _stability(tables: Tables) -> pd.DataFrame:
    """The largest drop of validation accuracy below its best so far, in points, over epochs and seeds."""
    drops = tables.table("depth").data.pivot(
        index=["dataset", "depth"], columns="method", values="validation_drop"
    )
    titles = {method: METHODS[method].title for method in METHODS if method in drops}
    shown = drops[list(titles)].rename(columns=titles).dropna(how="all").astype(float)
    shown.index = pd.Index([place_label(*place) for place in shown.index], name="Cell")
    return shown.map(lambda points: "not run" if pd.isna(points) else f"{points:.1f}")


def _ablations(*names: str) -> Callable[[Tables], pd.DataFrame]:
    """The named rows of the table of ablations, without columns that are empty in all of them."""

    def frame(tables: Tables) -> pd.DataFrame:
        titles = {variant.name: variant.title for variant in plan(tables.config).of("ablations")}
        rows = tables.frame("ablations").loc[[titles[name] for name in names]]
        return rows.loc[:, (rows != "").any()]

    return frame


def _strength(tables: Tables) -> pd.DataFrame:
    """Accuracy by highway strength alpha, with the alpha of equal alpha * sigma_v at the paper's sigma_v."""
    printed = printed_sigma_v()
    factor = tables.config["highway"]["sigma_v"] / printed
    other = f"α of the same product with σ_v = {printed:g}"
    rows = {
        f"{alpha:g}": {other: f"{alpha * factor:g}", "Accuracy": own.text}
        for alpha, own in strength_cells(tables.config, tables.sources.runs).items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(
        f"α with σ_v = {tables.config['highway']['sigma_v']:g}"
    )


def _rates(tables: Tables) -> pd.DataFrame:
    """Vanilla PC's accuracy per learning rate, on the seed of the sweep: a row per depth."""
    columns = {}
    for variant in plan(tables.config).of("ablations"):
        if variant.name == "pc_rates":
            sweep = cell(variant, tables.sources.runs).sweep
            assert sweep is not None
            accuracies = zip(sweep["lr"], sweep["test_accuracy"], strict=True)
            columns[f"L={variant.depth}"] = {
                f"{rate:g}": "not run" if pd.isna(accuracy) else f"{100 * accuracy:.1f}"
                for rate, accuracy in accuracies
            }
    return pd.DataFrame(columns).rename_axis("Learning rate").T.rename_axis("Learning rate")


def _readings(tables: Tables) -> pd.DataFrame:
    """Vanilla PC, HEP and their gap at depth 16 under every reading."""
    frame = tables.frame("readings").reset_index()
    columns = [column for column in frame if str(column).startswith("MNIST L=16") and "verdict" not in str(column)]
    return frame[["activation", "normalise_output_input", "highway_layers", "sigma_v", *columns]].set_index(
        "activation"
    )


def _multiples(tables: Tables) -> pd.DataFrame:
    """Vanilla PC and HEP at depth 8 by multiples of the printed learning rate."""
    frame = tables.frame("rates").reset_index()
    columns = [column for column in frame if column == "Paper" or str(column).endswith(" ×")]
    kept = [column for column in columns if not str(column).startswith("Drop")]
    return frame[frame["Place"] == "MNIST L=8"].set_index("Method")[kept]


def _baselines(tables: Tables) -> pd.DataFrame:
    """Accuracy of every method on MNIST."""
    frame = tables.frame("baselines").reset_index("Network", drop=True)
    return frame[[column for column in frame if str(column).startswith("MNIST")]]


def _predictions(tables: Tables) -> pd.DataFrame:
    return tables.frame("predictions")[["Verdict"]]


def _propagation(tables: Tables) -> pd.DataFrame:
    frame = tables.frame("optimizer")
    return frame[[column for column in frame if str(column).startswith("gradient descent")]]


BLOCKS: dict[str, Callable[[Tables], pd.DataFrame]] = {
    "headline": _depth("MNIST", (8, 16, 32, 64, 128)),
    "depth_mnist": _depth("MNIST"),
    "depth_fashion_mnist": _depth("Fashion-MNIST"),
    "stability": _stability,
    "density": lambda tables: tables.frame("density"),
    "strength": _strength,
    "backprop_128": _ablations("short_schedule", "no_exception"),
    "chain": _ablations("hep", "no_chain", "redraw", "dfa", "pc"),
    "needed": _ablations("hep", "euler", "euler_sum", "hep_plain", "pc", "pc_plain"),
    "learning_rate": _ablations("pc", "pc_rates", "pc_4T", "hep"),
    "rates": _rates,
    "multiples": _multiples,
    "readings": _readings,
    "baselines": _baselines,
    "predictions": _predictions,
    "propagation": _propagation,
    "kernels": lambda tables: tables.frame("kernels"),
}
