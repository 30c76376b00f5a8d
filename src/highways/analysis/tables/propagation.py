"""The tables of signal propagation, from the traces of `highways propagate`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from highways import paper
from highways.analysis.data.propagation import NOT_RUN, in_words, of_columns
from highways.analysis.data.rendering import Table
from highways.experiments import relaxations as plan
from highways.experiments.relaxations import ROWS
from highways.experiments.results import Folder
from highways.experiments.runs import Config
from highways.propagation.spec import Propagation


def optimizer_table(config: Config, folder: Folder) -> Table:
    """The paper's table of the error of some layers after relaxation, in both networks."""
    titles = {name: chosen.title for name, chosen in plan.optimizers(config).items()}
    columns = {
        f"{titles[name]}, {ROWS[row]}": seeds for (row, name), seeds in plan.optimizer_columns(config).items()
    }
    published = {title: name for name, title in titles.items()}
    return _layer_table(
        "optimizer",
        "Error of layer ℓ of untrained vanilla PC after relaxation, by optimizer of the states",
        config,
        folder,
        columns,
        published,
        [f"Step size {config['propagation']['step_size']:g}.", in_words(ROWS)],
    )


def step_table(config: Config, folder: Folder) -> Table:
    """The paper's two Adam columns at other step sizes, in the plain network."""
    columns = {f"ε = {eps:g}, step {size:g}": seeds for (eps, size), seeds in plan.step_sizes(config).items()}
    published = {"ε = 1e-8": "adam_1e-8", "ε = 1e-2": "adam_1e-2"}
    return _layer_table(
        "adam_steps",
        "The Adam columns at other step sizes: vanilla PC, plain net",
        config,
        folder,
        columns,
        published,
        [in_words({"plain": ROWS["plain"]})],
    )


def _layer_table(
    name: str,
    caption: str,
    config: Config,
    folder: Folder,
    columns: Mapping[str, Sequence[Propagation]],
    published: Mapping[str, str],
    how: Sequence[str],
) -> Table:
    """Rms errors after the last step, a row per layer: ours (geometric mean, range), then the paper's.

    published: names of columns of the paper by title. how: the notes of this table alone.
    """
    block = config["propagation"]
    found = of_columns(columns, folder)
    comparable = block["depth"] == paper.relaxation()["depth"]
    layers = paper.error_layers() if comparable else sorted(block["layers"], reverse=True)
    rows, data = [], []
    for layer in layers:
        row = {"ℓ": str(layer)}
        for title, seeds in found.items():
            values = [float(trace.errors[-1, layer]) for trace in seeds]
            row[title] = _spread(values)
            data.append(
                {
                    "layer": layer,
                    "column": title,
                    "values": ";".join(f"{value:.6g}" for value in values),
                    "n": len(values),
                }
            )
        for title, key in published.items() if comparable else ():
            printed = paper.layer_error(layer, key)
            row[f"{title} (paper)"] = f"{'<' if printed.upper_bound else ''}{printed.value:.1e}"
            data.append({"layer": layer, "column": f"{title} (paper)", "values": f"{printed.value:g}", "n": 1})
        rows.append(row)
    notes = (
        f"Depth {block['depth']}, untrained, one image of {block['dataset']}; double precision.",
        *how,
        f"{block['steps']} steps. Rms over the units of the layer: geometric mean over the seeds "
        "(smallest to largest). "
        f"Layer 0 is the first hidden layer and {block['depth'] - 1} the output. The paper's numbers fit no other "
        "numbering.",
    )
    return Table(name, caption, pd.DataFrame(rows).set_index("ℓ"), pd.DataFrame(data), notes)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return NOT_RUN
    if min(values) == 0:
        return "0" if max(values) == 0 else f"0 to {max(values):.1e}"
    middle = float(np.exp(np.mean(np.log(values))))
    return f"{middle:.1e} ({min(values):.1e} to {max(values):.1e})" if len(values) > 1 else f"{middle:.1e}"
