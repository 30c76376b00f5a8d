"""What has become of every run of a configuration. Imports no torch."""

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

    `reference`: the user has no record of it that can be used, and the reference has.
    """
    (own, _), *behind = places(folder, run.path, ".json")
    found, remark = _own_state(run, own, selections_folder(folder))
    if found not in FINISHED:
        for path, _ in behind:
            if _own_state(run, path, None)[0] in FINISHED:
                return "reference", f"{path}{f' (your own: {found})' if found != 'not run' else ''}"
    return found, remark


def _own_state(run: Run, path: Path, selections: Path | None) -> tuple[str, str]:
    """The state as the file of one place has it; without a folder of selections their choices are not compared."""
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
    """The swept keys in which a record has other values than the selection of its sweep."""
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
    """Whether other code than this made a record, so that the workflow would train it again."""
    try:
        document = read_json(path)
        return bool(document["provenance"]["training_code"] != training_code(document["spec"]["method"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def differences(document: dict[str, Any], run: Run) -> list[str]:
    """Keys of the spec in which a record differs from the run that it should be of.

    The values that a selection supplies are not known in advance and do not count. The kernel counts where the run
    asks for one, and where one of the two is `mixed`. A run that asks for none takes a record by any kernel.
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
    """Where the user's selections lie, from where the records do."""
    return (runs.own if isinstance(runs, Results) else runs).parent / "selections"


def _unfinished(path: Path) -> tuple[str, str]:
    try:
        beat = read_json(path)
        remark = "epoch {epoch:d}/{epochs:d}, batch {batch:d}/{batches:d}".format(**beat)
        alive = _alive(beat["pid"]) if beat["host"] == socket.gethostname() else None
        silent = time.time() - beat["updated"]
    except (OSError, ValueError, KeyError, TypeError):
        return "not run", ""
    # On another host only the file tells; a deep network may take a minute for one batch.
    if alive or (alive is None and silent < 30 * HEARTBEAT_SECONDS):
        return "running", remark
    return "interrupted", f"{remark}; the run resumes when it is started again"


def _alive(pid: int) -> bool:
    if pid < 1:  # to os.kill a group of processes
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
