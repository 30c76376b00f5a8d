"""The project in working copies: fresh, or after a complete smoke run."""

import shutil

import pytest

from projects import SMOKE, Project


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
