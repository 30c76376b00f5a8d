"""The run record: what a training run leaves behind, as one JSON file (schemas/record.schema.yaml)."""

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

from highways.errors import UserError
from highways.files import read_json, short, write_text
from highways.provenance import training_code
from highways.record_checks import contradiction
from highways.specs.fields import SpecError
from highways.specs.run import RunSpec

VERSION = 2
_NUMBERS = re.compile(r"\[[\s\d.,e+\-nul]*\]")
REMEDY = "delete it and run it again"


class RecordError(UserError, ValueError):
    """A record that cannot be used; the one-line message names the file and what is wrong with it."""


def finite(value: float) -> float | None:
    """The value; None (null) for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record to a temporary name and rename it; a list of numbers takes one line."""
    text = json.dumps(record, indent=1, allow_nan=False)
    write_text(path, _NUMBERS.sub(lambda match: " ".join(match.group().split()), text) + "\n")


def read(path: Path, *, whole: bool = True) -> dict[str, Any]:
    """Read a record and check its schema, its spec and that its parts agree; RecordError says what is wrong.

    Unless `whole`, the number of epochs may differ from the spec's, as in a run for snapshots.
    An unchanged file is read once per process, since a report asks for it often; do not modify the result.
    """
    try:
        now = path.stat()
        return _read(path, whole, now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None


@cache
def _read(path: Path, whole: bool, *version: int) -> dict[str, Any]:
    from highways.schema import first_problem  # training needs no jsonschema

    try:
        document = read_json(path)
    except ValueError as error:
        raise RecordError(f"{path}: not valid JSON ({short(str(error))}); {REMEDY}") from None
    problem = first_problem("record", document)
    if problem is None:
        try:
            spec = RunSpec.from_dict(document["spec"])
            if spec.hash != document["spec_hash"]:
                problem = f"spec_hash: {document['spec_hash']} is not that of the spec ({spec.hash})"
            else:
                problem = contradiction(document, spec, whole)
        except SpecError as error:
            problem = f"spec.{error}"
    if problem is not None:
        raise RecordError(f"{path}: {short(problem)}; {REMEDY}")
    return dict(document)


def refuse_to_replace(path: Path, spec: RunSpec, renew: bool = False, kernel: str = "auto") -> bool:
    """Whether `path` already is the record of this spec; RecordError where it is anything else.

    With `renew` the record of another spec, of other code or of another kernel than the one asked for may be
    replaced and counts as missing. Needs no jsonschema.
    """
    try:
        document = read_json(path)
        found = RunSpec.from_dict(document["spec"]).hash
        if found != document["spec_hash"]:
            raise ValueError(found)
        code, made_by = document["provenance"]["training_code"], document["provenance"]["kernel"]
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        remedy = "delete it, or give another name"
        raise RecordError(f"--out: {path} is there, and is no record that can be read; {remedy}") from None
    as_asked = made_by is None or kernel in ("auto", made_by)
    if renew and (found != spec.hash or code != training_code(spec.method) or not as_asked):
        return False
    if found != spec.hash:
        raise RecordError(f"--out: {path} is the record of another run; delete it, or give another name")
    try:
        return bool(read(path))
    except ImportError:  # training needs no jsonschema
        return True


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """The record without what may differ between two runs of one spec on one machine: times and attempts."""
    provenance = {key: value for key, value in record["provenance"].items() if key != "finished"}
    return {**{key: value for key, value in record.items() if key != "timing"}, "provenance": provenance}
