"""What makes each table and figure, by name."""

from highways.analysis.sections import ITEMS, nothing

TABLES = {name: item.function for (kind, name), item in ITEMS.items() if kind == "table"}
FIGURES = {name: item.function for (kind, name), item in ITEMS.items() if kind == "figure"}
TRACED = {key: item for key, item in ITEMS.items() if item.traces is not nothing}
