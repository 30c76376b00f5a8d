"""Checkpoints: written whole, read without executing anything, never used for another spec or other code."""

import io
import sys
from pathlib import Path
from typing import Any

import torch

from highways.files import write_atomically

State = dict[str, Any]


def save(path: Path, key: str, state: State) -> None:
    """Write the state under the key that names what it belongs to; OSError where the disk refuses."""
    buffer = io.BytesIO()
    torch.save({"key": key, "state": state}, buffer)

    def write(temporary: Path) -> None:
        temporary.write_bytes(buffer.getbuffer())

    write_atomically(path, write)


def load(path: Path, key: str) -> State | None:
    """The state saved under that key, or None; a damaged or foreign checkpoint is set aside with a warning."""
    if not path.exists():
        return None
    try:
        document = torch.load(path, map_location="cpu", weights_only=True)
        found, state = document["key"], document["state"]
    except OSError:
        raise
    except Exception as error:  # a damaged file fails in many ways inside the unpickler
        _set_aside(path, f"is damaged ({type(error).__name__})")
        return None
    if found != key:
        _set_aside(path, "belongs to another specification, code, kernel, device or version of torch")
        return None
    return dict(state)


def _set_aside(path: Path, problem: str) -> None:
    aside = path.with_name(path.name + ".unusable")
    path.replace(aside)
    print(f"warning: {path} {problem}; moved to {aside.name}, the run starts again", file=sys.stderr)
