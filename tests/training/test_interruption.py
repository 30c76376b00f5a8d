"""Ctrl-C before there is anything to save: one line, the exit code of the signal, no traceback."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# The imports at which the signal arrives: of the package, of torch, and of parts of the training.
MOMENTS = ("highways.cli.shared", "torch", "highways.inference", "highways.data", "highways.training.diagnostics")
# The command, which gets a signal so many seconds after that import begins; without a delay, within the import.
SIGNALLED = """
import os, runpy, sys, threading
moment, signum, delay, *arguments = sys.argv[1:]
class Moment:
    def find_spec(self, name, path, target=None):
        if name == moment:
            send = os.getpid(), int(signum)
            threading.Timer(float(delay), os.kill, send).start() if float(delay) else os.kill(*send)
sys.meta_path.insert(0, Moment())
sys.argv = ["highways", *arguments]
runpy.run_module("highways", run_name="__main__")
"""


def signalled(
    spec, out: Path, moment: str, signum: int, *options: str, delay: float = 0.0
) -> subprocess.CompletedProcess[str]:
    """Train the spec in a process of its own, which gets the signal at that import or some seconds after it."""
    arguments = ["train", "--spec", spec.to_json(), "--out", str(out), *options]
    return subprocess.run(
        [sys.executable, "-c", SIGNALLED, moment, str(int(signum)), str(delay), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_during_an_import_ends_the_command_in_one_line(tiny, tmp_path: Path, moment, signum, code):
    out = tmp_path / "r.json"
    run = signalled(tiny(), out, moment, signum)
    assert run.returncode == code
    name = signal.Signals(signum).name
    assert run.stderr == f"highways: stopped by {name} before there was anything to save\n"
    assert not out.exists()


def test_ctrl_c_at_any_time_of_the_first_seconds_says_so(tiny, tmp_path):
    """From the import of the command's code until the training runs."""
    for seconds in (0.0, 0.3, 0.8, 1.5):
        spec, out = tiny(epochs=1000), tmp_path / "r.json"
        run = signalled(spec, out, MOMENTS[0], signal.SIGINT, "--quiet", delay=seconds)
        assert run.returncode == 130
        assert re.fullmatch(r"highways: stopped by SIGINT.*\n", run.stderr)
