"""The experiments of a configuration, block by block: every method under every setting at every place.

A block has rows, or is itself one row. A row names methods, fixes keys of the specification (`set`), varies
keys over lists (`vary`; `times` in multiples of the settings of the depth), and may choose among candidates
(`select`). A row inherits the keys of its block that it does not give itself. Imports no torch.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from highways.experiments.runs import CellKey, Config, Run, asked_kernel, cell_spec, nearest_key, short, takes
from highways.specs.fields import SpecError
from highways.specs.registry import METHODS
from highways.specs.run import RunSpec, digits

Changes = Mapping[str, Any]  # values by dotted key of the specification
_OF_BLOCK = ("cells", "methods", "times", "vary", "kernel")


@dataclass(frozen=True)
class Choice:
    """How the settings of a variant are chosen: the best candidate on validation.

    candidates: their settings. seeds: those that each is run on. epochs: those of a candidate's run; None for
    the variant's.
    """

    candidates: tuple[Changes, ...]
    seeds: tuple[int, ...]
    epochs: int | None = None

    @property
    def swept(self) -> tuple[str, ...]:
        """The dotted keys whose values are chosen."""
        return tuple(self.candidates[0])


@dataclass(frozen=True, eq=False)
class Variant:
    """One method under one set of settings at one place, on some seeds: what a cell of a table reports.

    experiment: the name of its block. name, title: of its row; of a row without a name, those of the method.
    row: the row, with the keys inherited from its block.
    given, factors: its values under `vary` and `times`, including keys that the method does not use.
    choice: how further settings are chosen; None where none are.
    runs: its runs, those of the candidates first. beyond: candidates outside the grid, never chosen.
    """

    experiment: str
    name: str
    title: str
    row: Mapping[str, Any]
    config: Config
    dataset: str
    depth: int
    method: str
    seeds: tuple[int, ...]
    given: Changes
    factors: Changes
    choice: Choice | None
    runs: tuple[Run, ...] = field(default=(), repr=False)
    beyond: tuple[Run, ...] = field(default=(), repr=False)

    @property
    def cell(self) -> CellKey:
        return self.dataset, self.depth, self.method

    @property
    def place(self) -> tuple[str, int]:
        return self.dataset, self.depth

    @property
    def varied(self) -> dict[str, Any]:
        """The values of the varied keys that the method takes."""
        return {key: value for key, value in self.given.items() if takes(self.method, key)}

    @property
    def scaled(self) -> dict[str, float]:
        """The factors of the scaled keys that the method takes."""
        return {key: value for key, value in self.factors.items() if takes(self.method, key)}

    @property
    def fixed(self) -> dict[str, Any]:
        """The values under `set` of its row, for keys that the method takes."""
        return {key: value for key, value in self.row.get("set", {}).items() if takes(self.method, key)}

    @cached_property
    def changes(self) -> dict[str, Any]:
        """The fixed, varied and scaled values by dotted key, without the settings that are chosen."""
        changes = {**self.fixed, **self.varied}
        if any(factor != 1 for factor in self.scaled.values()):
            base = cell_spec(self.config, self.dataset, self.depth, self.method, 0, changes)
            changes |= {key: _times(key, factor, base) for key, factor in self.scaled.items()}
        return changes

    def spec(self, seed: int, settings: Changes | None = None, epochs: int | None = None) -> RunSpec:
        """The spec of a seed with the settings of a candidate, by default the first."""
        if settings is None:
            settings = {} if self.choice is None else self.choice.candidates[0]
        length = {} if epochs is None else {"epochs": epochs}
        return cell_spec(
            self.config, self.dataset, self.depth, self.method, seed, {**self.changes, **settings, **length}
        )

    @cached_property
    def example(self) -> RunSpec:
        """The spec of seed 0, for what all its runs have in common."""
        return self.spec(0)

    @property
    def kernel(self) -> str:
        return asked_kernel(self.config, self.depth, self.method, self.row.get("kernel"))

    @property
    def folder(self) -> str:
        """Where its records lie below the folder of runs; also the name of its selection."""
        words = [_word(key, value) for key, value in self.varied.items()]
        words += [f"{short(key)}_x{factor:g}" for key, factor in self.scaled.items()]
        row = "" if self.name == self.method else self.name
        parts = [self.experiment, row, self.dataset, f"L{self.depth:03d}", self.method, "-".join(words)]
        return "/".join(part for part in parts if part)

    @property
    def shares_seeds(self) -> bool:
        """Whether candidates have the epochs of the runs, so that on a reported seed they count as runs."""
        return self.choice is not None and self.choice.epochs in (None, self.example.epochs)


def variants(config: Config, block: Mapping[str, Any]) -> Iterator[Variant]:
    """The variants of a block, without their runs; SpecError names the row at fault."""
    every = block.get("rows", [{}])
    methods = [name for own in every for name in _listed(own.get("methods", block.get("methods", [])))]
    among = (block.get("select") or {}).get("among", {})
    for part, keys in (("set", block.get("set", {})), ("select.among", among)):
        for key in keys:
            if not _any_takes({"methods": methods}, key):
                words = _in_vain(key, list(dict.fromkeys(methods)))
                raise SpecError(f"experiments: {block['name']}: {part}: {key} {words}")
    for own in every:
        try:
            row = _row(block, own)
            _check(row)
            yield from _of_row(config, block["name"], row)
        except SpecError as error:
            named = f"{own['name']}: " if "name" in own else ""
            raise SpecError(f"experiments: {block['name']}: {named}{error}") from None


def _row(block: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the keys inherited from its block, spec keys only where one of its methods takes them."""
    found = {**{key: block[key] for key in _OF_BLOCK if key in block}, **row}
    if "methods" in found:
        found["methods"] = _listed(found["methods"])
    given = {key: value for key, value in block.get("set", {}).items() if _any_takes(found, key)}
    found["set"] = {**given, **row.get("set", {})}
    above, own = block.get("select") or {}, row.get("select", {})
    if own is not None:
        inherited = {key: one for key, one in above.get("among", {}).items() if _any_takes(found, key)}
        among = {**inherited, **own.get("among", {})}
        unsaid = bool(above) and "among" not in above  # `_check` refuses it
        found["select"] = {**above, **own, "among": among} if among or own or unsaid else None
    if own and not {*_chosen(found)} & {*found.get("methods", [])}:
        raise SpecError(f"select.methods: {', '.join(_chosen(found))}: none is a method of the row")
    return found


