"""`highways build`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from highways.cli.shared import command
from highways.errors import UserError
from highways.files import write_text


def add_build(commands: Any) -> None:
    parser = command(
        commands,
        "build",
        _build,
        "build the native kernel now, and print where it is",
        "Training builds it on first use; on a cluster, build it once per kind of processor, after which no\n"
        "machine of that kind needs a compiler. $CXX names the compiler; $HIGHWAYS_CACHE the folder, which must\n"
        "belong to you or root and be writable by no other.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write there what was built; or, where that fails, why, and go on: runs take another kernel then",
    )


def _build(options: argparse.Namespace) -> int:
    from highways.inference.build import BuildError, library

    try:
        built = str(library())
    except BuildError as error:
        built = f"the native kernel cannot be built: {error}; without it `batched` serves"
        if options.out is None:
            raise UserError(built) from None
        print(f"highways: warning: {built}", file=sys.stderr)
    if options.out is None:
        print(built)
    else:
        write_text(options.out, built + "\n")
    return 0
