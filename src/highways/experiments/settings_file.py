"""Reads the file that `highways select` writes: the settings chosen in a sweep. Imports no torch."""

from pathlib import Path
from typing import Any

from highways.errors import UserError
from highways.files import read_json, short


class SettingsError(UserError, ValueError):
    """A file that holds no settings; the message is one line and names it."""


def chosen_settings(path: Path) -> dict[str, Any]:
    """The chosen settings by dotted key; OSError without a file, SettingsError where it holds no settings."""
    try:
        document = read_json(path)
    except ValueError as error:
        raise SettingsError(f"{path}: not valid JSON ({short(str(error))}); {_REMEDY}") from None
    settings = document.get("settings") if isinstance(document, dict) else None
    if not isinstance(settings, dict) or not settings:
        raise SettingsError(f"{path}: holds no settings; {_REMEDY}")
    return settings


_REMEDY = "delete it, and make it with `highways select`"
