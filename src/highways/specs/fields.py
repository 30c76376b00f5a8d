"""Typed, ranged fields for frozen dataclasses, and errors that name the field.

A specification is built from untrusted text (YAML, JSON, a command line). Each field carries what is
allowed in its metadata; `check` verifies an instance and `from_mapping` builds one from plain data.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

from highways.errors import UserError
from highways.files import short

T = TypeVar("T")
_TINY, _HUGE = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # the normal numbers of float32, in which a run computes


class SpecError(UserError, ValueError):
    """A value that a specification does not allow; the message names the key, the value and the remedy."""


def shown(value: Any) -> str:
    """A value as a message repeats it: on one line, cut where it is longer than 100 characters."""
    return short(repr(value), 100)


def real(default: Any = dataclasses.MISSING, *, low: float, high: float = math.inf, above: bool = False) -> Any:
    """A finite number in [low, high], or in (low, high] when `above`."""
    allowed = f"a number {'above' if above else 'of at least'} {low:g}"
    if high < math.inf:
        allowed += f" and at most {high:g}"
    return _field(default, kind=float, low=low, high=high, above=above, allowed=allowed)


def integer(default: Any = dataclasses.MISSING, *, low: int, high: int) -> Any:
    """A whole number in [low, high]."""
    return _field(
        default, kind=int, low=low, high=high, above=False, allowed=f"a whole number from {low} to {high}"
    )


def choice(default: Any = dataclasses.MISSING, *, options: tuple[str, ...]) -> Any:
    """One of a few words."""
    return _field(default, kind=str, options=options, allowed="one of " + ", ".join(options))


def word(*, pattern: str, allowed: str) -> Any:
    """A text that matches the pattern as a whole."""
    return _field(dataclasses.MISSING, kind=str, pattern=pattern, allowed=allowed)


def flag(default: Any = dataclasses.MISSING) -> Any:
    """true or false."""
    return _field(default, kind=bool, allowed="true or false")


def section() -> Any:
    """A nested dataclass, which checks its own fields."""
    return dataclasses.field()


def _field(default: Any, **metadata: Any) -> Any:
    return dataclasses.field(default=default, metadata=metadata)


def check(instance: Any, where: str = "") -> None:
    """Verify every field of a dataclass instance; whole numbers given for real fields become floats."""
    for field in dataclasses.fields(instance):
        if field.metadata:
            checked = _checked(getattr(instance, field.name), field, _join(where, field.name))
            object.__setattr__(instance, field.name, checked)


def _checked(value: Any, field: "dataclasses.Field[Any]", key: str) -> Any:
    meta, kind = field.metadata, field.metadata["kind"]
    if value is None and field.default is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        value = float(value) if abs(value) < 1e300 or isinstance(value, float) else math.inf
    if type(value) is not kind:
        hint = ""
        if kind in (float, int) and isinstance(value, str):
            hint = " (YAML reads 1e-4 and 1e9 as text: write 1.0e-4 and 1.0e+9)"
        raise SpecError(f"{key}: {shown(value)} is not allowed; it takes {meta['allowed']}{hint}")
    if kind in (float, int):
        inside = meta["low"] < value <= meta["high"] if meta["above"] else meta["low"] <= value <= meta["high"]
        if not (inside and math.isfinite(value)):
            raise SpecError(f"{key}: {shown(value)} is out of range; it takes {meta['allowed']}")
        if kind is float and value and not _TINY <= abs(value) <= _HUGE:
            raise SpecError(
                f"{key}: {shown(value)} is out of range of float32; it takes {_TINY:.3g} to {_HUGE:.3g}"
            )
    elif kind is str and not _is_allowed(value, meta):
        raise SpecError(f"{key}: {shown(value)} is not allowed; it takes {meta['allowed']}")
    return value


def _is_allowed(text: str, meta: Mapping[str, Any]) -> bool:
    return text in meta["options"] if "options" in meta else bool(re.fullmatch(meta["pattern"], text))


def from_mapping(cls: type[T], mapping: Any, where: str = "") -> T:
    """Build the dataclass `cls` from plain data; nested dataclasses are built from nested mappings."""
    if not isinstance(mapping, Mapping):
        raise SpecError(
            f"{where or cls.__name__}: {shown(mapping)} is not allowed; it takes a mapping of keys to values"
        )
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    sections = _sections(cls)  # type: ignore[arg-type]
    for key in mapping:
        if key not in fields:
            raise SpecError(f"{_join(where, short(str(key), 60))}: unknown key; allowed here: {', '.join(fields)}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        key = _join(where, name)
        if name not in mapping:
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise SpecError(f"{key}: missing; it takes {field.metadata.get('allowed', 'a mapping')}")
            continue
        value = mapping[name]
        absent = value is None and field.default is None
        nested = name in sections and not absent
        values[name] = from_mapping(sections[name], value, key) if nested else value
    return cls(**values)


@functools.cache
def _sections(cls: type) -> dict[str, Any]:
    """The nested dataclasses of a dataclass, by field. Cached: a configuration builds thousands of specs."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        for kind in (hint, *get_args(hint)):
            if dataclasses.is_dataclass(kind):
                found[name] = kind
    return found


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
