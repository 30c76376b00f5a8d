"""JSON schemas of the configuration and the run record, with one-line messages."""

import difflib
from functools import cache
from typing import Any

import jsonschema

from highways.files import packaged, short

_TEXT_HINTS = {
    "number": " (YAML reads 1e-4 as text: write 1.0e-4)",
    "integer": " (in a list, snakemake --config reads numbers as text: use --configfile)",
}


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Any:
    """The keyword `items`, with a short cut for lists of numbers: jsonschema would make a validator per number."""
    if isinstance(instance, list) and set(items) == {"type"}:
        kinds = items["type"] if isinstance(items["type"], list) else [items["type"]]
        examples = {type(value): value for value in instance}.values()  # what a value is depends on its type alone
        if all(any(validator.is_type(value, kind) for kind in kinds) for value in examples):
            return ()
    return jsonschema.Draft202012Validator.VALIDATORS["items"](validator, items, instance, schema)


# JSON schema accepts 15.0 as an integer; a layer or a depth must be an int.
_Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {"items": _items},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


@cache
def _validator(name: str) -> Any:
    return _Validator(packaged(f"schemas/{name}.schema.yaml"))


def first_problem(name: str, document: Any) -> str | None:
    """The most telling violation of the schema `name`, as "key: problem"; None for a valid document."""
    problem = jsonschema.exceptions.best_match(_validator(name).iter_errors(document))
    if problem is None:
        return None
    key = short(problem.json_path.removeprefix("$").removeprefix("."))
    if problem.validator == "additionalProperties" and problem.validator_value is False:
        known = list(problem.schema["properties"])
        unknown = next(str(name) for name in problem.instance if name not in known)
        close = difflib.get_close_matches(unknown[:100], known, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"allowed here: {', '.join(known)}"
        return f"{key}{'.' if key else ''}{short(unknown, 60)}: unknown key; {remedy}"
    hint = ""
    if isinstance(problem.instance, str) and problem.validator == "type":
        hint = _TEXT_HINTS.get(str(problem.validator_value), "")
    message = _without(problem.message, repr(problem.instance))
    return f"{key}: {message}{hint}" if key else f"{message}{hint}"


def _without(message: str, value: str) -> str:
    """The message with the value that it repeats cut short, so that it fits in a line."""
    return short(message.replace(value, short(value, 100)), 400)
