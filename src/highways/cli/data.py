"""`highways data`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from highways.cli.shared import command
from highways.specs.run import DATASETS


def add_data(commands: Any) -> None:
    parser = command(
        commands,
        "data",
        _data,
        "find a data set, download it where it is missing, and check it",
        "Looked for in --data-dir, else in $HIGHWAYS_DATA,\n"
        "Debian's /usr/share/datasets/fashion-mnist and ./data, where downloads go.",
    )
    parser.add_argument("dataset", choices=tuple(DATASETS))
    parser.add_argument("--data-dir", metavar="FOLDER")
    parser.add_argument("--no-download", action="store_true", help="fail where the files are missing")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the checksums found as JSON")


def _may_complete(dataset: str) -> bool:
    """Whether files that are missing are missing where downloads go."""
    from highways import data

    try:
        return data.locate(dataset).is_relative_to(data.default_dir())
    except data.DataError:
        return True  # there are none anywhere


def _data(options: argparse.Namespace) -> int:
    from highways import data
    from highways.files import write_text

    try:
        found = data.verify(options.dataset, options.data_dir)
    except data.DataError:
        if options.no_download or options.data_dir is not None or not _may_complete(options.dataset):
            raise
        data.download(options.dataset)
        found = data.verify(options.dataset)
    folder = data.locate(options.dataset, options.data_dir)
    print(f"{options.dataset}: {len(found)} files in {folder}, checksums right", file=sys.stderr)
    if options.out is not None:
        write_text(options.out, json.dumps({"dataset": options.dataset, "md5": found}, indent=1) + "\n")
    return 0
