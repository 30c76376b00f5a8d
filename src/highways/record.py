"""The run record: what a training run leaves behind, as one JSON file (schemas/record.schema.yaml)."""

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

from highways.errors import UserError
from highways.fields import SpecError
from highways.files import write_text
from highways.spec import RunSpec

VERSION = 2
_NUMBERS = re.compile(r"\[[\s\d.,e+\-nul]*\]")
REMEDY = "delete it and run it again"


class RecordError(UserError, ValueError):
    """A record that cannot be used; the one-line message names the file and what is wrong with it."""


def finite(value: float) -> float | None:
    """JSON has no NaN or infinity: they become null."""
    return value if math.isfinite(value) else None


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record to a temporary name and rename it; a list of numbers takes one line."""
    text = json.dumps(record, indent=1, allow_nan=False)
    write_text(path, _NUMBERS.sub(lambda match: " ".join(match.group().split()), text) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Read a record and check its schema and its spec; RecordError says what is wrong.

    A file that has not changed is read once per process, since a report asks for it many times: do not change
    what is returned.
    """
    try:
        now = path.stat()
        return _read(path, now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None


@cache
def _read(path: Path, *version: int) -> dict[str, Any]:
    from highways.schema import first_problem  # training needs no jsonschema

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(f"{path}: not valid JSON ({error}); {REMEDY}") from None
    problem = first_problem("record", document)
    if problem is None:
        try:
            spec = RunSpec.from_dict(document["spec"])
            if spec.hash != document["spec_hash"]:
                problem = f"spec_hash: {document['spec_hash']} is not that of the spec ({spec.hash})"
        except SpecError as error:
            problem = f"spec.{error}"
    if problem is not None:
        raise RecordError(f"{path}: {problem}; {REMEDY}")
    return dict(document)


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """The record without what may differ between two runs of one spec on one machine: times and attempts."""
    provenance = {key: value for key, value in record["provenance"].items() if key != "finished"}
    return {**{key: value for key, value in record.items() if key != "timing"}, "provenance": provenance}
