"""The SLURM profile on a real SLURM: one node, brought up for these tests and ended after them."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from clusters import LONG, PROFILE, Project, bring_up

from highways import record
from highways.progress import heartbeat_path
from highways.train import checkpoint_path
from projects import ROOT

pytestmark = [pytest.mark.dag, pytest.mark.slurm]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Path]:
    yield from bring_up(tmp_path_factory.mktemp("slurm"), "none")


def until(seconds: float, condition, what: str):
    """Wait for a condition to give something; what it gives."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {what}")


def running() -> list[str]:
    """The jobs that run."""
    return subprocess.run(["squeue", "-h", "-t", "R", "-o", "%i"], capture_output=True, text=True).stdout.split()


def queued() -> list[str]:
    """All jobs that have not ended."""
    states = "PD,R,CG,S,CF"
    return subprocess.run(
        ["squeue", "-h", "-t", states, "-o", "%i"], capture_output=True, text=True
    ).stdout.split()


def trained(project: Project, epochs: int = 1):
    """Whether the long run has done so many epochs."""
    try:
        beat = yaml.safe_load(heartbeat_path(project.out(LONG)).read_text())
    except (OSError, yaml.YAMLError):
        return False
    return bool(beat) and beat["epoch"] > epochs


@pytest.fixture
def long_run(cluster, tmp_path) -> Project:
    """A project with a run of some fifteen seconds."""
    training = {
        **yaml.safe_load((ROOT / "workflow/profiles/smoke/smoke.yaml").read_text())["training"],
        "epochs": 60,
    }
    return Project(tmp_path / "project", training=training)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> dict:
    """The record of that run, without SLURM and without a break."""
    training = {
        **yaml.safe_load((ROOT / "workflow/profiles/smoke/smoke.yaml").read_text())["training"],
        "epochs": 60,
    }
    project = Project(tmp_path_factory.mktemp("unbroken") / "project", training=training)
    local = ["--cores", "1", "--configfile", "workflow/profiles/smoke/smoke.yaml", "part.yaml"]
    done = project.snakemake("--", f"results/smoke/runs/{LONG}.json", profile=local)
    assert done.returncode == 0, done.stderr[-3000:]
    return record.comparable(record.read(project.out(LONG)))


def target() -> tuple[str, ...]:
    return ("--", f"results/smoke/runs/{LONG}.json")


def test_a_sweep_gives_the_records_of_a_local_run(cluster, tmp_path):
    cut = {"depths": [4], "learning_rate_sweep": {"learning_rates": [1.0e-3, 3.0e-3]}, "seeds": [0]}
    project, local = Project(tmp_path / "slurm", **cut), Project(tmp_path / "local", **cut)
    done = project.snakemake("--", "table_depth")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    there = [part for part in PROFILE if "slurm" not in part and part != "2"]
    plain = ["--workflow-profile", "workflow/profiles/default", *there[1:]]
    done = local.snakemake("--", "table_depth", profile=plain)
    assert done.returncode == 0, done.stderr[-4000:]
    names = sorted(path.relative_to(local.folder) for path in local.folder.rglob("results/smoke/runs/**/*.json"))
    assert len(names) == 4
    for name in names:
        assert record.comparable(record.read(project.folder / name)) == record.comparable(
            record.read(local.folder / name)
        )
    table = "results/smoke/tables/depth.csv"
    assert (project.folder / table).read_text() == (local.folder / table).read_text()
    # Finding the data and building the kernel are done where Snakemake runs: no job for them.
    assert (cluster / "jobs.txt").read_text().count("JobId=") == 4 + 1


def test_a_failing_run_is_tried_as_often_as_the_profile_says(long_run):
    profile = yaml.safe_load((ROOT / "workflow/profiles/slurm/config.yaml").read_text())
    file = long_run.folder / "src/highways/cli/train.py"
    tried = long_run.folder / "tried.txt"
    fail = f"    with open({str(tried)!r}, 'a') as file:\n        file.write('x')\n    return 1\n"
    file.write_text(re.sub(r"(def _train\(.*\n)", lambda match: match.group(1) + fail, file.read_text()))
    done = long_run.snakemake(*target())
    assert done.returncode != 0
    assert len(tried.read_text()) == profile["retries"] + 1
    assert queued() == []


def test_a_cancelled_job_is_noticed(long_run):
    process = long_run.start("--retries", "0", *target())
    job = until(60, lambda: trained(long_run) and running(), "the run trains")
    subprocess.run(["scancel", *job], check=True)
    assert process.wait(90) != 0
    assert "CANCELLED" in long_run.log()
    assert queued() == []


def test_a_requeued_job_goes_on_where_it_was(long_run, unbroken):
    process = long_run.start("--retries", "0", *target())
    (job,) = until(60, lambda: trained(long_run, 3) and running(), "the run trains")
    subprocess.run(["scontrol", "requeue", job], check=True)
    until(30, lambda: checkpoint_path(long_run.out(LONG)).exists(), "a checkpoint")
    assert process.wait(150) == 0, long_run.log()[-3000:]
    _went_on(long_run, unbroken)


def test_a_job_out_of_time_goes_on_in_its_next_attempt(long_run, unbroken):
    process = long_run.start(*target())
    (job,) = until(60, lambda: trained(long_run, 3) and running(), "the run trains")
    subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=1"], check=True)
    assert process.wait(200) == 0, long_run.log()[-3000:]
    _went_on(long_run, unbroken)


def _went_on(project: Project, unbroken: dict) -> None:
    found = record.read(project.out(LONG))
    assert found["timing"]["attempts"] == 2
    assert record.comparable(found) == unbroken
    assert not checkpoint_path(project.out(LONG)).exists()


def test_after_an_interrupt_no_job_is_left(long_run):
    process = long_run.start(*target())
    until(60, lambda: trained(long_run) and running(), "the run trains")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    until(30, lambda: not queued(), "no job is left")


def test_two_runs_and_one_gpu_run_one_after_the_other(cluster, tmp_path):
    project = Project(tmp_path / "project")
    before = (cluster / "jobs.txt").read_text().count("JobId=") if (cluster / "jobs.txt").exists() else 0
    paths = [f"results/smoke/runs/{LONG.removesuffix('0')}{seed}.json" for seed in (0, 1)]
    done = project.snakemake("--set-resources", "train:gpu=1", "--", *paths)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (cluster / "jobs.txt").read_text().splitlines()[before:]
    times = sorted(
        tuple(
            datetime.fromisoformat(re.search(rf"{key}=(\S+)", line).group(1)) for key in ("StartTime", "EndTime")
        )
        for line in lines
    )
    assert len(times) == 2
    assert times[0][1] <= times[1][0]
