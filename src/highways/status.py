"""What has become of every run of a configuration. Imports no torch."""

import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from highways import record
from highways.progress import HEARTBEAT_SECONDS, heartbeat_path
from highways.runs import Run
from highways.spec import RunSpec

STATES = ("done", "diverged", "running", "interrupted", "not run", "outdated", "broken")
FINISHED = ("done", "diverged")


def state(run: Run, folder: Path) -> tuple[str, str]:
    """The state of a run, one of STATES, and a remark (possibly empty)."""
    path = folder / f"{run.path}.json"
    if path.exists():
        try:
            document = record.read(path)
        except record.RecordError as error:
            return "broken", str(error)
        keys = _differences(document, run, folder)
        if keys:
            return "outdated", f"made with another {', '.join(keys)}"
        if document["status"] == "diverged":
            return "diverged", f"in epoch {document['diverged_epoch']}"
        return "done", f"test accuracy {document['test_accuracy']:.2%}"
    return _unfinished(heartbeat_path(path))


def outdated(run: Run, folder: Path) -> list[str]:
    """Keys in which the record of a run was made with other settings. Fast, since it does not check the record."""
    try:
        document = json.loads((folder / f"{run.path}.json").read_text(encoding="utf-8"))
        fits = run.selection is None and document["spec_hash"] == run.spec.hash
        return [] if fits else _differences(document, run, folder)
    except (OSError, ValueError, KeyError, TypeError):
        return []  # no record, or a broken one, which its reader names


def _differences(document: dict[str, Any], run: Run, folder: Path) -> list[str]:
    """Keys in which a record differs from what is asked for, which the selection of its sweep says in part."""
    keys = differences(document, run)
    if run.selection is not None:
        chosen = selections_folder(folder) / f"{run.selection}.json"
        settings = json.loads(chosen.read_text(encoding="utf-8"))["settings"] if chosen.exists() else {}
        spec = RunSpec.from_dict(document["spec"])
        keys += [key for key, value in settings.items() if spec.setting(key) != value]
    return keys


def differences(document: dict[str, Any], run: Run) -> list[str]:
    """Keys of the spec in which a record differs from the run that it should be of.

    What a selection supplies is not known in advance and does not count.
    """
    found = RunSpec.from_dict(document["spec"]).complete()
    keys = _different(run.spec.complete(), found)
    return [key for key in keys if not (run.selection is not None and key in run.swept)]


def _different(expected: dict[str, Any], found: dict[str, Any], where: str = "") -> list[str]:
    keys = []
    for key, value in expected.items():
        other = found.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            keys += _different(value, other, f"{where}{key}.")
        elif value != other:
            keys.append(f"{where}{key}")
    return keys


def selections_folder(runs: Path) -> Path:
    """Where the selections lie, from where the records do."""
    return runs.parent / "selections"


def selection_outdated(path: Path, sweep: Iterable[Run]) -> bool:
    """Whether a selection was made among other candidates than the runs of its sweep."""
    try:
        made = [candidate["settings"] for candidate in json.loads(path.read_text(encoding="utf-8"))["candidates"]]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    asked = [{key: run.spec.setting(key) for key in run.swept} for run in sweep]
    return {json.dumps(one, sort_keys=True) for one in made} != {json.dumps(one, sort_keys=True) for one in asked}


def _unfinished(path: Path) -> tuple[str, str]:
    try:
        beat = json.loads(path.read_text(encoding="utf-8"))
        remark = f"epoch {beat['epoch']}/{beat['epochs']}, batch {beat['batch']}/{beat['batches']}"
        alive = _alive(beat["pid"]) if beat["host"] == socket.gethostname() else None
        silent = time.time() - beat["updated"]
    except (OSError, ValueError, KeyError, TypeError):
        return "not run", ""
    # On another host only the file tells; a deep network may take a minute for one batch.
    if alive or (alive is None and silent < 30 * HEARTBEAT_SECONDS):
        return "running", remark
    return "interrupted", f"{remark}; the run resumes when it is started again"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
