"""Reads configuration files, in strict YAML, and merges a partial one over the reference `config.yaml`."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from highways.files import short
from highways.specs.fields import SpecError

NAME = "config.yaml"
_CHECKOUT = Path(__file__).parents[3]
_VALUES, _NESTING = 100_000, 50


class _Strict(yaml.SafeLoader):
    """YAML that refuses duplicate keys; PyYAML alone keeps the last of two."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else key
            if name in seen:
                raise SpecError(
                    f"line {key.start_mark.line + 1}: the key {short(repr(key.value))} stands there twice"
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def read(path: str | Path) -> Any:
    """The document of a YAML file; SpecError, in one line that names the file, where it cannot be read."""
    try:
        document = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Strict)
        _bounded(document)
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; {_REMEDY}") from None
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except RecursionError:
        raise SpecError(f"{path}: cannot be read as YAML (nested too deeply)") from None
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: an invalid number or date
        raise SpecError(f"{path}: cannot be read as YAML ({short(' '.join(str(error).split()))})") from None
    return document


_REMEDY = (
    "work in a checkout of the project, where it is, or name one with --config; "
    "`highways train --spec` needs a record or a specification only"
)


def _bounded(document: Any) -> None:
    """SpecError for too many values (aliases counted), too deep nesting (self-aliases) or a huge integer."""
    count, level = 0, [document]
    for _ in range(_NESTING):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict | list):
                below += value.values() if isinstance(value, dict) else value
            elif isinstance(value, int) and value.bit_length() > 1024:
                raise SpecError(f"a whole number of {value.bit_length()} bits; no key takes one")
            if count + len(below) > _VALUES:
                raise SpecError(f"more than {_VALUES:,} values; an alias counts as often as it is used")
        count, level = count + len(below), below
        if not level:
            return
    raise SpecError(f"nested more than {_NESTING} levels deep")


def reference() -> Path | None:
    """The `config.yaml` that others are merged over: the current folder's, else the checkout's, else None."""
    return next((path for path in (Path(NAME), _CHECKOUT / NAME) if path.is_file()), None)


def completed(document: Any) -> Any:
    """A partial configuration merged over the reference, as Snakemake merges a configfile.

    Mappings are merged key by key. Lists are replaced, except `settings`, whose rows are replaced by depth.
    A whole configuration keeps its values and gains the reference's rows for depths that it lacks.
    """
    base = reference()
    return merged(read(base), document) if base is not None and isinstance(document, Mapping) else document


def merged(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """`part` merged over `base`; rows of `settings` are replaced by depth."""
    found = _merged(base, part)
    rows = part.get("settings")
    if _rows(rows) and _rows(base.get("settings")):
        given = [row["depth"] for row in rows or []]
        kept = [row for row in base["settings"] if row["depth"] not in given]
        found["settings"] = [*(rows or []), *kept]
    return found


def _merged(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in part.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        found[key] = _merged(base[key], value) if both else value
    return found


def _rows(rows: Any) -> bool:
    """Whether every row has a depth; `configuration.validate` reports malformed rows later."""
    return isinstance(rows, list) and all(isinstance(row, Mapping) and "depth" in row for row in rows)
