"""`highways build`: builds the kernels in C++."""

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
        "build the kernels in C++ now, and print where they are",
        "Training builds a kernel on first use. On a cluster, build once per kind of processor; then no\n"
        "machine of that kind needs a compiler. $CXX names the compiler; $HIGHWAYS_CACHE the folder, which must\n"
        "belong to you or root and be writable by no other.",
    )
    parser.add_argument(
        "--kernel",
        nargs="+",
        default=["native"],
        metavar="NAME",
        help="native (default), mixed or both",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the paths of the built kernels there; where a build fails, write why, and exit with 0",
    )


def _build(options: argparse.Namespace) -> int:
    from highways.inference.build import BuildError, library
    from highways.inference.flags import FLAGS

    built = []
    for kernel in options.kernel:
        if kernel not in FLAGS:
            raise UserError(f"--kernel: {kernel!r} is not built; it takes {' and '.join(FLAGS)}")
        try:
            built.append(str(library(kernel)))
        except BuildError as error:
            without = "`batched` is used" if kernel == "native" else "runs that ask for it fail; ask for none"
            built.append(f"the {kernel} kernel cannot be built: {error}; without it {without}")
            if options.out is None:
                raise UserError(built[-1]) from None
            print(f"highways: warning: {built[-1]}", file=sys.stderr)
    if options.out is None:
        print("\n".join(built))
    else:
        write_text(options.out, "\n".join(built) + "\n")
    return 0
