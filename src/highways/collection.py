"""Finds finished records by their specification and copies them to where a configuration expects them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from highways import record
from highways.errors import UserError
from highways.experiments.results import Reference, sweeps
from highways.experiments.runs import Run, key_of, record_key
from highways.experiments.status import FINISHED, differences, selections_folder, state
from highways.propagation.spec import Propagation
from highways.specs.fields import SpecError
from highways.training.progress import heartbeat_path

_ASKED_FOR_BY_NOBODY = "left: the configuration does not ask for it"
_THERE = "left: there is one already"


class CollectionError(UserError, ValueError):
    """A folder without records; the message is one line and says what to do."""


@dataclass
class Found:
    """The records of a folder, by name, and the fates of broken ones: a message for each, by name."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    fates: dict[str, str] = field(default_factory=dict)


def collect(source: Path, runs: Mapping[str, Run], folder: Path) -> dict[str, str]:
    """Copy the records below `source` that the configuration asks for into the folder of runs.

    A record is taken where its run has no finished one. Returns what became of each record, by name.
    """
    found = _found(source)
    chosen = _own_choices(runs, selections_folder(folder))
    return found.fates | _take(found.records, _by_hash(runs, chosen), runs, folder)


def renew(
    source: Path, runs: Mapping[str, Run], traces: Mapping[str, Propagation], folder: Path
) -> dict[str, str]:
    """Copy records and traces that the configuration asks for into a reference; renew its choices and index.

    Runs that wait for a choice are copied once it is made. Returns what became of each file, by name.
    """
    found = _found(source, folder)
    plain = {path: run for path, run in runs.items() if run.selection is None}
    fates = found.fates | _take(found.records, _by_hash(plain, {}), plain, folder / "runs")
    _choose(runs, folder)
    chosen = _own_choices(runs, folder / "selections")
    waiting = {path: run for path, run in runs.items() if run.selection in chosen}
    late = _take(found.records, _by_hash(waiting, chosen), waiting, folder / "runs")
    fates |= {name: fate for name, fate in late.items() if fate != _ASKED_FOR_BY_NOBODY}
    fates |= _take_traces(source, traces, folder / "propagation")
    index(folder).write()
    return fates


