"""Ctrl-C before there is anything to save: one line, the exit code of the signal, no traceback."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# The imports at which the signal arrives: of the package, of torch, and of parts of the training.
MOMENTS = ("highways.cli.shared", "torch", "highways.inference", "highways.data", "highways.training.diagnostics")
AT_IMPORT = """
import os, runpy, sys
moment, signum, *arguments = sys.argv[1:]
class Moment:
    def find_spec(self, name, path, target=None):
        if name == moment:
            os.kill(os.getpid(), int(signum))
sys.meta_path.insert(0, Moment())
sys.argv = ["highways", *arguments]
runpy.run_module("highways", run_name="__main__")
"""

AFTER_A_TIME = """
import os, runpy, signal, sys, threading
seconds, *arguments = sys.argv[1:]
class Clock:
    def find_spec(self, name, path, target=None):
        if name == "highways.cli.shared":
            threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGINT)).start()
sys.meta_path.insert(0, Clock())
sys.argv = ["highways", *arguments]
runpy.run_module("highways", run_name="__main__")
"""


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_during_an_import_ends_the_command_in_one_line(tiny, tmp_path: Path, moment, signum, code):
    out = tmp_path / "r.json"
    arguments = ["train", "--spec", tiny().to_json(), "--out", str(out)]
    run = subprocess.run(
        [sys.executable, "-c", AT_IMPORT, moment, str(int(signum)), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == code
    name = signal.Signals(signum).name
    assert run.stderr == f"highways: stopped by {name} before there was anything to save\n"
    assert not out.exists()


def test_ctrl_c_at_any_time_of_the_first_seconds_says_so(tiny, tmp_path):
    """From the import of the command's code until the training runs."""
    for seconds in (0.0, 0.3, 0.8, 1.5):
        arguments = ["train", "--spec", tiny(epochs=1000).to_json(), "--out", str(tmp_path / "r.json"), "--quiet"]
        run = subprocess.run(
            [sys.executable, "-c", AFTER_A_TIME, str(seconds), *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        assert run.returncode == 130
        assert re.fullmatch(r"highways: stopped by SIGINT.*\n", run.stderr)
