"""What the commands share."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from highways.config import load, validate
from highways.fields import SpecError
from highways.interruption import Interrupted
from highways.runs import Config
from highways.spec import RunSpec


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
        default="config.yaml",
        metavar="FILE",
        help="configuration: a YAML file, or JSON text (default: %(default)s)",
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "--runs", "results/runs", "of the run records")


def add_traces(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "--traces", "results/propagation", "of the traces of `propagate`")


def _add_folder(parser: argparse.ArgumentParser, name: str, default: str, of_what: str) -> None:
    text = f"folder {of_what} (default: %(default)s)"
    parser.add_argument(name, type=Path, default=Path(default), metavar="FOLDER", help=text)


def add_data_dir(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--data-dir", metavar="FOLDER", help="where the data lie (default: see `highways data`)")


def add_device(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: %(default)s)")


def stopped(stop: Interrupted) -> int:
    """Say that a training was stopped; its exit code."""
    print(f"highways: stopped by {stop}; the same command resumes from the checkpoint", file=sys.stderr)
    return stop.exit_code


def read_config(options: argparse.Namespace) -> Config:
    text: str = options.config
    if text.lstrip().startswith("{"):
        return validate(parse_json(text, "--config"))
    return load(text)


def read_spec(text: str) -> RunSpec:
    """A spec from JSON text, or from a file that holds one, or from a record."""
    if not text.lstrip().startswith("{"):
        text = Path(text).read_text(encoding="utf-8")
    document = parse_json(text, "--spec")
    return RunSpec.from_dict(document.get("spec", document) if isinstance(document, dict) else document)


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SpecError(f"{where}: not valid JSON ({error})") from None
