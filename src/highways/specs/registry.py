"""The learning methods: what each needs in its specification, its title and its cost. Imports no torch.

docs/adding-a-method.md says how to add one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from highways.specs import options
from highways.specs.cost import Cost, no_more
from highways.specs.parametrisation import Parametrisation


@dataclass(frozen=True)
class Method:
    """A learning method; the module `methods.<name>` computes it.

    title: its name in tables and figures.
    inference, highway: whether its specification has that section.
    options: the dataclass of the section `rule`; None where the method has no settings of its own.
    cost: a function of its options (or None) and the depth. A configuration refuses a method without one.
    network: a function of its options that gives its parametrisation; None for the benchmark's.
    """

    title: str
    inference: bool = False
    highway: bool = False
    options: type[Any] | None = None
    cost: Callable[[Any, int], Cost] | None = None
    network: Callable[[Any], Parametrisation] | None = None


METHODS: dict[str, Method] = {
    "pc": Method("Vanilla PC", inference=True, cost=no_more),
    "hep": Method("HEP", inference=True, highway=True, cost=no_more),
    "dfa": Method("DFA", highway=True, cost=no_more),
    "backprop": Method("BP", cost=no_more),
    "epc": Method("ePC", options=options.Epc, cost=options.epc_cost),
    "meta_pcn": Method("Meta-PCN", options=options.MetaPcn, cost=options.meta_pcn_cost),
    "precision": Method("Precision-guided PC", options=options.Precision, cost=options.precision_cost),
    "dkp": Method("DKP", options=options.Dkp, cost=options.dkp_cost),
    "dkp_pc": Method("DKP-PC", options=options.DkpPc, cost=options.dkp_pc_cost),
    "lra": Method("LRA", options=options.Lra, cost=options.lra_cost),
    "mupc": Method("μPC", options=options.Mupc, cost=options.mupc_cost, network=options.mupc_network),
    "ipc": Method("iPC", options=options.Ipc, cost=options.ipc_cost),
}
