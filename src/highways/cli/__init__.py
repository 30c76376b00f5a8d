"""The command line: the workflow calls this and nothing else."""

import argparse
import io
import os
import re
import sys

from highways import __version__
from highways.cli.analysis import add_analysis
from highways.cli.build import add_build
from highways.cli.bundle import add_bundle
from highways.cli.data import add_data
from highways.cli.evaluate import add_evaluate
from highways.cli.plan import add_cost, add_status
from highways.cli.propagate import add_propagate, add_snapshots
from highways.cli.records import add_records
from highways.cli.report import add_report
from highways.cli.train import add_profile, add_train
from highways.errors import UserError
from highways.files import short

EXIT_CODES = """exit codes:
  0    done
  1    bad input, or a file that cannot be read or written; one line says which and what to do
  2    wrong use of the command line
  3    status: some runs are not finished
  4    verdict --strict: a claim that held no longer does
  5    evaluate: another accuracy than the record's
  130  interrupted by Ctrl-C (143: by SIGTERM); a checkpoint was written, the same command resumes"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    _settle_surroundings()
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except UserError as error:
        print(f"highways: error: {short(' '.join(str(error).split()), 2000)}", file=sys.stderr)
    except ModuleNotFoundError as error:
        what = "it comes with pip install 'highways[workflow]'; training alone needs torch and numpy only"
        print(f"highways: error: this needs {error.name}: {what}", file=sys.stderr)
    except UnicodeDecodeError as error:
        print(f"highways: error: a file that should hold text does not ({error})", file=sys.stderr)
    except MemoryError as error:
        print(f"highways: error: out of memory ({error})", file=sys.stderr)
    except RuntimeError as error:  # what torch raises when it is out of memory
        if not re.search("allocate memory|out of memory", str(error)):
            raise
        print(f"highways: error: out of memory ({str(error).splitlines()[0]})", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        sys.stderr.close()
    except OSError as error:
        where = f"{short(str(error.filename), 1000)}: " if error.filename else ""
        print(f"highways: error: {where}{error.strerror or error}", file=sys.stderr)
    return 1


def _settle_surroundings() -> None:
    """Make commands independent of the matplotlib backend and the encoding that the terminal sets."""
    os.environ.pop("MPLBACKEND", None)  # figures are files; a notebook's backend need not be installed here
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not every encoding has the letter alpha


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="highways",
        description="Train deep predictive coding networks and rebuild the tables and figures of the paper.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"highways {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_train(commands)
    add_evaluate(commands)
    add_profile(commands)
    add_propagate(commands)
    add_snapshots(commands)
    add_data(commands)
    add_build(commands)
    add_bundle(commands)
    add_status(commands)
    add_cost(commands)
    add_records(commands)
    add_analysis(commands)
    add_report(commands)
    return parser
