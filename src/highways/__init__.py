"""Error Highways: predictive coding in very deep networks, reproduced and benchmarked.

Importing this imports neither torch nor pandas; its functions do.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from highways.model.trained import Trained

__all__ = ["load", "records"]
__version__ = "0.1.0"


def load(path: str | Path) -> "Trained":
    """The network that `highways train --weights` has written to a file; its `predict` takes images of uint8.

    Raises UserError, in one line, where the file holds no network.
    """
    from highways.model import trained

    return trained.load(path)


def records(
    config: str | Path = "config.yaml",
    runs: str | Path | None = None,
    reference: str | Path = "results/reference",
) -> "pd.DataFrame":
    """The records that a configuration asks for: those of the folder of runs, else those of the reference.

    runs: by default `runs` below the results of the configuration (`pathvars.results`, else results).

    One row for each use of a record:

    experiment, row: what it is used for; a record that several experiments share has a row for each.
    label: the method with what the experiment varies, as tables print it.
    role: reported (a table counts it), candidate (it took part in a choice of settings and is not reported) or
        beyond (a candidate outside the grid, on which no choice depends).
    dataset, depth, method, seed: of the run.
    test_accuracy, validation_accuracy: fractions; missing where the run diverged in its first epoch.
    best_epoch, status (ok or diverged), kernel: as the record says.
    source, file: own or reference, and its path.

    Every other column is a key of the specification, such as learning.lr; empty where a method has no such key.
    Raises UserError, in one line, where the configuration or the index of the reference cannot be read.
    """
    from highways.analysis.data import records as every
    from highways.experiments import configuration, results

    wanted = configuration.load(config)
    kept = results.Reference.read(Path(reference)).runs(configuration.all_runs(wanted))
    own = results.results_of(wanted) / "runs" if runs is None else Path(runs)
    return every.records(wanted, results.Results(own, kept))
