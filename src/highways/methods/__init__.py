"""The learning rules, one module each, behind one registry that imports no torch until a rule is used.

To add a rule: write `methods/<name>.py` with a class `Rule` (see `pc.py`), add its line to METHODS, and name
it in config.yaml.
"""

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Method:
    """What a rule needs in its RunSpec, and how it is called in tables."""

    title: str
    inference: bool
    highway: bool


METHODS: dict[str, Method] = {
    "pc": Method("Vanilla PC", inference=True, highway=False),
    "hep": Method("HEP", inference=True, highway=True),
    "dfa": Method("DFA", inference=False, highway=True),
    "backprop": Method("BP", inference=False, highway=False),
}


def rule(name: str) -> Any:
    """The class `Rule` of the module of that name."""
    return importlib.import_module(f"highways.methods.{name}").Rule
