"""Where results lie: the user's own, and the reference that comes with the project. Imports no torch.

The index of the reference maps every file to a key: the hash of its specification, followed by the kernel for
records made with `mixed`. A configuration finds its runs there by key, whatever path it gives them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from highways.errors import UserError
from highways.experiments.runs import Run, record_key
from highways.files import write_text
from highways.propagation.spec import Propagation

INDEX = "index.json"


@dataclass(frozen=True)
class Results:
    """The user's own records, or traces, with those of the reference as fallback.

    own: the folder of the user's files.
    reference: the files of the reference, by the path of the run or relaxation with the same specification.
    """

    own: Path
    reference: Mapping[str, Path] = field(default_factory=dict)


Folder = Path | Results  # a plain folder has no reference behind it


@dataclass(frozen=True)
class Sources:
    """What tables, figures and verdicts are made from. reference: its folder, as notes print it."""

    runs: Folder
    traces: Folder
    reference: Path = Path("results/reference")


def results_of(config: Mapping[str, Any]) -> Path:
    """The folder below which everything that a configuration makes is written."""
    return Path(config.get("pathvars", {}).get("results", "results"))


def places(folder: Folder, path: str, ending: str) -> Iterator[tuple[Path, bool]]:
    """The files that may hold the run or relaxation of a path, each with whether it is the reference's."""
    results = folder if isinstance(folder, Results) else Results(folder)
    yield results.own / f"{path}{ending}", False
    if path in results.reference:
        yield results.reference[path], True


@dataclass(frozen=True)
class Selected:
    """A choice that the reference holds: its file, and the settings chosen, by dotted key."""

    file: Path
    settings: dict[str, Any]


@dataclass(frozen=True)
class Reference:
    """The index of a folder of reference results.

    records: the key of `runs.record_key` by file.
    traces: the hash of the specification by file. selections: `sweep` (its hash) and `settings`, by file.
    """

    folder: Path
    records: Mapping[str, str] = field(default_factory=dict)
    traces: Mapping[str, str] = field(default_factory=dict)
    selections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Reference":
        """The reference of a folder; empty where it has no index, UserError where the index is damaged."""
        path = folder / INDEX
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(folder, **{key: dict(document[key]) for key in ("records", "traces", "selections")})
        except FileNotFoundError:
            return cls(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: not an index of results ({error}); renew it: highways collect {folder} --into {folder}"
            ) from None

    def runs(self, runs: Mapping[str, Run]) -> dict[str, Path]:
        """The reference's records of these runs, by path; runs that wait for a choice use the reference's."""
        files = _by_hash(self.records)
        chosen = self.chosen(runs)
        found = {}
        for path, run in runs.items():
            spec = run.spec
            if run.selection is not None:
                if run.selection not in chosen:
                    continue
                spec = spec.changed(chosen[run.selection].settings)
            same, key = f"runs/{path}.json", record_key(spec.hash, run.kernel)
            file = same if self.records.get(same) == key else files.get(key)
            if file is not None:
                found[path] = self.folder / file
        return found

    def chosen(self, runs: Mapping[str, Run]) -> dict[str, Selected]:
        """The reference's choices from exactly the sweeps of these runs, by selection name."""
        files = {entry["sweep"]: file for file, entry in self.selections.items()}
        found = {}
        for name, sweep in sweeps(runs.values()).items():
            file = files.get(sweep_hash(run.key for run in sweep))
            if file is not None:
                found[name] = Selected(self.folder / file, dict(self.selections[file]["settings"]))
        return found

    def propagations(self, wanted: Mapping[str, Propagation]) -> dict[str, Path]:
        """The traces of these relaxations, by path."""
        files = _by_hash(self.traces)
        hashes = {path: one.hash for path, one in wanted.items()}
        return {path: self.folder / files[found] for path, found in hashes.items() if found in files}

    def write(self) -> None:
        """Write the index, one file a line."""
        parts = {"records": self.records, "selections": self.selections, "traces": self.traces}
        blocks = []
        for key, entries in parts.items():
            lines = [f"  {json.dumps(file)}: {json.dumps(entries[file])}" for file in sorted(entries)]
            blocks.append(f' "{key}": {{\n' + ",\n".join(lines) + "\n }")
        write_text(self.folder / INDEX, "{\n" + ",\n".join(blocks) + "\n}\n")


def _by_hash(files: Mapping[str, str]) -> dict[str, str]:
    """The first file of each hash."""
    found: dict[str, str] = {}
    for file in sorted(files):
        found.setdefault(files[file], file)
    return found


def sweeps(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs that decide each selection, by its name."""
    found = {run.selection: list(run.sweep) for run in runs if run.selection}
    return {name: found[name] for name in sorted(found)}


def sweep_hash(keys: Iterable[str]) -> str:
    """16 hexadecimal digits of the keys of runs, equal for equal sets in any order."""
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()[:16]
