"""`highways bundle` and `highways collect`: runs on machines that have torch and numpy only."""

import argparse
import sys
from pathlib import Path
from typing import Any

from highways.cli.shared import add_config, add_data_dir, add_runs, command, read_config
from highways.config import all_runs


def add_bundle(commands: Any) -> None:
    bundle = command(
        commands,
        "bundle",
        _bundle,
        "pack unfinished runs for a machine that has torch and numpy only",
        "Data, code and specs in one file; README.txt inside says how to run it.\n\n"
        "  highways bundle --only paper/mnist/L032/hep --out hep32.tar.gz\n"
        "  highways collect highways-bundle",
    )
    bundle.add_argument("--only", default="", metavar="TEXT", help="runs whose path contains this")
    bundle.add_argument("--selections", type=Path, default=Path("results/selections"), metavar="FOLDER")
    add_data_dir(bundle)
    bundle.add_argument("--out", type=Path, default=Path("highways-bundle.tar.gz"), metavar="FILE")
    collect = command(
        commands,
        "collect",
        _collect,
        "take the records of a bundle back",
        "Each is checked against the configuration. Exit code 1 where none was taken.",
    )
    collect.add_argument("folder", type=Path, help="the unpacked bundle in which run.py has run")
    for parser in (bundle, collect):
        add_config(parser)
        add_runs(parser)


def _bundle(options: argparse.Namespace) -> int:
    from highways.bundle import choose, pack

    packed = choose(all_runs(read_config(options)).values(), options.runs, options.selections, options.only)
    pack(packed, options.data_dir, options.out)
    size = options.out.stat().st_size / 1e6
    print(f"{options.out}: {len(packed.runs)} runs, {size:.0f} MB", file=sys.stderr)
    for path in packed.waiting:
        print(f"left out, no learning rate chosen yet: {path}", file=sys.stderr)
    return 0


def _collect(options: argparse.Namespace) -> int:
    from highways.bundle import collect

    fates = collect(options.folder, all_runs(read_config(options)), options.runs)
    for path, fate in fates.items():
        print(f"{path}: {fate}")
    taken = sum(fate == "taken" for fate in fates.values())
    print(f"{taken} of {len(fates)} records taken", file=sys.stderr)
    return 0 if taken else 1
