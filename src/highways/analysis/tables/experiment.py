"""The default table of an experiment: a row per method and setting."""

import pandas as pd

from highways.analysis.data.cells import cell
from highways.analysis.data.lines import departures, lines, settings
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


def experiment_table(name: str, config: Config, folder: Folder) -> Table:
    """Test accuracy of every method under every setting, a column per place."""
    variants = plan(config).of(name)
    rows: dict[str, dict[str, str]] = {}
    named, data = {}, []
    for line, own in lines(variants).items():
        for variant in own:
            found, place = cell(variant, folder), place_label(*variant.place)
            named[f"{line}, {place}"] = found
            rows.setdefault(line, {})[place] = found.text
            key = {
                "row": variant.name,
                "method": variant.method,
                "dataset": variant.dataset,
                "depth": variant.depth,
            }
            data.append({**key, **settings(variant), **found.numbers, "status": found.status})
    same_seeds = len({variant.seeds for variant in variants}) == 1
    columns = [place_label(*place) for place in plan(config).places(name)]
    title = next(block.get("title", name) for block in config["experiments"] if block["name"] == name)
    return Table(
        name,
        f"{title}: test accuracy (%)",
        pd.DataFrame.from_dict(rows, orient="index", columns=columns).fillna("").rename_axis("Method"),
        pd.DataFrame(data),
        (
            spread_note(variants) if same_seeds else f"{spread_note(variants)} Each cell has its own seeds.",
            *departures(config, variants),
            *protocol_notes(variants, named),
            *units_note(config),
            conventions_note(config, {key for one in variants for key in (*one.given, *one.fixed)}),
            *cell_notes(named),
        ),
    )
