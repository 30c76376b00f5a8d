"""`highways records`: lists the records that a configuration asks for."""

import argparse
import sys
from typing import Any

from highways.cli.shared import add_config, add_reference, add_runs, command, own_and_reference, read_config
from highways.experiments.configuration import all_runs

_SHOWN = ["experiment", "row", "role", "dataset", "depth", "method", "seed", "test_accuracy", "file"]


def add_records(commands: Any) -> None:
    parser = command(
        commands,
        "records",
        _records,
        "list the records that the configuration asks for, with what each is used for",
        "Yours, else those of the reference.\nThe Python function highways.records gives the same as a frame.",
    )
    add_config(parser)
    add_runs(parser)
    add_reference(parser)
    parser.add_argument("--csv", action="store_true", help="every column, settings included, as CSV")


def _records(options: argparse.Namespace) -> int:
    from highways.analysis.data.records import records

    config = read_config(options)
    found = records(config, own_and_reference(options, all_runs(config)))
    if options.csv:
        found.to_csv(sys.stdout, index=False)
    else:
        print(found[_SHOWN].to_markdown(index=False, tablefmt="plain"))
    return 0
