"""The learning methods, one module each with a class `Rule`; `specs.registry` lists them and imports no torch."""

import importlib
from typing import Any

from highways.specs.registry import METHODS

__all__ = ["METHODS", "rule"]


def rule(name: str) -> Any:
    """The class `Rule` of the module of that name."""
    return importlib.import_module(f"highways.methods.{name}").Rule
