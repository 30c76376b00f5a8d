"""JSON schemas of the configuration and the run record, with one-line messages."""

from functools import cache
from typing import Any

import jsonschema

from highways.files import packaged

_TEXT_HINTS = {
    "number": " (YAML reads 1e-4 as text: write 1.0e-4)",
    "integer": " (in a list, snakemake --config reads numbers as text: use --configfile)",
}


@cache
def _validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(packaged(f"schemas/{name}.schema.yaml"))


def first_problem(name: str, document: Any) -> str | None:
    """The most telling violation of the schema `name`, as "key: problem"; None for a valid document."""
    problem = jsonschema.exceptions.best_match(_validator(name).iter_errors(document))
    if problem is None:
        return None
    key = problem.json_path.removeprefix("$").removeprefix(".")
    hint = ""
    if isinstance(problem.instance, str) and problem.validator == "type":
        hint = _TEXT_HINTS.get(str(problem.validator_value), "")
    return f"{key}: {problem.message}{hint}" if key else f"{problem.message}{hint}"
