"""`highways table`, `figure` and `select`: make tables, figures and choices of settings from records."""

import argparse
import sys
from pathlib import Path
from typing import Any

from highways.cli.shared import add_config, add_folder, add_sources, command, read_config, read_sources


def add_analysis(commands: Any) -> None:
    table = command(
        commands,
        "table",
        _table,
        "build a table of the paper from the records",
        "A cell that was not run says so.",
    )
    figure = command(commands, "figure", _figure, "draw a figure of the paper from the records")
    for parser, folder in ((table, "tables"), (figure, "figures")):
        parser.add_argument("name", help="an unknown name lists all names")
        add_config(parser)
        add_sources(parser)
        add_folder(parser, "--out", folder, f"of the {folder}")
    select = command(
        commands,
        "select",
        _select,
        "choose the learning rate, and what else was swept, on validation accuracy",
    )
    select.add_argument("records", type=Path, nargs="+", metavar="RECORD", help="records of one sweep")
    select.add_argument("--out", type=Path, required=True, metavar="FILE", help="for `train --selection`")


def _table(options: argparse.Namespace) -> int:
    from highways.analysis import commands

    config = read_config(options)
    commands.table(options.name, config, read_sources(options, config), options.out)
    print(options.out / f"{options.name}.md", file=sys.stderr)
    return 0


def _figure(options: argparse.Namespace) -> int:
    from highways.analysis import commands

    config = read_config(options)
    commands.figure(options.name, config, read_sources(options, config), options.out)
    print(options.out / f"{options.name}.png", file=sys.stderr)
    return 0


def _select(options: argparse.Namespace) -> int:
    from highways.analysis import commands

    commands.select(options.records, options.out)
    return 0
