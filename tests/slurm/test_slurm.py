"""The SLURM profile on a real SLURM: one node, brought up for these tests and ended after them.

All scenarios are started at once, since most of their time is waiting; each test checks the result of one.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import LOCAL, LONG, SMOKE, Project, bring_up

from highways import record
from highways.training.loop import checkpoint_path
from highways.training.progress import heartbeat_path
from projects import ROOT, until

pytestmark = [pytest.mark.dag, pytest.mark.slurm]

TARGET = ("--", f"results/smoke/runs/{LONG}.json")
# A run of some fifteen seconds.
TRAINING = {"training": {**yaml.safe_load(SMOKE.read_text(encoding="utf-8"))["training"], "epochs": 60}}
# Four runs: two of PC and HEP, and two learning rates of backprop.
SWEEP = {
    "experiments": [
        {
            "name": "depth",
            "cells": {"dataset": "fashion_mnist_excerpt", "depth": 4, "seeds": [0]},
            "methods": ["pc", "hep", "backprop"],
            "select": {"methods": "backprop", "among": {"learning.lr": [1.0e-3, 3.0e-3]}, "seeds": [0]},
        }
    ]
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Path]:
    yield from bring_up(tmp_path_factory.mktemp("slurm"), "none")


@pytest.fixture(scope="module")
def scenarios(cluster, tmp_path_factory) -> Iterator[dict[str, "Future[Any]"]]:
    """A future for the result of every scenario, by name."""
    folder = tmp_path_factory.mktemp("projects")

    def project(name: str, **changes: Any) -> Project:
        return Project(folder / name, **(changes or TRAINING))

    with ThreadPoolExecutor() as pool:
        yield {
            "unbroken": pool.submit(unbroken, project("unbroken")),
            "cancelled": pool.submit(cancelled, project("cancelled")),
            "requeued": pool.submit(requeued, project("requeued")),
            "out of time": pool.submit(out_of_time, project("out_of_time")),
            "interrupted": pool.submit(interrupted, project("interrupted")),
            "failing": pool.submit(failing, project("failing")),
            "sweep": pool.submit(sweep, project("sweep", **SWEEP), project("local", **SWEEP)),
            "gpu": pool.submit(gpu, project("gpu", records="own")),
        }


def jobs(project: Project, states: str = "R") -> list[str]:
    """The jobs of a project in these states: by default those that run."""
    listed = subprocess.run(
        ["squeue", "-h", "-t", states, "-o", "%i %Z"], capture_output=True, text=True, encoding="utf-8"
    ).stdout
    pairs = [line.split(maxsplit=1) for line in listed.splitlines()]
    return [job for job, folder in pairs if folder == str(project.folder)]


def unfinished(project: Project) -> list[str]:
    return jobs(project, "PD,R,CG,S,CF")


def beat(project: Project) -> dict[str, Any]:
    """The last heartbeat of the long run; empty before the first."""
    try:
        return yaml.safe_load(heartbeat_path(project.out(LONG)).read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError):
        return {}


def job_in(project: Project, epochs: int) -> str:
    """The job of the long run, once it has done so many epochs."""

    def found() -> list[str]:
        return jobs(project) if beat(project).get("epoch", 0) > epochs else []

    (job,) = until(found, f"{project.folder.name} has trained {epochs} epochs")
    return job


def unbroken(project: Project) -> dict[str, Any]:
    done = project.snakemake(*TARGET, profile=LOCAL)
    assert done.returncode == 0, done.stderr[-3000:]
    return record.comparable(record.read(project.out(LONG)))


def cancelled(project: Project) -> tuple[int, str, list[str]]:
    process = project.start("--retries", "0", *TARGET)
    subprocess.run(["scancel", job_in(project, 1)], check=True)
    return process.wait(400), project.log(), unfinished(project)


def requeued(project: Project) -> dict[str, Any]:
    process = project.start("--retries", "0", *TARGET)
    subprocess.run(["scontrol", "requeue", job_in(project, 3)], check=True)
    until(checkpoint_path(project.out(LONG)).exists, "a checkpoint")
    assert process.wait(400) == 0, project.log()[-3000:]
    return record.read(project.out(LONG))


def out_of_time(project: Project) -> dict[str, Any]:
    process = project.start(*TARGET)
    job = job_in(project, 3)
    # The least limit is a minute, in which the run could end. At the limit SLURM wakes it up and ends it.
    os.kill(beat(project)["pid"], signal.SIGSTOP)
    subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=1"], check=True)
    assert process.wait(400) == 0, project.log()[-3000:]
    return record.read(project.out(LONG))


def interrupted(project: Project) -> int:
    process = project.start(*TARGET)
    job_in(project, 1)
    process.send_signal(signal.SIGINT)
    code = process.wait(300)
    until(lambda: not unfinished(project), "no job is left")
    return code


def failing(project: Project) -> tuple[int, int, list[str]]:
    """Exit code, attempts and jobs left of a training that fails at once and counts its attempts."""
    file, tried = project.folder / "src/highways/cli/train.py", project.folder / "tried.txt"
    fail = f"    with open({str(tried)!r}, 'a') as file:\n        file.write('x')\n    return 1\n"
    file.write_text(
        re.sub(r"(def _train\(.*\n)", lambda match: match.group(1) + fail, file.read_text(encoding="utf-8")),
        encoding="utf-8",
    )
    done = project.snakemake(*TARGET)
    return done.returncode, len(tried.read_text(encoding="utf-8")), unfinished(project)


def sweep(project: Project, local: Project) -> tuple[Project, Project]:
    done = project.snakemake("--", "table_depth")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    done = local.snakemake("--", "table_depth", profile=LOCAL)
    assert done.returncode == 0, done.stderr[-4000:]
    return project, local


def gpu(project: Project) -> Project:
    paths = [f"results/smoke/runs/{LONG.removesuffix('0')}{seed}.json" for seed in (0, 1)]
    done = project.snakemake("--set-resources", "train:gpu=1", "--", *paths)
    assert done.returncode == 0, done.stderr[-3000:]
    return project


def finished_jobs(cluster: Path, project: Project) -> list[str]:
    """SLURM's lines about the finished jobs of a project."""
    lines = (cluster / "jobs.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if f"WorkDir={project.folder} " in line]


def test_a_sweep_gives_the_records_of_a_local_run(scenarios, cluster):
    project, local = scenarios["sweep"].result()
    names = sorted(path.relative_to(local.folder) for path in local.folder.rglob("results/smoke/runs/**/*.json"))
    assert len(names) == 4
    for name in names:
        ours, theirs = (record.read(folder / name) for folder in (project.folder, local.folder))
        assert record.comparable(ours) == record.comparable(theirs)
    table = "results/smoke/tables/depth.csv"
    assert (project.folder / table).read_text(encoding="utf-8") == (local.folder / table).read_text(
        encoding="utf-8"
    )
    # Four runs and a table. The data are prepared where Snakemake runs, not in a job.
    assert len(finished_jobs(cluster, project)) == 4 + 1


def test_a_failing_run_is_tried_as_often_as_the_profile_says(scenarios):
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    code, tried, left = scenarios["failing"].result()
    assert code != 0
    assert tried == profile["retries"] + 1
    assert left == []


def test_a_cancelled_job_is_noticed(scenarios):
    code, log, left = scenarios["cancelled"].result()
    assert code != 0
    assert "CANCELLED" in log
    assert left == []


@pytest.mark.parametrize("scenario", ["requeued", "out of time"])
def test_a_broken_off_job_goes_on_where_it_was(scenarios, scenario):
    found = scenarios[scenario].result()
    assert found["timing"]["attempts"] == 2
    assert record.comparable(found) == scenarios["unbroken"].result()


def test_after_an_interrupt_no_job_is_left(scenarios):
    assert scenarios["interrupted"].result() != 0


def test_two_runs_and_one_gpu_run_one_after_the_other(scenarios, cluster):
    lines = finished_jobs(cluster, scenarios["gpu"].result())
    times = sorted(
        tuple(
            datetime.fromisoformat(re.search(rf"{key}=(\S+)", line).group(1)) for key in ("StartTime", "EndTime")
        )
        for line in lines
    )
    assert len(times) == 2
    assert times[0][1] <= times[1][0]
