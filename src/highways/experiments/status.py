"""The state of every run of a configuration. Imports no torch."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from highways import record
from highways.experiments.results import Folder, Results, places
from highways.experiments.runs import MIXED, Run
from highways.experiments.settings_file import SettingsError, chosen_settings
from highways.files import read_json
from highways.provenance import training_code
from highways.specs.fields import SpecError
from highways.specs.run import RunSpec
from highways.training.progress import HEARTBEAT_SECONDS, heartbeat_path

STATES = ("done", "diverged", "reference", "running", "interrupted", "not run", "outdated", "broken")
FINISHED = ("done", "diverged", "reference")


def state(run: Run, folder: Folder) -> tuple[str, str]:
    """The state of a run, one of STATES, and a remark (possibly empty).

    `reference`: the user has no usable record of the run, but the reference has one.
    """
    (own, _), *behind = places(folder, run.path, ".json")
    found, remark = _own_state(run, own, selections_folder(folder))
    if found not in FINISHED:
        for path, _ in behind:
            if _own_state(run, path, None)[0] in FINISHED:
                return "reference", f"{path}{f' (your own: {found})' if found != 'not run' else ''}"
    return found, remark


def _own_state(run: Run, path: Path, selections: Path | None) -> tuple[str, str]:
    """The state by the file at one path; without a folder of selections, chosen settings are not compared."""
    if path.exists():
        try:
            document = record.read(path)
        except record.RecordError as error:
            return "broken", str(error)
        try:
            keys = differences(document, run) + _unchosen(document, run, selections)
        except SettingsError as error:
            return "broken", str(error)
        if keys:
            return "outdated", f"made with another {', '.join(keys)}"
        if document["status"] == "diverged":
            return "diverged", f"in epoch {document['diverged_epoch']}"
        return "done", f"test accuracy {document['test_accuracy']:.2%}"
    return _unfinished(heartbeat_path(path))


def _unchosen(document: dict[str, Any], run: Run, selections: Path | None) -> list[str]:
    """The chosen keys in which a record differs from the selection of its sweep."""
    if run.selection is None or selections is None:
        return []
    chosen = selections / f"{run.selection}.json"
    settings = chosen_settings(chosen) if chosen.exists() else {}
    spec = RunSpec.from_dict(document["spec"])
    try:
        asked = spec.changed(settings)
    except SpecError as error:
        raise SettingsError(f"{chosen}: {error}") from None
    return [key for key in settings if spec.setting(key) != asked.setting(key)]


def by_other_code(path: Path) -> bool:
    """Whether another version of the code made a record, so that the workflow would train it again."""
    try:
        document = read_json(path)
        return bool(document["provenance"]["training_code"] != training_code(document["spec"]["method"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def differences(document: dict[str, Any], run: Run) -> list[str]:
    """The keys of the spec, and `kernel`, in which a record differs from the run that it should be of.

    Keys whose values a selection supplies do not count. The kernel counts only where the run asks for one and
    exactly one of the two kernels is `mixed`.
    """
    found = RunSpec.from_dict(document["spec"]).complete()
    keys = _different(run.spec.complete(), found)
    made_by = document.get("provenance", {}).get("kernel")
    other = ["kernel"] if run.kernel != "auto" and made_by and (made_by == MIXED) != (run.kernel == MIXED) else []
    return [key for key in keys if not (run.selection is not None and key in run.swept)] + other


def _different(expected: dict[str, Any], found: dict[str, Any], where: str = "") -> list[str]:
    keys = []
    for key, value in expected.items():
        other = found.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            keys += _different(value, other, f"{where}{key}.")
        elif value != other:
            keys.append(f"{where}{key}")
    return keys


def selections_folder(runs: Folder) -> Path:
    """The folder of the user's selections, beside the folder of runs."""
    return (runs.own if isinstance(runs, Results) else runs).parent / "selections"


def _unfinished(path: Path) -> tuple[str, str]:
    try:
        beat = read_json(path)
        remark = "epoch {epoch:d}/{epochs:d}, batch {batch:d}/{batches:d}".format(**beat)
        alive = _alive(beat["pid"]) if beat["host"] == socket.gethostname() else None
        silent = time.time() - beat["updated"]
    except (OSError, ValueError, KeyError, TypeError):
        return "not run", ""
    # On another host only the heartbeat's age tells; one batch of a deep network may need a minute.
    if alive or (alive is None and silent < 30 * HEARTBEAT_SECONDS):
        return "running", remark
    return "interrupted", f"{remark}; the run resumes when it is started again"


def _alive(pid: int) -> bool:
    if pid < 1:  # os.kill would signal a group of processes
        return False
    try:
        os.kill(pid, 0)
    except OverflowError:
        return False
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