def index(folder: Path) -> Reference:
    """The index of a folder of results, built from its files."""
    runs, selections, traces = (folder / name for name in ("runs", "selections", "propagation"))
    records = {
        f"runs/{path.relative_to(runs).as_posix()}": key_of(record.read(path))
        for path in sorted(runs.rglob("*.json"))
        if not _is_heartbeat(path)
    }
    chosen = {}
    for path in sorted(selections.rglob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        name = path.relative_to(selections).as_posix()
        chosen[f"selections/{name}"] = {"sweep": document["sweep"], "settings": document["settings"]}
    hashes = {path: _trace_hash(path) for path in sorted(traces.rglob("*.npz"))}
    return Reference(
        folder,
        records,
        {f"propagation/{path.relative_to(traces).as_posix()}": found for path, found in hashes.items() if found},
        chosen,
    )


def _found(source: Path, apart: Path | None = None) -> Found:
    """The records below `source` but not below `apart`; CollectionError where there are none."""
    folder = source / "records" if (source / "records").is_dir() else source
    found = Found()
    for file in sorted(folder.rglob("*.json")):
        name = str(PurePosixPath(file.relative_to(folder)).with_suffix(""))
        if _is_heartbeat(file) or _below(file, source, apart) or not _may_be_record(file):
            continue
        try:
            found.records[name] = record.read(file)
        except record.RecordError as error:
            found.fates[name] = f"left: {error}"
    if not (found.records or found.fates):
        raise CollectionError(
            f"{source}: holds no records; give a bundle in which run.py has run, or a folder with records"
        )
    return found


def _below(file: Path, source: Path, apart: Path | None) -> bool:
    return (
        apart is not None
        and apart.resolve() != source.resolve()
        and file.resolve().is_relative_to(apart.resolve())
    )


def _is_heartbeat(file: Path) -> bool:
    return file.name.endswith(heartbeat_path(Path("one.json")).name.removeprefix("one"))


def _may_be_record(file: Path) -> bool:
    """False for our other documents, such as selections; True for a broken file, so that it is reported."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return not isinstance(document, dict) or "spec" in document


def _own_choices(runs: Mapping[str, Run], selections: Path) -> dict[str, dict[str, Any]]:
    """The chosen settings by selection name, as far as selections have been made."""
    found = {}
    for name in {run.selection for run in runs.values() if run.selection is not None}:
        try:
            document = json.loads((selections / f"{name}.json").read_text(encoding="utf-8"))
            found[name] = dict(document["settings"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not chosen yet
    return found


def _by_hash(runs: Mapping[str, Run], chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The paths of runs by record key; runs that wait for a choice not in `chosen` are left out."""
    found: dict[str, list[str]] = {}
    for path, run in runs.items():
        if run.selection is None:
            found.setdefault(run.key, []).append(path)
        elif run.selection in chosen:
            spec = run.spec.changed(chosen[run.selection])
            found.setdefault(record_key(spec.hash, run.kernel), []).append(path)
    return found


def _take(
    records: Mapping[str, dict[str, Any]], asked: Mapping[str, list[str]], runs: Mapping[str, Run], folder: Path
) -> dict[str, str]:
    """Write each record to every path that asks for it and has none; what became of each, by name."""
    fates = {}
    for name, document in records.items():
        paths = asked.get(key_of(document), [])
        missing = [path for path in paths if state(runs[path], folder)[0] not in FINISHED]
        for path in missing:
            record.write(folder / f"{path}.json", document)
        if missing:
            fates[name] = "taken"
        elif paths:
            fates[name] = _THERE
        elif name in runs and (keys := differences(document, runs[name])):
            fates[name] = f"left: made with another {', '.join(keys)}"
        elif name in runs and runs[name].selection is None:
            fates[name] = (
                f"left: made by the kernel {document['provenance']['kernel']}, which the run does not ask for"
            )
        elif name in runs:
            fates[name] = f"left: its settings are not those chosen in {runs[name].selection}"
        else:
            fates[name] = _ASKED_FOR_BY_NOBODY
    return fates


def _choose(runs: Mapping[str, Run], folder: Path) -> None:
    """Make every selection whose sweep is complete in the folder of a reference."""
    from highways.analysis.commands import select

    for name, sweep in sweeps(runs.values()).items():
        files = [folder / "runs" / f"{run.path}.json" for run in sweep]
        if all(state(run, folder / "runs")[0] in FINISHED for run in sweep):
            select(files, folder / "selections" / f"{name}.json")


def _take_traces(source: Path, wanted: Mapping[str, Propagation], folder: Path) -> dict[str, str]:
    from highways.propagation import trace

    asked = {one.hash: one for one in wanted.values()}
    fates = {}
    for path in sorted(source.rglob("*.npz")):
        found = _trace_hash(path)
        if found is None or _below(path, source, folder):
            continue  # weights of a network, or another archive
        name = path.relative_to(source).with_suffix("").as_posix()
        if found not in asked:
            fates[name] = _ASKED_FOR_BY_NOBODY
            continue
        one = asked[found]
        made, out = trace.read(path, one), folder / f"{one.path}.npz"
        if out.exists() and not trace.is_of_other_settings(out, one):
            fates[name] = _THERE
        elif made is not None:
            trace.write(out, made)
            fates[name] = "taken"
    return fates


def _trace_hash(path: Path) -> str | None:
    """The hash of the specification of a trace; None where the file is none."""
    import numpy as np

    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return Propagation.from_dict(json.loads(str(file["spec"]))).hash
    except (OSError, EOFError, ValueError, KeyError, SpecError):
        return None
