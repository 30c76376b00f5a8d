"""`highways data`: finds, downloads and checks a data set."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from highways.cli.shared import add_config, command, read_data_block
from highways.data_places import default_dir, locate_own
from highways.errors import DataError
from highways.specs.run import DATASETS


def add_data(commands: Any) -> None:
    parser = command(
        commands,
        "data",
        _data,
        "find a data set, download it where it is missing, and check it",
        "Looked for in --data-dir, else in $HIGHWAYS_DATA,\n"
        "Debian's /usr/share/datasets/fashion-mnist and ./data, where downloads go.\n"
        "One of your own is where the configuration says under data, or at --data-dir.",
    )
    parser.add_argument("dataset", help=f"{', '.join(DATASETS)}, or your own (data)")
    add_config(parser)
    parser.add_argument("--data-dir", metavar="FOLDER")
    parser.add_argument("--no-download", action="store_true", help="fail where the files are missing")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the checksums found as JSON")


def _data(options: argparse.Namespace) -> int:
    from highways.files import write_text

    found = _known(options) if options.dataset in DATASETS else _own(options)
    if options.out is not None:
        write_text(options.out, json.dumps({"dataset": options.dataset, **found}, indent=1) + "\n")
    return 0


def _known(options: argparse.Namespace) -> dict[str, Any]:
    from highways import data

    try:
        found = data.verify(options.dataset, options.data_dir)
    except DataError:
        if options.no_download or options.data_dir is not None or not _may_complete(options.dataset):
            raise
        data.download(options.dataset)
        found = data.verify(options.dataset)
    folder = data.locate(options.dataset, options.data_dir)
    print(f"{options.dataset}: {len(found)} files in {folder}, checksums right", file=sys.stderr)
    return {"md5": found}


def _may_complete(dataset: str) -> bool:
    """Whether a download could complete a data set: it has no files, or has them in the download folder."""
    from highways import data

    try:
        return data.locate(dataset).is_relative_to(default_dir())
    except DataError:
        return True  # there are none anywhere


def _own(options: argparse.Namespace) -> dict[str, Any]:
    from highways import data, own_data
    from highways.experiments.own_data import fetch, place_of

    if options.data_dir is not None:
        place = locate_own(options.dataset, options.data_dir)
    else:
        config = read_data_block(options)
        place = (place_of if options.no_download else fetch)(config, options.dataset)
    arrays = own_data.read(place)
    images = own_data.describe(arrays)
    dataset = data.prepared(options.dataset, arrays, images.validation)
    size = " x ".join(map(str, arrays["x_train"].shape[1:]))
    print(
        f"{options.dataset}: {place}\n"
        f"  {images.train:,} images to train on, {images.validation:,} for validation, {images.test:,} to test\n"
        f"  {size} ({images.inputs:,} inputs), {images.classes} classes; brightness from 0 to 1: mean "
        f"{dataset.mean:.4f}, standard deviation {dataset.std:.4f}\n"
        f"  digest {images.digest}",
        file=sys.stderr,
    )
    return asdict(images)
