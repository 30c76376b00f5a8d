"""The same cells by two kernels: in float32, and `mixed`, with products of bf16 numbers."""

from statistics import fmean, stdev

import pandas as pd

from highways.analysis.claims.evidence import Sample, difference
from highways.analysis.data.cells import Cell, cells
from highways.analysis.data.notes import cell_notes, place_label, signed, spread_note
from highways.analysis.data.rendering import Table
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import MIXED, Config
from highways.methods import METHODS

_NAMES = {False: "float32", True: "mixed"}


def kernel_table(config: Config, folder: Folder) -> Table:
    """Test accuracy by either kernel, and mixed minus float32: paired over the seeds, with its 95 % interval."""
    variants = plan(config).by_place("kernels")
    pairs: dict[tuple[str, str], dict[bool, Cell]] = {}
    named = {}
    for variant, cell in cells(variants, folder).items():
        where = (place_label(*variant.place), METHODS[variant.method].title)
        pairs.setdefault(where, {})[variant.kernel == MIXED] = cell
        named[f"{', '.join(where)}, {variant.name}"] = cell
    rows, data = [], []
    for (place, method), pair in pairs.items():
        texts = {name: pair[mixed].text if mixed in pair else "—" for mixed, name in _NAMES.items()}
        row = {"Place": place, "Method": method, **texts}
        rows.append({**row, "mixed − float32": _difference(pair) if len(pair) == 2 else "—"})
        for mixed, cell in pair.items():
            key = {"place": place, "method": method, "kernel": _NAMES[mixed]}
            data.append({**key, **cell.numbers, "status": cell.status})
    return Table(
        "kernels",
        "Test accuracy (%) by the kernels in float32 and mixed",
        pd.DataFrame(rows).set_index(["Place", "Method"]),
        pd.DataFrame(data),
        (
            spread_note(variants),
            "mixed − float32: mean difference over the n seeds that both have, with Student's 95 % interval.",
            *cell_notes(named),
        ),
    )


def _difference(pair: dict[bool, Cell]) -> str:
    """Mixed minus float32 with its 95 % interval, as text, over the seeds that both kernels have."""
    shared = sorted(pair[True].accuracies.keys() & pair[False].accuracies.keys())
    if not shared:
        return "—"
    mixed, plain = ({seed: pair[kernel].accuracies[seed] for seed in shared} for kernel in (True, False))
    if len(shared) == 1:
        return f"{signed(mixed[shared[0]] - plain[shared[0]])} (n=1)"
    gap = difference(*(Sample(fmean(one.values()), stdev(one.values()), len(one), one) for one in (mixed, plain)))
    low, high = gap.interval
    return f"{signed(gap.value)} [{low:.1f}, {high:.1f}] (n={len(shared)})"
