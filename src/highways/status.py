"""What has become of every run of a configuration. Imports no torch."""

import json
import os
import socket
import time
from pathlib import Path

from highways import record
from highways.progress import HEARTBEAT_SECONDS, heartbeat_path
from highways.runs import Run

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
        keys = record.differences(document, run)
        if keys:
            return "outdated", f"made with another {', '.join(keys)}"
        if document["status"] == "diverged":
            return "diverged", f"in epoch {document['diverged_epoch']}"
        return "done", f"test accuracy {document['test_accuracy']:.2%}"
    return _unfinished(heartbeat_path(path))


def _unfinished(path: Path) -> tuple[str, str]:
    try:
        beat = json.loads(path.read_text())
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