def _any_takes(row: Mapping[str, Any], key: str) -> bool:
    known = [method for method in row.get("methods", []) if method in METHODS]
    return any(takes(method, key) for method in known) or key in _PLACED or not known


def _of_row(config: Config, experiment: str, row: Mapping[str, Any]) -> Iterator[Variant]:
    for given in _combinations(row.get("vary", {})):
        for factors in _combinations(row.get("times", {})):
            for dataset, depth, seeds in places(row["cells"]):
                for method in row["methods"]:
                    name = row.get("name", method)
                    title = _title(row, method)
                    where = (dataset, depth, method, seeds)
                    yield Variant(
                        experiment, name, title, row, config, *where, given, factors, _choice(row, method)
                    )


def _title(row: Mapping[str, Any], method: str) -> str:
    own = row.get("title", row.get("name", ""))
    if len(row["methods"]) == 1 and own:
        return str(own)
    return ": ".join([*([own] if own else []), METHODS[method].title])


def places(cells: Any) -> list[tuple[str, int, tuple[int, ...]]]:
    """Data sets, depths and seeds of `cells`; lists stand for all combinations."""
    found = []
    for cell in _listed(cells):
        for dataset, depth in itertools.product(_listed(cell["dataset"]), _listed(cell["depth"])):
            found.append((dataset, depth, tuple(_listed(cell["seeds"]))))
    return found


def _choice(row: Mapping[str, Any], method: str) -> Choice | None:
    select = row.get("select")
    if not select or method not in _chosen(row):
        return None
    among = {key: values for key, values in select["among"].items() if takes(method, key)}
    if not among:
        return None
    # Sorted, so that lists of the same candidates in another order ask for the same runs.
    candidates = tuple(sorted(_combinations(among), key=_order))
    return Choice(candidates, tuple(sorted(_listed(select["seeds"]))), select.get("epochs"))


