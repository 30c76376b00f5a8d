"""The SLURM profile on a cluster with accounting."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import LONG, Project, bring_up

pytestmark = [pytest.mark.dag, pytest.mark.slurm]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Path]:
    yield from bring_up(tmp_path_factory.mktemp("accounting"), "dbd")


def test_a_run_is_charged_to_the_account_of_its_user(cluster, tmp_path):
    project = Project(tmp_path / "project")
    done = project.snakemake("--", f"results/smoke/runs/{LONG}.json")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    jobs = subprocess.run(
        ["sacct", "-n", "-X", "-P", "-o", "account,state"], capture_output=True, text=True, encoding="utf-8"
    ).stdout
    assert re.fullmatch(r"tests\|COMPLETED", jobs.strip()), jobs
