"""The keys of a specification: their list for `--help-keys`, and the closest one to a wrong key."""

import argparse
import dataclasses
import difflib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from highways.methods import METHODS
from highways.specs.run import Conventions, Highway, Inference, Learning, Network, RunSpec

_SECTIONS = {
    "": RunSpec,
    "network.": Network,
    "learning.": Learning,
    "inference.": Inference,
    "highway.": Highway,
    "conventions.": Conventions,
}
_METHODS_WITH = {
    "inference.": [name for name, method in METHODS.items() if method.inference],
    "highway.": [name for name, method in METHODS.items() if method.highway],
}


class Key(NamedTuple):
    """A dotted key, its allowed values, its default, and the methods that have it (empty for all methods)."""

    name: str
    takes: str
    default: str
    methods: str


def all_keys() -> Iterator[Key]:
    """Every key of every method's specification."""
    for prefix, section in _SECTIONS.items():
        yield from _of(section, prefix, _METHODS_WITH.get(prefix, []))
    for name, method in METHODS.items():
        if method.options is not None:
            yield from _of(method.options, "rule.", [name])


def _of(section: Any, prefix: str, methods: list[str]) -> Iterator[Key]:
    for field in dataclasses.fields(section):
        if field.metadata:
            default = "" if field.default is dataclasses.MISSING else _word(field.default)
            yield Key(f"{prefix}{field.name}", field.metadata["allowed"], default, ", ".join(methods))


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return f"{value:g}" if isinstance(value, float) else str(value)


def keys_of(spec: RunSpec) -> list[str]:
    """The dotted keys of a specification, except those of `data`."""
    found: list[str] = []
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name == "data":  # describes the files, so no option changes it
            continue
        if dataclasses.is_dataclass(value):
            found += [f"{field.name}.{key.name}" for key in dataclasses.fields(value)]
        elif field.metadata:
            found.append(field.name)
    return found


def closest(given: str, known: Iterable[str]) -> str | None:
    """The known key with the last part of `given`, else the most similar one; None where there is neither."""
    known, given = list(known), given[:100]
    same = [key for key in known if key.rpartition(".")[2] == given.rpartition(".")[2]]
    return next(iter([*same, *difflib.get_close_matches(given, known, n=1)]), None)


class HelpKeys(argparse.Action):
    """Prints all keys, and exits."""

    def __init__(self, option_strings: list[str], dest: str, **how: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **how)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        rows = [Key("key", "takes", "default", "in runs of"), *all_keys()]
        name, default = (max(len(getattr(row, column)) for row in rows) for column in ("name", "default"))
        for row in rows:
            methods = f"  [{row.methods}]" if row.methods else ""
            print(f"{row.name:<{name}}  {row.default:<{default}}  {row.takes}{methods}")
        print("\nIn a cell of the configuration, its values and those of the depth replace these defaults.")
        parser.exit()
