"""`highways bundle` and `highways collect`: pack runs for other machines, and take in finished records."""

import argparse
import sys
from pathlib import Path
from typing import Any

from highways.cli.shared import (
    add_config,
    add_data_dir,
    add_folder,
    add_reference,
    add_runs,
    command,
    counted_records,
    data_place,
    read_config,
)
from highways.experiments.configuration import all_runs
from highways.experiments.relaxations import all_propagations
from highways.experiments.results import Reference


def add_bundle(commands: Any) -> None:
    bundle = command(
        commands,
        "bundle",
        _bundle,
        "pack unfinished runs for a machine that has torch and numpy only",
        "Data, code and specs in one file; README.txt inside says how to run it.\n\n"
        "  highways bundle --only depth/mnist/L032/hep --out hep32.tar.gz\n"
        "  highways collect highways-bundle",
    )
    bundle.add_argument("--only", default="", metavar="TEXT", help="runs whose path contains this")
    add_folder(bundle, "--selections", "selections", "of the settings that `select` chose")
    add_data_dir(bundle)
    bundle.add_argument("--out", type=Path, default=Path("highways-bundle.tar.gz"), metavar="FILE")
    collect = command(
        commands,
        "collect",
        _collect,
        "take finished records that the configuration asks for",
        "Each is found by its specification and checked. Exit code 1 if none was taken into --runs.\n\n"
        "  highways collect highways-bundle                            a bundle's records, into --runs\n"
        "  highways collect results --into results/reference           yours, into the reference: records, the\n"
        "                                                              choices they decide, traces, its index\n"
        "  highways collect results/reference --into results/reference its index, after a change by hand",
    )
    collect.add_argument("folder", type=Path, help="a bundle in which run.py has run, or a folder of records")
    collect.add_argument("--into", type=Path, metavar="FOLDER", help="copy to this reference, not to --runs")
    add_reference(bundle)
    for parser in (bundle, collect):
        add_config(parser)
        add_runs(parser)


def _bundle(options: argparse.Namespace) -> int:
    from highways.experiments.bundle import choose, pack

    config = read_config(options)
    runs = all_runs(config)
    reference = Reference.read(options.reference) if config["records"] == "reference" else Reference(Path())
    before = {name: one.settings for name, one in reference.chosen(runs).items()}
    counted = counted_records(options, config, runs)
    packed = choose(runs.values(), counted, options.selections, options.only, before)
    places = {spec.dataset: data_place(options, spec) for spec in packed.runs.values()}
    pack(packed, places, options.out)
    size = options.out.stat().st_size / 1e6
    print(f"{options.out}: {len(packed.runs)} runs, {size:.0f} MB", file=sys.stderr)
    for path in packed.waiting:
        print(f"left out, no settings chosen yet: {path}", file=sys.stderr)
    return 0


def _collect(options: argparse.Namespace) -> int:
    from highways.collection import collect, renew

    config = read_config(options)
    if options.into is None:
        fates = collect(options.folder, all_runs(config), options.runs)
    else:
        fates = renew(options.folder, all_runs(config), all_propagations(config), options.into)
    for path, fate in fates.items():
        print(f"{path}: {fate}")
    taken = sum(fate == "taken" for fate in fates.values())
    print(f"{taken} of {len(fates)} taken", file=sys.stderr)
    return 0 if taken or options.into is not None else 1