def _order(candidate: Changes) -> list[Any]:
    """The sort key of a candidate: in each setting, numbers before None before words."""
    return [(isinstance(one, str), one is None, 0 if one is None else one) for one in candidate.values()]


def _chosen(row: Mapping[str, Any]) -> list[str]:
    """The methods of a row whose settings are chosen."""
    select = row.get("select") or {}
    return _listed(select["methods"]) if "methods" in select else row["methods"]


def _combinations(lists: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*(_listed(value) for value in lists.values())):
        yield dict(zip(lists, values, strict=True))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _times(key: str, factor: float, spec: RunSpec) -> Any:
    try:
        value = spec.setting(key)
    except AttributeError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"times: {key} is no number of the specification; give its values under vary")
    # Ten digits, since 8.0e-5 * 3 has a binary tail that the name of a run would show.
    product = float(f"{factor * value:.10g}")
    return int(product) if isinstance(value, int) and product.is_integer() else product


def setting_word(key: str, value: Any) -> str:
    """A setting as a folder's name shows it."""
    return f"{short(key)}{digits(value) if isinstance(value, float) else value}"


def _word(key: str, value: Any) -> str:
    """A varied setting as a folder's name shows it: a flag by its key or no_key, a text without its key."""
    if isinstance(value, bool):
        return short(key) if value else f"no_{short(key)}"
    return value if isinstance(value, str) else setting_word(key, value)


# Keys that a block gives elsewhere than under set, vary, times or select, and where.
_PLACED = {
    "dataset": "give it under cells",
    "network.depth": "give it under cells",
    "seed": "give it under cells, as seeds",
    "method": "give it under methods",
}


# Names of folders that no row may have: the runs at the chosen settings; the candidates outside the grid.
_FOLDERS = ("selected", "beyond")


def _in_vain(key: str, methods: list[str]) -> str:
    meant = nearest_key(key)
    if meant:
        return f"is no key of a specification; did you mean {meant}?"
    return f"changes nothing in a run of {' or '.join(methods)}; leave it out"


def _check(row: Mapping[str, Any]) -> None:
    """SpecError for a row with a missing, repeated or misplaced key, or with one that changes nothing."""
    for key in ("cells", "methods"):
        if key not in row:
            raise SpecError(f"{key} is missing, in the row and in its block")
    select = row.get("select") or {}
    for method in [*row["methods"], *_chosen(row)]:
        if method not in METHODS:
            raise SpecError(f"methods: {method!r} does not exist; it takes {', '.join(METHODS)}")
    for key in ("among", "seeds"):
        if select and select.get(key) in (None, {}):
            raise SpecError(f"select: {key} is missing")
    parts = {part: row.get(part) or {} for part in ("set", "vary", "times")}
    parts["select.among"] = select.get("among", {})
    seen: dict[str, str] = {}
    for part, keys in parts.items():
        for key in keys:
            if key in _PLACED:
                raise SpecError(f"{part}: {key}: {_PLACED[key]}")
            if key in seen:
                raise SpecError(f"{key} stands under {seen[key]} and under {part}; keep one")
            seen[key] = part
            if not any(takes(method, key) for method in row["methods"]):
                raise SpecError(f"{part}: {key} {_in_vain(key, row['methods'])}")
    if "epochs" in parts["select.among"]:
        raise SpecError("select.among: epochs cannot be chosen: runs of other lengths do not compare")
    for key in parts["select.among"]:
        if not any(takes(method, key) for method in _chosen(row)):
            raise SpecError(f"select.among: {key} {_in_vain(key, _chosen(row))}")
    if row.get("name") in _FOLDERS:
        raise SpecError(f"name: {row['name']} is a folder among the records; rename the row")
    here = [(dataset, depth) for dataset, depth, _ in places(row["cells"])]
    for one in row.get("beyond", []):
        keys = one.keys() - {"dataset", "depth"}
        if (one["dataset"], one["depth"]) not in here:
            raise SpecError(f"beyond: {one['dataset']} at depth {one['depth']} is none of the row's cells")
        if keys != parts["select.among"].keys():
            raise SpecError(
                f"beyond: it takes the keys of select.among: {', '.join(parts['select.among']) or 'none'}"
            )
