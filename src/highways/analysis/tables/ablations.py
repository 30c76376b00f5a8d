"""What the highways add to predictive coding: the controls as a table."""

import pandas as pd

from highways.analysis.data.cells import cells_at
from highways.analysis.data.notes import (
    cell_notes,
    conventions_note,
    place_label,
    protocol_notes,
    spread_note,
    units_note,
)
from highways.analysis.data.rendering import Table
from highways.experiments.ablations import arms
from highways.experiments.results import Folder
from highways.experiments.runs import Config


def controls(config: Config, folder: Folder) -> Table:
    """Test accuracy of every control: one row per control, one column per place."""
    rows: dict[str, dict[str, str]] = {}
    columns: dict[str, tuple[str, int]] = {}
    cells, data = {}, []
    for arm in arms(config):
        dataset, depth, method = arm.cell
        place = place_label(dataset, depth)
        cell = cells_at(arm.config, folder, [arm.cell])[arm.cell]
        cells[f"{arm.title}, {place}"] = cell
        rows.setdefault(arm.title, {})[place] = cell.text
        columns[place] = (dataset, depth)
        data.append(
            {
                "control": arm.name,
                "method": method,
                "dataset": dataset,
                "depth": depth,
                **cell.numbers,
                "status": cell.status,
            }
        )
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=sorted(columns, key=columns.__getitem__))
    return Table(
        "controls",
        "What the highways add: test accuracy (%) of HEP, PC and their controls",
        frame.fillna("").rename_axis("Control"),
        pd.DataFrame(data),
        (
            spread_note(config),
            "Each control has the settings of its depth, except for what its row names. "
            "Seeds are those of each column.",
            *protocol_notes(config, cells, ", unless a row says otherwise"),
            *units_note(config),
            conventions_note(config),
            *cell_notes(cells),
        ),
    )
