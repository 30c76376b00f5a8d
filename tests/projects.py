"""Copies of the project in which the workflow can run without touching this checkout."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "config.yaml", "environment.yml", "profiles", "src", "workflow")
SMOKE = ["--workflow-profile", "profiles/smoke", "--cores", "2"]

# Forks of a process that has imported Snakemake, which takes a second, but nothing of this project.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["snakemake.cli"])

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = 300, every: float = 0.3) -> T:
    """Wait until a condition gives a true value, and return it; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(every)
    raise AssertionError(f"not within {seconds:g} s: {what}")


def copy_project(folder: Path) -> None:
    """Copy what the workflow needs, without results, into a new folder."""
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_symlink():
            (folder / part).symlink_to(source.readlink())
        elif source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, folder / part, symlinks=True, ignore=ignore)
        else:
            shutil.copy2(source, folder / part)


def package_of(folder: Path) -> dict[str, str]:
    """Environment variables under which `highways` is the package of the copy in `folder`."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(folder / "src")}


def snakemake_main(arguments: list[str], folder: Path, environment: dict[str, str], said: list[Path]) -> None:
    """Run `python -m snakemake` in a folder, output and errors in the files `said`; needs its own process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in zip((1, 2), said, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.path[:0] = [str(folder), *environment["PYTHONPATH"].split(":")]
    sys.argv = ["snakemake", *arguments]
    from snakemake.cli import main

    main()


class Project:
    """A working copy with no results; `snakemake` runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)

    def snakemake(
        self, *arguments: str, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as scratch:
            said = [Path(scratch) / "out", Path(scratch) / "err"]
            everything = {**os.environ, **package_of(self.folder), **environment}
            process = FORKS.Process(target=snakemake_main, args=([*arguments], self.folder, everything, said))
            process.start()
            process.join()
            assert process.exitcode is not None
            out, err = (path.read_text(encoding="utf-8") for path in said)
        run = subprocess.CompletedProcess(["snakemake", *arguments], process.exitcode, out, err)
        if check:
            assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]
        return run

    def plan(self, *arguments: str) -> dict[str, list[str]]:
        """The jobs of a dry run: first word of the job's message ("training") to the rest of each message."""
        run = self.snakemake("--dry-run", *arguments)
        jobs: dict[str, list[str]] = {}
        for reason in re.findall(r"^Job \d+: (.*)$", run.stdout + run.stderr, re.MULTILINE):
            kind, _, what = reason.partition(" ")
            jobs.setdefault(kind, []).append(what)
        return jobs

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.folder / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new, 1), encoding="utf-8")
