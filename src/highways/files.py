"""Files that appear whole or not at all, and the documents that come with the package."""

import os
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any


@cache
def packaged(name: str) -> dict[str, Any]:
    """A YAML document of the package."""
    import yaml  # training needs none

    document: dict[str, Any] = yaml.safe_load(files("highways").joinpath(name).read_text("utf-8"))
    return document


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk and rename it; parents are created.

    The temporary name holds the process id, so that two writers of one file cannot mix their contents.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file, or nothing."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)
