"""Ctrl-C before there is anything to save: one line, the exit code of the signal, no traceback."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "highways", "train"]
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
    """SIGINT 0.3, 0.8 and 1.5 s after the start of the process."""
    for tenths in (3, 8, 15):
        out = tmp_path / f"{tenths}.json"
        run = [*COMMAND, "--spec", tiny(epochs=100).to_json(), "--out", str(out), "--quiet"]
        with subprocess.Popen(run, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
            time.sleep(tenths / 10)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
        assert process.returncode == 130
        assert "Traceback" not in said
        assert said.startswith("highways: stopped by SIGINT")
        assert len(said.splitlines()) == 1
