"""A private SLURM cluster, and a copy of the project to run there."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from projects import ROOT, copy_project, package_of

CLUSTER = Path(__file__).with_name("cluster.sh")
SMOKE = ROOT / "profiles/smoke/smoke.yaml"
CUT = ["--configfile", "profiles/smoke/smoke.yaml", "part.yaml"]
PROFILE = ["--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "2"]
PROFILE += ["--latency-wait", "20", *CUT]
LOCAL = ["--cores", "1", *CUT]
LONG = "depth/fashion_mnist_excerpt/L008/hep/seed0"


def _missing() -> str:
    """Why no cluster can be brought up here; empty where one can."""
    if os.geteuid() != 0:
        return "a test cluster needs root"
    if not (shutil.which("slurmctld") or shutil.which("apt-get")):
        return "SLURM is not installed, and there is no apt-get to install it with"
    if Path("/etc/slurm/slurm.conf").exists():
        return "/etc/slurm/slurm.conf belongs to another cluster"
    return ""


def bring_up(folder: Path, accounting: str) -> Iterator[Path]:
    """A SLURM cluster while the tests of a module run; a lock lets one cluster at a time run on a machine."""
    with (Path(tempfile.gettempdir()) / "highways-slurm.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield from _bring_up(folder, accounting)


def _bring_up(folder: Path, accounting: str) -> Iterator[Path]:
    if reason := _missing():
        pytest.skip(reason)
    environment = {**os.environ, "SLURM_TEST_DIR": str(folder)}
    started = subprocess.run(
        [CLUSTER, "start", accounting, "1"], env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    try:
        if started.returncode:  # for whatever reason; the summary of skipped tests shows it
            said = (started.stderr.strip() or started.stdout.strip()).splitlines()
            pytest.skip(f"no test cluster here: {said[-1] if said else started.returncode}")
        yield folder
    finally:
        subprocess.run([CLUSTER, "stop"], env=environment, check=True)
    left = [
        path.name for path in folder.glob("*.pid") if path.read_text(encoding="utf-8").strip() and _alive(path)
    ]
    assert left == [], f"daemons that did not end: {left}"


def _alive(pid_file: Path) -> bool:
    return Path(f"/proc/{pid_file.read_text(encoding='utf-8').strip()}").exists()


class Project:
    """A copy of the project; `changes` are merged over its smoke configuration."""

    def __init__(self, folder: Path, **changes) -> None:
        self.folder = folder
        copy_project(folder)
        (folder / "part.yaml").write_text(yaml.safe_dump(changes), encoding="utf-8")
        self.environment = {**os.environ, **package_of(folder)}

    def command(self, *arguments: str, profile: list[str] = PROFILE) -> list[str]:
        # `profile` ends with a list of files, so the first of `arguments` must be an option or `--`.
        return [sys.executable, "-m", "snakemake", *profile, *arguments]

    def snakemake(self, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments, **options)
        return subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=400,
            encoding="utf-8",
            env=self.environment,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        with (self.folder / "snakemake.log").open("w", encoding="utf-8") as log:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                text=True,
                # In a shell's background tests ignore Ctrl-C, and their children would inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                encoding="utf-8",
                env=self.environment,
            )

    def out(self, path: str) -> Path:
        return self.folder / f"results/smoke/runs/{path}.json"

    def log(self) -> str:
        return (self.folder / "snakemake.log").read_text(encoding="utf-8")
