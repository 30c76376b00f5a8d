"""Labels, and the notes below tables and figures: protocol, chosen settings, missing and diverged runs."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from statistics import mode
from typing import Any

import pandas as pd

from highways import paper
from highways.analysis.data.cells import Cell
from highways.analysis.data.frame import usable
from highways.analysis.data.selection import Selection
from highways.analysis.data.titles import DATASET_TITLES as DATASET_TITLES
from highways.experiments.plan import plan
from highways.experiments.runs import CellKey, Config, short
from highways.experiments.variants import Variant
from highways.methods import METHODS
from highways.specs.run import Conventions

DAGGER = "†"
_DROP = 3.0  # points; a larger drop of validation accuracy is reported


def cell_label(key: CellKey) -> str:
    """A cell of accuracy against depth in words."""
    dataset, depth, method = key
    return f"{place_label(dataset, depth)} {METHODS[method].title}"


def place_label(dataset: str, depth: int) -> str:
    """A data set and a depth in words."""
    return f"{DATASET_TITLES[dataset]} L={depth}"


def label(variant: Variant) -> str:
    """The title of a variant, marked where its method is re-implemented from secondary descriptions."""
    return variant.title + (DAGGER if variant.row.get("secondary") else "")


def counted(number: int, what: str) -> str:
    """A number with its noun; the plural takes an s."""
    return f"{number} {what}{'s' * (number != 1)}"


def signed(points: float) -> str:
    """A difference in points, with sign and one digit; never -0.0."""
    return f"{round(points, 1) + 0.0:+.1f}"


def plain(value: Any) -> str:
    """A setting as text: floats with six digits at most, flags and None as in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    return "null" if value is None else str(value)


def spread_note(variants: Iterable[Variant]) -> str:
    seeds = sorted({seed for variant in variants for seed in variant.seeds})
    return (
        "Ours: test accuracy in % at the epoch of best validation accuracy, mean ± sample standard deviation "
        f"(ddof = 1) over n seeds (asked for: {plain(seeds)})."
    )


def units_note(config: Config) -> list[str]:
    """How the strength of our highways compares with the paper's; nothing where sigma_v is the paper's."""
    ours, printed = config["highway"]["sigma_v"], printed_sigma_v()
    if ours == printed:
        return []
    return [
        f"Only the product α σ_v has an effect. σ_v is {ours:g} here and {printed:g} in the paper, so α = 0.1 "
        f"here is the paper's α = {0.1 * ours / printed:g} in the product."
    ]


def printed_sigma_v() -> float:
    return float(next(setting.value for setting in paper.shared() if setting.key == "highway.sigma_v"))


def shared_setting(config: Config, key: str) -> Any:
    """Our value of a setting that the paper states for all runs; key: dotted, or datasets, depths, seeds."""
    table = plan(config).of("depth")
    of_table: dict[str, Any] = {
        "datasets": list(dict.fromkeys(one.dataset for one in table)),
        "depths": sorted({one.depth for one in table}),
        "seeds": sorted({seed for one in table for seed in one.seeds}),
    }
    if key in of_table:
        return of_table[key]
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


def conventions_note(config: Config, but: Iterable[str] = ()) -> str:
    """A note on the conventions of the configuration, except the dotted keys in `but`, which rows set."""
    values = asdict(Conventions(**config["conventions"]))
    told = [f"{key}={plain(value)}" for key, value in values.items() if f"conventions.{key}" not in but]
    return "Conventions: " + ", ".join(told) + "."


def protocol_notes(variants: Iterable[Variant], cells: Mapping[str, Cell], but: str = "") -> list[str]:
    """Notes on epochs and batch size, with `but` as text on exceptions, and on the records' image counts."""
    specs = [variant.example for variant in variants]
    rows = pd.concat([cell.runs for cell in cells.values()])
    used = rows[usable(rows)]
    sizes = used[["dataset", "n_train", "n_validation", "n_test"]].drop_duplicates()
    epochs, batch = mode(spec.epochs for spec in specs), plain(sorted({spec.batch_size for spec in specs}))
    longer = {k: int(c.runs["epochs"].max()) for k, c in cells.items() if (c.runs["epochs"] > epochs).any()}
    others = "".join(f" {name}: {number} epochs." for name, number in longer.items())
    notes = [f"{counted(epochs, 'epoch')}, batches of {batch}{but}.{others}"]
    if len(sizes):
        parts = [
            f"{DATASET_TITLES[str(dataset)]} {train}/{validation}/{test}"
            for dataset, train, validation, test in sizes.itertuples(index=False)
        ]
        notes.append(f"Images for training/validation/test: {'; '.join(parts)}.")
    return notes


