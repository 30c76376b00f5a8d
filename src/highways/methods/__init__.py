"""The learning rules, one module each, behind one registry that imports no torch until a rule is used.

To add a rule: write `methods/<name>.py` with a class `Rule` (see `pc.py`), add its line to METHODS, and name
it in config.yaml. The README does it on an example.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from highways.methods import options


@dataclass(frozen=True)
class Method:
    """What a rule needs in its RunSpec, and how it is called in tables.

    options: the dataclass of the section `rule`; None where the rule has no settings of its own.
    kernel: whether its states are relaxed by one of the kernels of `inference`.
    """

    title: str
    inference: bool = False
    highway: bool = False
    options: type[Any] | None = None
    kernel: bool = False


METHODS: dict[str, Method] = {
    "pc": Method("Vanilla PC", inference=True, kernel=True),
    "hep": Method("HEP", inference=True, highway=True, kernel=True),
    "dfa": Method("DFA", highway=True),
    "backprop": Method("BP"),
    "epc": Method("ePC", options=options.Epc),
    "meta_pcn": Method("Meta-PCN", options=options.MetaPcn),
    "precision": Method("Precision-guided PC", options=options.Precision, kernel=True),
    "dkp": Method("DKP", options=options.Dkp),
    "dkp_pc": Method("DKP-PC", options=options.DkpPc),
    "lra": Method("LRA", options=options.Lra),
    "mupc": Method("μPC", options=options.Mupc, kernel=True),
}


def rule(name: str) -> Any:
    """The class `Rule` of the module of that name."""
    return importlib.import_module(f"highways.methods.{name}").Rule
