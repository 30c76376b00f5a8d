"""The functions that make the tables and figures of config.yaml, by name, and the items that read traces."""

from pathlib import Path

from highways.analysis.sections import items, nothing
from highways.experiments.configuration import load

ITEMS = items(load(Path(__file__).parents[1] / "config.yaml"))
TABLES = {name: item.function for (kind, name), item in ITEMS.items() if kind == "table"}
FIGURES = {name: item.function for (kind, name), item in ITEMS.items() if kind == "figure"}
TRACED = {key: item for key, item in ITEMS.items() if item.traces is not nothing}
