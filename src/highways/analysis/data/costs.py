"""Tables of the cost and the provenance of records, and of the runs without one."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from highways.analysis.data.rendering import Table
from highways.experiments import cost
from highways.experiments.runs import Run


def part(path: str) -> str:
    """The experiment that a run belongs to."""
    return path.split("/")[0]


def cost_table(runs: Mapping[str, Run], records: Mapping[str, Mapping[str, Any]]) -> Table:
    """Core-hours per experiment: measured for runs with a record, estimated for the others."""
    rows: dict[str, dict[str, float]] = {}
    for path, run in runs.items():
        row = rows.setdefault(part(path), {"runs": 0, "done": 0, "hours": 0.0, "left": 0.0})
        row["runs"] += 1
        if path in records:
            row["done"] += 1
            row["hours"] += records[path]["timing"]["cpu_seconds"] / 3600
        else:
            row["left"] += cost.seconds(run.spec) / 3600
    data = pd.DataFrame.from_dict(rows, orient="index").rename_axis("part").reset_index()
    total = data[["runs", "done", "hours", "left"]].sum()
    data.loc[len(data)] = ["total", *total]
    frame = pd.DataFrame(
        {
            "Part": data["part"],
            "Runs": data["runs"].map("{:.0f}".format),
            "Done": data["done"].map("{:.0f}".format),
            "Core-hours, measured": data["hours"].map("{:.2f}".format),
            "Core-hours left, estimated": data["left"].map("{:.1f}".format),
        }
    )
    notes = ("Measured: processor time of the records. Estimated: the cost model at 70 GFLOP/s a core.",)
    return Table("cost", "What it cost", frame.set_index("Part"), data, notes)


def provenance_table(records: Mapping[str, Mapping[str, Any]]) -> Table:
    """The versions and machines of the records, with how many each made."""
    keys = ("version", "commit", "training_code", "torch", "device", "kernel", "threads")
    counts = {key: Counter(str(one["provenance"].get(key)) for one in records.values()) for key in keys}
    dirty = sum(bool(one["provenance"].get("dirty")) for one in records.values())
    rows = [
        {"What": key, "Value": value[:12] if key == "commit" else value, "Records": number}
        for key, found in counts.items()
        for value, number in found.most_common()
    ]
    data = pd.DataFrame(rows, columns=["What", "Value", "Records"])
    notes = (
        f"{len(records)} records; {dirty} from a working copy with changes.",
        "training_code is a fingerprint of the code that determines a number: one per method.",
    )
    return Table("provenance", "Where the numbers come from", data.set_index("What"), data, notes)


def missing(runs: Mapping[str, Run], records: Mapping[str, Mapping[str, Any]]) -> Table:
    """The runs without a record, by cell, with their estimated core-hours."""
    rows: dict[str, dict[str, Any]] = {}
    for path, run in runs.items():
        if path not in records:
            row = rows.setdefault(path.rpartition("/")[0], {"Seeds": 0, "Core-hours": 0.0})
            row["Seeds"] += 1
            row["Core-hours"] += cost.seconds(run.spec) / 3600
    data = pd.DataFrame(
        [{"Run": path, **row} for path, row in rows.items()], columns=["Run", "Seeds", "Core-hours"]
    )
    frame = data.assign(**{"Core-hours": data["Core-hours"].map("{:.2f}".format)}).set_index("Run")
    return Table("missing", "Not run", frame, data, ("Estimated by the cost model.",))
