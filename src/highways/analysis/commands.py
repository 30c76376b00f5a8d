"""What the command line does with records: tables, figures and selections of a learning rate."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from matplotlib.figure import Figure

from highways import record
from highways.analysis import rendering, style
from highways.analysis import selection as selecting
from highways.analysis.figures import FIGURES
from highways.analysis.frame import load
from highways.analysis.propagation_figures import TRACE_FIGURES
from highways.analysis.propagation_tables import TRACE_TABLES
from highways.analysis.rendering import Table
from highways.analysis.selection import Selection, SelectionError
from highways.analysis.tables import TABLES
from highways.fields import SpecError
from highways.files import write_text
from highways.runs import Config, Run
from highways.spec import RunSpec
from highways.status import differences

T = TypeVar("T")
Makers = Mapping[str, Callable[[Config, Path], T]]


@dataclass(frozen=True)
class Sources:
    """Where the records and the traces are."""

    runs: Path
    traces: Path


def table(name: str, config: Config, sources: Sources, out_folder: Path) -> None:
    """Write the table of that name as CSV, Markdown, HTML and LaTeX."""
    rendering.write(make_table(name, config, sources), out_folder)


def figure(name: str, config: Config, sources: Sources, out_folder: Path) -> None:
    """Write the figure of that name as PNG and PDF; NothingRun where it would be empty."""
    style.write(draw(name, config, sources), out_folder, name)


def make_table(name: str, config: Config, sources: Sources) -> Table:
    return _made("table", name, config, sources, TABLES, TRACE_TABLES)


def draw(name: str, config: Config, sources: Sources) -> Figure:
    with style.journal():
        return _made("figure", name, config, sources, FIGURES, TRACE_FIGURES)


def _made(kind: str, name: str, config: Config, sources: Sources, of_runs: Makers[T], of_traces: Makers[T]) -> T:
    if name in of_runs:
        return of_runs[name](config, sources.runs)
    if name in of_traces:
        return of_traces[name](config, sources.traces)
    raise SpecError(f"{kind}: {name!r} does not exist; it takes {', '.join([*of_runs, *of_traces])}")


def select(records: Sequence[Path], out_file: Path) -> None:
    """Choose what the sweep records of one cell decide; SelectionError where they cannot.

    The records must differ in nothing but learning, rule and seed, and every candidate must have the same seeds.
    """
    specs = {path: RunSpec.from_dict(record.read(path)["spec"]) for path in records}
    first_path, first = next(iter(specs.items()))
    swept = ["learning.lr"]
    for path, spec in specs.items():
        own = Run("", replace(spec, seed=first.seed))
        different = [key for key in differences({"spec": first.to_dict()}, own) if key not in swept]
        if any(not key.startswith(("learning.", "rule.")) for key in different):
            raise SelectionError(
                f"select: {path} and {first_path} differ in {', '.join(different)}; a sweep is over keys of "
                "learning and rule"
            )
        swept += different
    runs = [Run(str(path).removesuffix(".json"), spec, swept=tuple(swept)) for path, spec in specs.items()]
    frame = load({run.path: run for run in runs}, Path()).sort_values("lr", kind="stable")
    seeds = frame.groupby("settings", sort=False)["seed"].agg(sorted)
    if len({tuple(found) for found in seeds}) > 1:
        found = "; ".join(f"{settings}: {own}" for settings, own in seeds.items())
        raise SelectionError(f"select: every candidate needs the same seeds, found {found}")
    selection = selecting.select(frame)
    if selection is None:  # every candidate diverged, and so, on record, will the other seeds
        selection = Selection(str(seeds.index[0]), dict.fromkeys(seeds.index))
    write_text(out_file, json.dumps(selection.to_dict(), indent=1) + "\n")
