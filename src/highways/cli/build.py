"""`highways build`."""

import argparse
from typing import Any

from highways.cli.shared import command
from highways.errors import UserError


def add_build(commands: Any) -> None:
    command(
        commands,
        "build",
        _build,
        "build the native kernel now, and print where it is",
        "Training builds it on first use; on a cluster, build it once per kind of processor, after which no\n"
        "machine of that kind needs a compiler. $CXX names the compiler; $HIGHWAYS_CACHE the folder, which must\n"
        "belong to you or root and be writable by no other.",
    )


def _build(options: argparse.Namespace) -> int:
    from highways.inference.build import BuildError, library

    try:
        print(library())
    except BuildError as error:
        raise UserError(f"the native kernel cannot be built: {error}; without it `batched` serves") from None
    return 0
