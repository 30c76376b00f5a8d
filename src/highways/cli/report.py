"""`highways verdict` and `highways report`: judge the paper's claims, and write every table and figure."""

import argparse
import sys
from pathlib import Path
from typing import Any

from highways.cli.shared import add_config, add_folder, add_sources, command, read_config, read_sources

LOST = 4


def add_report(commands: Any) -> None:
    verdict = command(
        commands,
        "verdict",
        _verdict,
        "judge every claim of the paper on the records and traces",
        "One line per claim; --claim shows the evidence of one.\n\n"
        "  highways verdict\n"
        "  highways verdict --claim hep_trains\n"
        "  highways verdict --strict results/reference/verdict.json",
    )
    verdict.add_argument("--claim", metavar="ID", help="show this claim with its evidence")
    verdict.add_argument("--out", type=Path, metavar="FILE", help="write the verdict as JSON")
    verdict.add_argument(
        "--strict",
        type=Path,
        metavar="FILE",
        help=f"exit with {LOST} where a claim that held in this earlier verdict no longer does",
    )
    report = command(
        commands,
        "report",
        _report,
        "write every table and figure that can be made, the verdict and one page with all of it",
        "From records and traces alone: nothing is trained. What was not run says so.\n"
        "Exit code 1 where something could not be made, such as from a broken trace; the rest is made.",
    )
    add_folder(report, "--out", "", "for all outputs")
    report.add_argument(
        "--only-page",
        action="store_true",
        help="the verdict and the page, which says what could not be made; no tables, no figures; exit code 0",
    )
    report.add_argument(
        "--renew", type=Path, nargs="+", default=[], metavar="FILE", help="Markdown whose tables to renew too"
    )
    for parser in (verdict, report):
        add_config(parser)
        add_sources(parser)


def _verdict(options: argparse.Namespace) -> int:
    from highways.analysis.claims import predictions, verdict
    from highways.specs.fields import SpecError

    config = read_config(options)
    sources = read_sources(options, config)
    judged = verdict.judge(config, sources.runs, sources.traces)
    shown = [one for one in judged if options.claim in (None, one.id)]
    if not shown:
        raise SpecError(
            f"--claim: {options.claim!r} does not exist; it takes {', '.join(one.id for one in judged)}"
        )
    for one in shown:
        print(f"{one.id:<22}  {one.text}: {one.claim}")
        for part in one.parts if options.claim else ():
            caveat = f" ({part.caveat})" if part.caveat else ""
            print(f"    {part.where}: {part.finding}: {part.verdict}{caveat}")
    if options.claim is None:
        print(verdict.in_words(judged))
    lost = [] if options.strict is None else verdict.lost(judged, options.strict)
    if options.out is not None:
        predicted = predictions.judge(config, sources.runs)
        verdict.write(options.out, verdict.document(config, judged, predicted))
    for name in lost:
        print(f"highways: {name} held in {options.strict} and no longer does", file=sys.stderr)
    return LOST if lost else 0


def _report(options: argparse.Namespace) -> int:
    from highways.analysis import report, texts

    config = read_config(options)
    sources = read_sources(options, config)
    problems = report.write(config, sources, options.out, artefacts=not options.only_page)
    tables = texts.Tables(config, sources)
    for path in options.renew:
        texts.renew(path, tables)
    for line in problems:
        print(f"highways: could not be made: {line}", file=sys.stderr)
    print(options.out / "report.html", file=sys.stderr)
    return 1 if problems and not options.only_page else 0