def cell_notes(cells: Mapping[str, Cell]) -> list[str]:
    """Everything that a reader of the cells must know: missing seeds, divergence, unusable records, rates."""
    notes = []
    chosen = {k: c.selection for k, c in cells.items() if c.selection is not None}
    if chosen:
        what = "Learning rate" if all("learning.lr" in one.settings for one in chosen.values()) else "Settings"
        texts = [f"{k} {_settings(selection)}" for k, selection in chosen.items()]
        notes.append(f"{what} chosen on validation accuracy: {'; '.join(texts)}.")
    own = {k: c.chosen_on for k, c in cells.items() if c.chosen_on}
    if own:
        seeds = plain(sorted({seed for found in own.values() for seed in found}))
        notes.append(f"Chosen on a seed that is reported too (seed {seeds}): {'; '.join(own)}.")
    drops = [f"{k} {c.drop:.1f}" for k, c in cells.items() if c.drop is not None and c.drop > _DROP]
    if drops:
        notes.append(
            f"Unstable: the validation accuracy of a seed fell more than {_DROP:g} points below its best so far, "
            f"at most by {'; '.join(drops)}. The accuracy reported is that of the best epoch."
        )
    mixed = [f"{k} {c.code_versions}" for k, c in cells.items() if c.code_versions > 1]
    versions = len({code for c in cells.values() for code in c.runs["training_code"].dropna()})
    if versions > 1:
        within = f"; more than one within {'; '.join(mixed)}" if mixed else "; no cell mixes any"
        notes.append(
            f"Fingerprints of the training code among these records: {versions}{within}. Each is of one "
            "method. tests/workflow/test_records.py makes a record of every method again and compares."
        )
    partial = [f"{k}: {c.finished} of {len(c.seeds)} seeds" for k, c in cells.items() if c.status == "partial"]
    if partial:
        notes.append(f"Partly run: {'; '.join(partial)}.")
    left = [f"{k}: {_hours(seconds)}" for k, c in cells.items() if (seconds := c.seconds_left) > 0]
    if left:
        notes.append(f"Left to run, in core-hours expected (`highways cost`): {'; '.join(left)}.")
    unfinished = [
        f"{k}: {c.swept[0]} of {c.swept[1]} runs" for k, c in cells.items() if 0 < c.swept[0] < c.swept[1]
    ]
    if unfinished:
        notes.append(f"No settings chosen, since the sweep is unfinished: {'; '.join(unfinished)}.")
    hopeless = [
        k for k, c in cells.items() if c.sweep is not None and c.selection is None and c.status == "diverged"
    ]
    if hopeless:
        notes.append(f"Diverged at every setting of the sweep: {'; '.join(hopeless)}.")
    diverged = [f"{k}: {_divergence(c)}" for k, c in cells.items() if c.diverged]
    if diverged:
        notes.append(f"Diverged: {'; '.join(diverged)}.")
    notes += kernel_notes(cells)
    problems = {path: text for cell in cells.values() for path, text in cell.problems.items()}
    return notes + [f"Record not used: {path}: {text}." for path, text in problems.items()]


def kernel_notes(cells: Mapping[str, Cell]) -> list[str]:
    """A note that lists the cells with seeds computed by the kernel `mixed`; none without such a cell."""
    seeds = {k: sorted(c.runs.loc[c.runs["kernel"] == "mixed", "seed"].tolist()) for k, c in cells.items()}
    mixed = [f"{k} ({counted(len(found), 'seed')})" for k, found in seeds.items() if found]
    return [f"By the kernel mixed, with bf16 products in the E-step: {'; '.join(mixed)}."] if mixed else []


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f}" if hours >= 0.1 else f"{hours:.1g}"


def _settings(selection: Selection) -> str:
    """The chosen settings as text, the learning rate without its name, and those at an edge of a grid."""
    chosen = [
        plain(value) if key == "learning.lr" else f"{short(key)} {plain(value)}"
        for key, value in selection.settings.items()
    ]
    edge = f" (edge of its grid: {', '.join(selection.edges)})" if selection.edges else ""
    return ", ".join(chosen) + edge


def _divergence(cell: Cell) -> str:
    return ", ".join(
        f"seed {seed} ({'left out, no accuracy' if seed in cell.lost else 'counted at its best epoch'})"
        for seed in cell.diverged
    )
