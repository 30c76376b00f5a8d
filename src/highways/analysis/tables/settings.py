"""The table of settings: the configuration beside the paper."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from highways import paper
from highways.analysis.data.notes import conventions_note, plain, shared_setting, units_note
from highways.analysis.data.rendering import Table
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config

_COLUMNS = {"alpha": "α", "steps": "T", "lr": "lr", "optimizer": "E-step", "step_size": "λ"}
_NO_VALUE = "—"


def settings(config: Config, folder: Folder) -> Table:
    """The settings of each depth beside the paper's; the notes compare the settings that all depths share."""
    depths = {variant.depth for variant in plan(config).of("depth")}
    ours = {row["depth"]: row for row in config["settings"] if row["depth"] in depths}
    theirs = {row.depth: asdict(row) for row in paper.settings()}
    rows, data = [], []
    for depth in sorted({*ours, *theirs}):
        row: dict[str, Any] = {"L": depth}
        entries = [_entry(key, depth, ours.get(depth, {}), theirs.get(depth, {})) for key in _COLUMNS]
        for entry in entries:
            title = _COLUMNS[entry["setting"]]
            row |= {title: plain(entry["ours"]), f"{title} (paper)": plain(entry["paper"])}
        row["≠"] = ", ".join(_COLUMNS[entry["setting"]] for entry in entries if entry["differs"])
        rows.append(row)
        data += entries
    others = _exceptions(config) + _shared(config) + _sweeps(config)
    equal = [f"{_name(entry)} {plain(entry['ours'])}" for entry in others if not entry["differs"]]
    different = [entry for entry in others if entry["differs"]]
    return Table(
        "settings",
        "Settings per depth L",
        pd.DataFrame(rows).set_index("L"),
        _long(data + others),
        (
            f"Paper: {paper.place('settings')}. The last column names what differs.",
            "α and σ_v apply to HEP alone; α, T, λ and the E-step do not apply to BP.",
            f"As in the paper: {'; '.join(equal) or 'none of the shared settings'}.",
            *(f"Differs: {_name(e)} is {plain(e['ours'])}, in the paper {plain(e['paper'])}." for e in different),
            *units_note(config),
            conventions_note(config),
        ),
    )


def _entry(key: str, depth: int | None, ours: Any, theirs: Any) -> dict[str, Any]:
    return _compare(key, depth, ours.get(key, _NO_VALUE), theirs.get(key, _NO_VALUE))


def _compare(setting: str, depth: int | None, ours: Any, theirs: Any) -> dict[str, Any]:
    """One setting on both sides; a setting that one side does not have cannot differ."""
    differs = _NO_VALUE not in (ours, theirs) and ours != theirs
    return {"setting": setting, "depth": depth, "ours": ours, "paper": theirs, "differs": differs}


# The keys of a specification, by their short names in the block `exceptions` of paper.yaml.
_KEYS = {
    "initialisation": "network.initialisation",
    "schedule": "learning.schedule",
    "horizon": "learning.horizon",
}


def _exceptions(config: Config) -> list[dict[str, Any]]:
    entries = []
    for theirs in paper.exceptions():
        method, depth = theirs["method"], theirs["depth"]
        found = [one for one in plan(config).of("depth") if (one.method, one.depth) == (method, depth)]
        if not found:
            continue
        spec = found[0].example
        if spec.epochs != config["training"]["epochs"]:
            entries.append(_compare(f"{method}.epochs", depth, spec.epochs, paper.epochs()))
        for key in theirs.keys() - {"method", "depth"}:
            entries.append(_compare(f"{method}.{key}", depth, spec.setting(_KEYS[key]), theirs[key]))
    return sorted(entries, key=lambda entry: str(entry["setting"]))


def _shared(config: Config) -> list[dict[str, Any]]:
    return [_compare(one.key, None, shared_setting(config, one.key), one.value) for one in paper.shared()]


def _sweeps(config: Config) -> list[dict[str, Any]]:
    """The seeds and epochs of the two sweeps, which the paper states for all runs."""
    theirs = {setting.key: setting.value for setting in paper.shared()}
    entries = []
    for name in ("strength", "density"):
        for one in plan(config).of(name)[:1]:
            entries.append(_compare(f"{name}.seeds", None, list(one.seeds), theirs["seeds"]))
            entries.append(_compare(f"{name}.epochs", None, one.example.epochs, theirs["training.epochs"]))
    return entries


def _long(entries: list[dict[str, Any]]) -> pd.DataFrame:
    rows = [{**entry, "ours": _cell(entry["ours"]), "paper": _cell(entry["paper"])} for entry in entries]
    return pd.DataFrame(rows).astype({"depth": "Int64"})


def _cell(value: Any) -> str:
    return "" if value == _NO_VALUE else plain(value).replace(", ", ";")


def _name(entry: dict[str, Any]) -> str:
    return entry["setting"] if entry["depth"] is None else f"{entry['setting']} at depth {entry['depth']}"
