"""A copy of the project in which the workflow can run without touching this checkout."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from projects import copy_project

SMOKE = ["--workflow-profile", "workflow/profiles/smoke", "--cores", "2"]


class Project:
    """A working copy with no results; `snakemake` runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)

    def snakemake(
        self, *arguments: str, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        run = subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        if check:
            assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]
        return run

    def plan(self, *arguments: str) -> dict[str, list[str]]:
        """What a dry run would do: rule name to the first outputs of its jobs."""
        run = self.snakemake("--dry-run", *arguments)
        jobs: dict[str, list[str]] = {}
        for reason in re.findall(r"^Job \d+: (.*)$", run.stdout + run.stderr, re.MULTILINE):
            kind, _, what = reason.partition(" ")
            jobs.setdefault(kind, []).append(what)
        return jobs

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.folder / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture(scope="session")
def smoke(tmp_path_factory) -> Project:
    """The project after a complete smoke run."""
    done = Project(tmp_path_factory.mktemp("smoke") / "project")
    done.snakemake(*SMOKE)
    return done


@pytest.fixture
def finished(smoke, tmp_path) -> Project:
    """A copy of the smoke run, times kept, that a test may change."""
    copy = object.__new__(Project)
    copy.folder = tmp_path / "project"
    shutil.copytree(smoke.folder, copy.folder, symlinks=True)
    return copy
