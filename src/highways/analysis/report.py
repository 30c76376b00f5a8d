"""One page that says whether the paper holds, and on what evidence; made from records and traces alone."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from highways import __version__, paper
from highways.analysis.claims import predictions, verdict
from highways.analysis.commands import draw, make_table, reference_notes, with_notes
from highways.analysis.data import costs, frame, rendering
from highways.analysis.data.notes import plain, shared_setting
from highways.analysis.figures import style
from highways.analysis.figures.drawing import NothingRun
from highways.analysis.sections import Item
from highways.analysis.sections import sections as sections_of
from highways.errors import UserError
from highways.experiments.configuration import expand
from highways.experiments.plan import plan
from highways.experiments.results import Sources
from highways.experiments.runs import Config, Run
from highways.files import short, write_text
from highways.specs.run import Conventions

T = TypeVar("T")


@dataclass(frozen=True)
class Shown:
    """An item as the page shows it: HTML of a table, an embedded picture, or neither where nothing was run.

    problem: why the item could not be made; else empty.
    """

    item: Item
    html: str = ""
    picture: str = ""
    problem: str = ""


def write(config: Config, sources: Sources, out: Path, *, artefacts: bool = True) -> list[str]:
    """Write the verdict and the page below `out`, and with `artefacts` every table and figure that can be made.

    Returns what could not be made, a line each; the page has these lines too.
    """
    problems: list[str] = []
    runs, traces = expand(config)

    def tried(what: str, make: Callable[[], list[T]]) -> list[T]:
        try:
            return make()
        except Exception as error:  # one broken part must not cost the rest of the page
            problems.append(f"{what}: {_reason(error)}")
            return []

    notes = reference_notes(runs.values(), traces.values(), sources)
    judged = tried("verdict", lambda: verdict.judge(config, sources.runs, sources.traces))
    predicted = tried("predictions", lambda: predictions.judge(config, sources.runs))
    document = verdict.document(config, judged, predicted)
    if not problems:
        verdict.write(out / "verdict.json", document)
        rendering.write(with_notes(verdict.table(config, judged), notes), out / "tables")
    sections = {
        heading: [_shown(item, config, sources, out if artefacts else None) for item in items]
        for heading, items in sections_of(config).items()
    }
    shown = [one for items in sections.values() for one in items]
    problems += [f"{one.item.kind} {one.item.name}: {one.problem}" for one in shown if one.problem]
    appendix = tried("cost and provenance", lambda: _appendix(runs, sources, notes))
    environment = Environment(
        loader=PackageLoader("highways.analysis", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts_run, parts_left = verdict.parts_not_run(judged)
    page = environment.get_template("report.html.j2").render(
        version=__version__,
        problems=problems,
        of_paper=bool(plan(config).of("depth")),
        counts=document["counts"],
        claims=judged,
        parts_run=parts_run,
        parts_left=parts_left,
        method=verdict.METHOD,
        sections=sections,
        appendix=[rendering.to_html(table) for table in appendix],
        reading={key: plain(value) for key, value in document["reading"].items()},
        departures=_departures(config),
        guesses=_guesses(config),
    )
    write_text(out / "report.html", page)
    return problems


def _appendix(runs: Mapping[str, Run], sources: Sources, notes: list[str]) -> list[rendering.Table]:
    records = frame.read(runs, sources.runs)
    origins = with_notes(costs.provenance_table(records), notes)
    return [costs.cost_table(runs, records), origins, costs.missing(runs, records)]


def _reason(error: Exception) -> str:
    """The message of an error in one line, behind its type unless it is a UserError."""
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return kind + short(" ".join(str(error).split()))


def _shown(item: Item, config: Config, sources: Sources, out: Path | None) -> Shown:
    try:
        return _made(item, config, sources, out)
    except NothingRun:
        return Shown(item)
    except Exception as error:  # one broken item must not cost the rest of the page
        return Shown(item, problem=_reason(error))


def _made(item: Item, config: Config, sources: Sources, out: Path | None) -> Shown:
    if item.kind == "table":
        table = make_table(item.name, config, sources)
        if out is not None:
            rendering.write(table, out / "tables")
        return Shown(item, html=rendering.to_html(table))
    figure = draw(item.name, config, sources)
    if out is None:
        picture = style.png(figure)
    else:
        style.write(figure, out / "figures", item.name)
        picture = (out / "figures" / f"{item.name}.png").read_bytes()
    return Shown(item, picture="data:image/png;base64," + base64.b64encode(picture).decode())


def _guesses(config: Config) -> list[dict[str, str]]:
    """The points that the paper leaves open, each with our value."""
    backprop = [one for one in plan(config).of("depth") if one.method == "backprop"]
    swept = [one.choice.candidates for one in backprop if one.choice is not None]
    deep = [one.row["set"] for one in backprop if one.depth == 128]
    conventions = asdict(Conventions(**config["conventions"]))  # with defaults for the keys left out
    own = {
        "backprop.learning_rates": sorted({one["learning.lr"] for one in swept[0] if "learning.lr" in one})
        if swept
        else None,
        "backprop.depth_128": deep[0] if deep else None,
    }
    rows = []
    for point in paper.open_points():
        key = point["key"]
        value = own[key] if key in own else shared_setting({**config, "conventions": conventions}, key)
        rows.append({**point, "ours": plain(value)})
    return rows


def _departures(config: Config) -> list[str]:
    """A line per shared setting whose value in the configuration differs from the paper's."""
    return [
        f"{one.key}: {plain(ours)}, where the paper has {plain(one.value)} ({one.place})"
        for one in paper.shared()
        if (ours := shared_setting(config, one.key)) != one.value and ours != []
    ]
