"""What the command line does with records: tables, figures and selections of a learning rate."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from highways import record
from highways.analysis import sections
from highways.analysis.data import frame, propagation, rendering
from highways.analysis.data import selection as selecting
from highways.analysis.data.rendering import Table
from highways.analysis.data.selection import Selection, SelectionError
from highways.analysis.data.titles import titles_of
from highways.analysis.figures import style
from highways.analysis.sections import nothing
from highways.experiments.results import Sources, sweep_hash
from highways.experiments.runs import Config, Run, key_of
from highways.experiments.status import differences
from highways.files import write_text
from highways.propagation.spec import Propagation
from highways.specs.run import RunSpec


def table(name: str, config: Config, sources: Sources, out_folder: Path) -> None:
    """Write the table of that name as CSV, Markdown, HTML and LaTeX."""
    rendering.write(make_table(name, config, sources), out_folder)


def figure(name: str, config: Config, sources: Sources, out_folder: Path) -> None:
    """Write the figure of that name as PNG and PDF; NothingRun where it would be empty."""
    style.write(draw(name, config, sources), out_folder, name)


def make_table(name: str, config: Config, sources: Sources) -> Table:
    """The table of that name; its last notes count the records and traces that come from the reference."""
    item = sections.item(config, "table", name)
    with titles_of(config):
        found: Table = item.function(config, sources.traces if item.traces is not nothing else sources.runs)
    return with_notes(found, reference_notes(item.runs_of(config), item.traces(config), sources))


def with_notes(table: Table, notes: Iterable[str]) -> Table:
    return replace(table, notes=(*table.notes, *notes))


def reference_notes(runs: Iterable[Run], traces: Iterable[Propagation], sources: Sources) -> list[str]:
    """Notes that count the records and the traces from the reference; a count of 0 has no note."""
    counts = {
        "records": frame.of_reference(runs, sources.runs),
        "traces": propagation.of_reference(traces, sources.traces),
    }
    return [
        f"{kept} of {used} {what} come from {sources.reference}." for what, (kept, used) in counts.items() if kept
    ]


def draw(name: str, config: Config, sources: Sources) -> Figure:
    item = sections.item(config, "figure", name)
    with style.journal(), titles_of(config):
        figure: Figure = item.function(config, sources.traces if item.traces is not nothing else sources.runs)
        return figure


# The keys that identify a cell: accuracies of different cells are not comparable.
_NEVER_CHOSEN = ("dataset", "method", "network.depth", "epochs")


def select(records: Sequence[Path], out_file: Path) -> None:
    """Write the settings chosen by the sweep records of a cell; SelectionError where none can be chosen.

    The records must share data set, depth, method and epochs, and every candidate must have the same seeds.
    """
    documents = {path: record.read(path) for path in records}
    specs = {path: RunSpec.from_dict(document["spec"]) for path, document in documents.items()}
    first_path, first = next(iter(specs.items()))
    swept = ["learning.lr"]
    for path, spec in specs.items():
        own = Run("", replace(spec, seed=first.seed))
        different = [key for key in differences({"spec": first.to_dict()}, own) if key not in swept]
        apart = [key for key in different if key in _NEVER_CHOSEN]
        if apart:
            raise SelectionError(
                f"select: {path} and {first_path} differ in {', '.join(apart)}; candidates are of one cell and "
                "of one length"
            )
        swept += different
    runs = [Run(str(path).removesuffix(".json"), spec, swept=tuple(swept)) for path, spec in specs.items()]
    rows = frame.load({run.path: run for run in runs}, Path()).sort_values("lr", kind="stable")
    seeds = rows.groupby("settings", sort=False)["seed"].agg(sorted)
    if len({tuple(found) for found in seeds}) > 1:
        found = "; ".join(f"{settings}: {own}" for settings, own in seeds.items())
        raise SelectionError(f"select: every candidate needs the same seeds, found {found}")
    selection = selecting.select(rows)
    if selection is None:  # every candidate diverged: the first stands in, to put the other seeds on record
        selection = Selection(str(seeds.index[0]), dict.fromkeys(seeds.index))
    document = {"sweep": sweep_hash(map(key_of, documents.values())), **selection.to_dict()}
    write_text(out_file, json.dumps(document, indent=1) + "\n")
