"""Checkpoints: written whole, read without executing anything, used only by the run that they belong to.

The first line of a file holds the SHA-256 of the rest, which torch saved, so a bit that changed on the disk
is detected before anything is unpickled.
"""

import hashlib
import io
import sys
from pathlib import Path
from typing import Any

import torch

from highways.files import write_atomically

State = dict[str, Any]
_TITLE = b"highways checkpoint sha256 "


def save(path: Path, key: str, state: State) -> None:
    """Write the state under the key that names what it belongs to; OSError where the disk refuses."""
    buffer = io.BytesIO()
    torch.save({"key": key, "state": state}, buffer)
    content = buffer.getbuffer()

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(_TITLE + hashlib.sha256(content).hexdigest().encode() + b"\n")
            file.write(content)

    write_atomically(path, write)


def load(path: Path, key: str) -> State | None:
    """The state saved under that key, or None; a damaged or foreign checkpoint is set aside with a warning."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    title, _, saved = content.partition(b"\n")
    if title != _TITLE + hashlib.sha256(saved).hexdigest().encode():
        set_aside(path, "is damaged, or of another version of highways")
        return None
    try:
        document = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
        found, state = document["key"], dict(document["state"])
    except Exception as error:  # the unpickler raises many kinds of error for a file that is no checkpoint
        set_aside(path, f"is no checkpoint ({type(error).__name__})")
        return None
    if found != key:
        what = "specification, code, kernel, number of threads, device, kind of processor or version of torch"
        set_aside(path, f"belongs to another {what}")
        return None
    return state


def set_aside(path: Path, problem: str) -> None:
    """Rename a checkpoint that cannot be used, with a warning, so that the run starts again."""
    aside = path.with_name(path.name + ".unusable")
    path.replace(aside)
    print(f"warning: {path} {problem}; moved to {aside.name}, the run starts again", file=sys.stderr)
