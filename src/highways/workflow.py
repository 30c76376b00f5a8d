"""What the workflow asks of the package: the file behind every run, choice, relaxation, table and figure.

Pure functions of a configuration and the reference, so that two parses of one configuration plan the same jobs.
Paths begin with <results>, which Snakemake replaces (its `pathvars`). Imports no torch.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from highways.analysis.sections import Item, items
from highways.errors import UserError
from highways.experiments import cost, own_data
from highways.experiments import relaxations as plan
from highways.experiments.configuration import expand
from highways.experiments.results import Reference, Selected, results_of, sweeps
from highways.experiments.runs import Config, Run
from highways.propagation.spec import Propagation
from highways.specs.run import DATASETS


@dataclass(frozen=True, eq=False)
class Workflow:
    """The files of all jobs of one configuration; SpecError where the configuration is invalid.

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
    def items(self) -> dict[tuple[str, str], Item]:
        """The tables and figures that the configuration asks for."""
        return items(self.config)

    def records(self, wanted: Iterable[Run]) -> list[str]:
        """The record of each run: the reference's where that counts and has the run, else below <results>."""
        return [str(self._kept.get(run.path, f"<results>/runs/{run.path}.json")) for run in wanted]

    def kept_weights(self, wanted: Iterable[Run]) -> list[str]:
        """The weights beside the records that are made here; none without `keep_weights`."""
        records = self.records(wanted) if self.config["keep_weights"] else []
        return [f"{path.removesuffix('.json')}.npz" for path in records if path.startswith("<results>")]

    def traces(self, wanted: Iterable[Propagation]) -> list[str]:
        return [str(self._kept_traces.get(one.path, f"<results>/propagation/{one.path}.npz")) for one in wanted]

    def selection(self, name: str) -> str:
        """The file of a choice: the reference's where that counts and has its sweep, else in <results>."""
        kept = self._chosen.get(name)
        return str(kept.file) if kept else f"<results>/selections/{name}.json"

    def kernel(self, run: Run) -> list[str]:
        """The option --kernel of a training; empty where the run asks for no kernel."""
        return [] if run.kernel == "auto" else ["--kernel", run.kernel]

    def place(self, dataset: str) -> list[str]:
        """The option --data-dir of a command for a data set; empty where that lies in the usual places."""
        place = self.config["data_dir"] if dataset in DATASETS else own_data.place_of(self.config, dataset)
        return [] if place is None else ["--data-dir", str(place)]

    def sweep(self, name: str) -> list[Run]:
        """The runs that decide a choice."""
        return self._sweeps[name]

    def sources(self, kind: str, name: str) -> list[str]:
        """The records and traces that a table or figure is made from."""
        item = self.items[kind, name]
        return self.records(item.runs_of(self.config)) + self.traces(item.traces(self.config))

    @cached_property
    def everything(self) -> list[str]:
        return self.records(self.runs.values())

    @cached_property
    def traced_in_training(self) -> list[Run]:
        """The runs whose weights are kept during training."""
        return plan.trained_runs(self.config)

    @property
    def moments(self) -> list[int]:
        """The epochs after which the runs of `traced_in_training` keep their weights."""
        block = self.config["propagation"]
        return [] if block is None else list(block["during_training"]["epochs"])

    def snapshots(self, run: Run) -> list[str]:
        """The files of the weights of a run, one for each of `moments`."""
        return [f"<results>/snapshots/{run.path}/epoch{epoch:02d}.npz" for epoch in self.moments]

    def weights(self, one: Propagation) -> list[str]:
        """The file of weights that a relaxation needs; empty for an untrained network."""
        trained = {run.spec: run for run in self.traced_in_training}
        return [] if one.trained is None else [self.snapshots(trained[one.trained])[self.moments.index(one.epoch)]]


def paths(items: Iterable[Item]) -> list[str]:
    """The files of tables and figures."""
    return [f"<results>/{file}" for item in items for file in item.files]


def minutes(run: Run, attempt: int) -> int:
    """The time limit of a training in minutes: twice the cost model and 5 to start, times the attempt.

    A job that hits it resumes on the next attempt.
    """
    return attempt * (5 + round(2 * cost.seconds(run.spec) / 60))


def megabytes(run: Run, attempt: int) -> int:
    """The memory of a training in MiB, times the attempt."""
    return int(attempt * cost.memory_mb(run.spec))


def check_profile(arguments: Sequence[str], folder: Path) -> None:
    """UserError where --workflow-profile names no profile, and where --configfile replaces its configuration.

    In both cases Snakemake would silently plan the whole paper. arguments: Snakemake's; folder: the profiles'
    parent, that of the Snakefile.
    """
    (named, *_) = [*_values(arguments, "--workflow-profile"), ""]
    if named in ("", "none"):
        return
    started = Path(os.environ.get("PWD", "."))  # where Snakemake was started; --directory changes its folder
    places = [Path(named), started / named, started / "profiles" / named, folder / "profiles" / named]
    profile = next((place for place in places if place.exists()), None)
    if profile is None:
        known = ", ".join(sorted(path.name for path in (folder / "profiles").iterdir()))
        raise UserError(
            f"--workflow-profile: there is no profile {named}; it takes {known}, or the path of a folder"
        )
    given = [Path(value).name for value in _values(arguments, "--configfile", "--configfiles")]
    own = _configuration_of(profile)
    if given and own is not None and own not in given:
        raise UserError(
            f"--configfile: it replaces the configuration of the profile {named}; give both: "
            f"--configfile {profile / own} {' '.join(given)}"
        )


def _values(arguments: Sequence[str], *options: str) -> list[str]:
    """The values given to these options: after = or up to the next option."""
    found, taking = [], False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in options and equals:
            found.append(value)
        elif argument.startswith("-"):
            taking = argument in options
        elif taking:
            found.append(argument)
    return found


def _configuration_of(profile: Path) -> str | None:
    """The file name of the configuration that a profile sets; None where it sets none."""
    import yaml

    try:
        document = yaml.safe_load((profile / "config.yaml").read_text(encoding="utf-8"))
        return Path(document["configfile"]).name
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None


def check_results(config: Config) -> None:
    """UserError where results would go into the reference, which the workflow must not write."""
    results = os.path.normpath(results_of(config))
    if results.split("/")[-2:] == ["results", "reference"] or results == "reference":
        raise UserError("pathvars.results: `highways collect` and `make report` alone write to results/reference")
