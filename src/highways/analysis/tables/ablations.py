"""What the highways add to predictive coding: the ablations as a table."""

import pandas as pd

from highways.analysis.data.cells import cells
from highways.analysis.data.notes import (
    cell_notes,
    conventions_note,
    place_label,
    protocol_notes,
    spread_note,
    units_note,
)
from highways.analysis.data.rendering import Table
from highways.experiments.plan import plan
from highways.experiments.results import Folder
from highways.experiments.runs import Config


def ablations(config: Config, folder: Folder) -> Table:
    """Test accuracy of every ablation: one row per ablation, one column per place."""
    rows: dict[str, dict[str, str]] = {}
    named, data = {}, []
    variants = plan(config).of("ablations")
    for variant, cell in cells(variants, folder).items():
        place = place_label(*variant.place)
        named[f"{variant.title}, {place}"] = cell
        rows.setdefault(variant.title, {})[place] = cell.text
        data.append(
            {
                "ablation": variant.name,
                "method": variant.method,
                "dataset": variant.dataset,
                "depth": variant.depth,
                **cell.numbers,
                "status": cell.status,
            }
        )
    columns = [place_label(*place) for place in plan(config).places("ablations")]
    return Table(
        "ablations",
        "What the highways add: test accuracy (%) of HEP, PC and their ablations",
        pd.DataFrame.from_dict(rows, orient="index", columns=columns).fillna("").rename_axis("Ablation"),
        pd.DataFrame(data),
        (
            spread_note(variants),
            "Each ablation has the settings of its depth, except for what its row names. "
            "Seeds are those of each column.",
            *protocol_notes(variants, named, ", unless a row says otherwise"),
            *units_note(config),
            conventions_note(config),
            *cell_notes(named),
        ),
    )
