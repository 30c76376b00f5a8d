"""Options, and readers of their values, that several commands share."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from highways.experiments import own_data
from highways.experiments.configuration import all_runs, load, validate
from highways.experiments.relaxations import all_propagations
from highways.experiments.results import Folder, Reference, Results, Sources, results_of
from highways.experiments.runs import Config, Run, idle
from highways.files import short, strict_json
from highways.specs.fields import SpecError
from highways.specs.run import Conventions, RunSpec
from highways.training.interruption import Interrupted

CONFIG = "config.yaml"


def command(commands: Any, name: str, function: Any, summary: str, details: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {details}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function)
    return parser


def add_config(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--config",
        default=CONFIG,
        metavar="FILE",
        help="configuration, or a part of one that is laid over config.yaml: a YAML file, or JSON text "
        "(default: %(default)s)",
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    add_folder(parser, "--runs", "runs", "of the run records")


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Options for what tables and figures are made from: the user's records and traces, and the reference."""
    add_runs(parser)
    add_folder(parser, "--traces", "propagation", "of the traces of `propagate`")
    add_reference(parser)


def add_folder(parser: argparse.ArgumentParser, name: str, below: str, of_what: str) -> None:
    """An option for a folder, by default below the results of the configuration, which `read_config` sets."""
    place = f"RESULTS/{below}" if below else "RESULTS"
    text = f"folder {of_what} (default: {place}; RESULTS is pathvars.results of the configuration, else results)"
    parser.add_argument(name, type=Path, default=_BelowResults(below), metavar="FOLDER", help=text)


@dataclass(frozen=True)
class _BelowResults:
    """A default folder, to be placed below the results of the configuration."""

    below: str


def add_reference(parser: argparse.ArgumentParser) -> None:
    text = "folder of the results that come with the project (default: %(default)s)"
    default = Path("results/reference")
    parser.add_argument("--reference", type=Path, default=default, metavar="FOLDER", help=text)


def read_sources(options: argparse.Namespace, config: Config) -> Sources:
    """The user's records and traces, with those of the reference as fallback."""
    reference = Reference.read(options.reference)
    return Sources(
        Results(options.runs, reference.runs(all_runs(config))),
        Results(options.traces, reference.propagations(all_propagations(config))),
        options.reference,
    )


def own_and_reference(options: argparse.Namespace, runs: Mapping[str, Run]) -> Results:
    """The user's records, with those of the reference as fallback."""
    return Results(options.runs, Reference.read(options.reference).runs(runs))


def counted_records(options: argparse.Namespace, config: Config, runs: Mapping[str, Run]) -> Folder:
    """The records that the workflow counts as made: the reference's only with `records: reference`."""
    return own_and_reference(options, runs) if config["records"] == "reference" else Results(options.runs)


def add_data_dir(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--data-dir", metavar="FOLDER", help="where the data lie (default: see `highways data`)")


def add_device(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: %(default)s)")


def stopped(stop: Interrupted) -> int:
    """Report on standard error that a training was stopped; returns the exit code."""
    print(f"highways: stopped by {stop}; the same command resumes from the checkpoint", file=sys.stderr)
    return stop.exit_code


def read_config(options: argparse.Namespace) -> Config:
    """The whole configuration, from a file or JSON text that may hold a part of it; SpecError names the key.

    It also sets the folders in `options` whose defaults lie below the results of the configuration.
    """
    from highways.experiments.config_files import completed

    text: str = options.config
    written = text.lstrip().startswith("{")
    config = validate(completed(parse_json(text, "--config"))) if written else load(text)
    for name, value in vars(options).items():
        if isinstance(value, _BelowResults):
            setattr(options, name, results_of(config) / value.below)
    return config


def read_data_block(options: argparse.Namespace) -> Config:
    """The configuration as `read_config` does, but without its runs, which need the data sets to exist."""
    from highways.experiments.config_files import completed, read

    text: str = options.config
    document = parse_json(text, "--config") if text.lstrip().startswith("{") else read(text)
    return own_data.checked(completed(document))


def data_place(options: argparse.Namespace, spec: RunSpec) -> str | None:
    """Where the data of a run are: --data-dir, else what the configuration says of an own data set.

    None means the usual places. A run on a data set of the project needs no configuration.
    """
    given: str | None = options.data_dir
    if spec.data is None or given is not None or (options.config == CONFIG and not Path(CONFIG).exists()):
        return given
    config = read_data_block(options)
    named = any(entry["name"] == spec.dataset for entry in config["data"])
    return str(own_data.place_of(config, spec.dataset)) if named else None


def read_spec(text: str) -> RunSpec:
    """A spec from JSON text, or from a file that holds one, or from a record.

    SpecError for a convention that changes nothing in the run, except in a record.
    """
    where = "--spec"
    if not text.lstrip().startswith("{"):
        where = short(text, 200)
        try:
            text = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise SpecError(f"{where}: should hold text, and does not") from None
    document = parse_json(text, where)
    if isinstance(document, dict) and "spec" in document:
        return RunSpec.from_dict(document["spec"])
    spec = RunSpec.from_dict(document)
    for name in idle(spec.method):
        if getattr(spec.conventions, name) != getattr(Conventions(), name):
            refuse_idle(spec.method, name)
    return spec


def refuse_idle(method: str, convention: str) -> NoReturn:
    raise SpecError(f"conventions.{convention}: changes nothing in a {method} run; leave it out")


def parse_json(text: str, where: str) -> Any:
    try:
        return strict_json(text)
    except ValueError as error:
        raise SpecError(f"{where}: not valid JSON ({short(str(error))})") from None
