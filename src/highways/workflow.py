"""What the workflow asks of the package: the file behind every run, choice, relaxation, table and figure.

Pure functions of a configuration and the reference, so that two parses of one configuration plan the same jobs.
Paths begin with <results>, which Snakemake replaces (its `pathvars`). Imports no torch.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from highways import provenance
from highways.analysis.sections import ITEMS, Item
from highways.errors import UserError
from highways.experiments import cost, own_data
from highways.experiments import relaxations as plan
from highways.experiments.configuration import expand
from highways.experiments.results import Reference, Selected, sweeps
from highways.experiments.runs import Config, Run, kernel
from highways.propagation.spec import Propagation
from highways.specs.run import DATASETS


@dataclass(frozen=True, eq=False)
class Workflow:
    """The jobs' files of one configuration; SpecError where it is not right.

    reference: results that count as made where the configuration has `records: reference`.
    """

    config: Config
    reference: Reference
    runs: dict[str, Run] = field(init=False)
    propagations: dict[str, Propagation] = field(init=False)

    def __post_init__(self) -> None:
        asked, relaxations = expand(self.config)
        object.__setattr__(self, "runs", asked)
        object.__setattr__(self, "propagations", relaxations)

    @cached_property
    def _counted(self) -> Reference:
        return self.reference if self.config["records"] == "reference" else Reference(self.reference.folder)

    @cached_property
    def _kept(self) -> dict[str, Path]:
        return self._counted.runs(self.runs)

    @cached_property
    def _kept_traces(self) -> dict[str, Path]:
        return self._counted.propagations(self.propagations)

    @cached_property
    def _chosen(self) -> dict[str, Selected]:
        return self._counted.chosen(self.runs)

    @cached_property
    def _sweeps(self) -> dict[str, list[Run]]:
        return sweeps(self.runs.values())

    @cached_property
    def _made(self) -> dict[object, list[str]]:
        return {}

    def records(self, wanted: Iterable[Run]) -> list[str]:
        """The record of each run: of the reference where it counts and holds that very specification."""
        return [str(self._kept.get(run.path, f"<results>/runs/{run.path}.json")) for run in wanted]

    def kept_weights(self, wanted: Iterable[Run]) -> list[str]:
        """The weights beside the records that are made here, where the configuration keeps them."""
        records = self.records(wanted) if self.config["keep_weights"] else []
        return [f"{path.removesuffix('.json')}.npz" for path in records if path.startswith("<results>")]

    def traces(self, wanted: Iterable[Propagation]) -> list[str]:
        return [str(self._kept_traces.get(one.path, f"<results>/propagation/{one.path}.npz")) for one in wanted]

    def selection(self, name: str) -> str:
        """The file of a choice: of the reference where it counts and was made among these very candidates."""
        kept = self._chosen.get(name)
        return str(kept.file) if kept else f"<results>/selections/{name}.json"

    def kernel(self, run: Run) -> list[str]:
        """What a training is told of its kernel: nothing where any will do, or where it relaxes with none."""
        asked = kernel(self.config, run.spec)
        wanted = asked != "auto" and provenance.relaxes_with_a_kernel(run.spec.method)
        return ["--kernel", asked] if wanted else []

    def place(self, dataset: str) -> list[str]:
        """What a command is told of the place of a data set; nothing where it looks in the usual ones."""
        place = self.config["data_dir"] if dataset in DATASETS else own_data.place_of(self.config, dataset)
        return [] if place is None else ["--data-dir", str(place)]

    def sweep(self, name: str) -> list[Run]:
        """The runs that decide a choice."""
        return self._sweeps[name]

    def sources(self, kind: str, name: str) -> list[str]:
        """What a table or figure is made from."""
        item = ITEMS[kind, name]
        # Artefacts share their runs: expanded once per set of runs.
        if item.runs not in self._made:
            self._made[item.runs] = self.records(item.runs(self.config))
        return self._made[item.runs] + self.traces(item.traces(self.config))

    @cached_property
    def everything(self) -> list[str]:
        return self.records(self.runs.values())

    @cached_property
    def traced_in_training(self) -> list[Run]:
        """The runs whose weights are kept during training."""
        return plan.trained_runs(self.config)

    @property
    def moments(self) -> list[int]:
        """The epochs after which they are."""
        epochs: list[int] = self.config["propagation"]["during_training"]["epochs"]
        return epochs

    def snapshots(self, run: Run) -> list[str]:
        """The weights of a run, one file for each moment."""
        return [f"<results>/snapshots/{run.path}/epoch{epoch:02d}.npz" for epoch in self.moments]

    def weights(self, one: Propagation) -> list[str]:
        """The weights that a relaxation needs; none before training."""
        trained = {run.spec: run for run in self.traced_in_training}
        return [] if one.trained is None else [self.snapshots(trained[one.trained])[self.moments.index(one.epoch)]]


def paths(items: Iterable[Item]) -> list[str]:
    """The files of tables and figures."""
    return [f"<results>/{file}" for item in items for file in item.files]


def minutes(run: Run, attempt: int) -> int:
    """The time limit of a training: twice the cost model and some minutes to start, times the attempt.

    A job that hits it resumes on the next attempt.
    """
    return attempt * (5 + round(2 * cost.seconds(run.spec) / 60))


def megabytes(run: Run, attempt: int) -> int:
    """The memory of a training, in MiB."""
    return int(attempt * cost.memory_mb(run.spec))


def check_profile(arguments: Sequence[str], folder: Path) -> None:
    """UserError where --workflow-profile names no profile: Snakemake passes over it and plans the whole paper.

    arguments: those of Snakemake. folder: of the Snakefile.
    """
    named = ""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == "--workflow-profile":
            named = following
        elif argument.startswith("--workflow-profile="):
            named = argument.partition("=")[2]
    started = Path(os.environ.get("PWD", "."))  # Snakemake may have gone elsewhere since (--directory)
    places = [Path(named), started / named, started / "profiles" / named, folder / "profiles" / named]
    if named in ("", "none") or any(place.exists() for place in places):
        return
    known = ", ".join(sorted(path.name for path in (folder / "profiles").iterdir()))
    raise UserError(f"--workflow-profile: there is no profile {named}; it takes {known}, or the path of a folder")


def check_results(config: Config) -> None:
    """UserError where results would go into the reference, which is not the workflow's to write."""
    results = os.path.normpath(config.get("pathvars", {}).get("results", "results"))
    if results.split("/")[-2:] == ["results", "reference"] or results == "reference":
        raise UserError("pathvars.results: `highways collect` and `make report` alone write to results/reference")
