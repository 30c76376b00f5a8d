"""Files that appear whole or not at all, JSON read strictly, and the documents that come with the package."""

import glob
import json
import math
import os
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

_LONGEST = 300


@cache
def packaged(name: str) -> dict[str, Any]:
    """A YAML document of the package."""
    import yaml  # training needs none

    document: dict[str, Any] = yaml.safe_load(files("highways").joinpath(name).read_text("utf-8"))
    return document


def strict_json(text: str) -> Any:
    """The value of JSON text; ValueError, in one short line, also for equal keys and non-finite numbers.

    Python's own parser accepts NaN, infinity and equal keys, of which it keeps the last. Where it raises
    RecursionError, for deeply nested text, this raises ValueError.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_once,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_refused,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """The value of a JSON file, as `strict_json`; OSError where it cannot be read."""
    return strict_json(path.read_text(encoding="utf-8"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"the key {short(repr(twice), 60)} stands there twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(text)


def _whole(text: str) -> int:
    return int(text) if len(text) < 100 else _refused(text)


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{short(text, 60)} is not a finite number")


def short(text: str, longest: int = _LONGEST) -> str:
    """One line of at most so many characters: a message never repeats a whole file."""
    line = "".join(c if c.isprintable() else " " for c in text[: longest + 1])
    return line if len(text) <= longest else f"{line[: longest - 4].rstrip()} ..."


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk and rename it; parents are created.

    The temporary name holds the process id, so that two writers of one file cannot mix their contents.
    OSError, which names the file, where the disk refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        # The error of a full disk names no file.
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def remove_remains(path: Path) -> None:
    """Delete the temporary files of killed writers of `path`; the caller knows that no writer is alive."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        temporary.unlink(missing_ok=True)


def cache_folder() -> Path:
    """The folder of files that can be remade: $HIGHWAYS_CACHE, or highways in $XDG_CACHE_HOME or ~/.cache.

    RuntimeError or ValueError where there is no home folder to fall back to.
    """
    if os.environ.get("HIGHWAYS_CACHE"):
        return Path(os.environ["HIGHWAYS_CACHE"]).resolve()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).resolve() / "highways"
    return Path.home().resolve() / ".cache" / "highways"


def write_text(path: Path, text: str) -> None:
    """Write a whole text file, or nothing."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)
