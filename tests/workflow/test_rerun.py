"""What one call of the workflow brings up to date, in a tiny configuration, with and without a reference."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from highways import record, weights
from projects import ROOT, Project

pytestmark = pytest.mark.dag

DATA = "fashion_mnist_excerpt"
RATES = (1.0e-3, 3.0e-3)


def depth(*, name: str = "depth", seeds: tuple[int, ...] = (0, 1), rates: tuple[float, ...] = RATES) -> list[dict]:
    """The one experiment: PC, and backprop with a choice among learning rates."""
    block = {"name": name, "methods": ["pc", "backprop"]}
    block["cells"] = {"dataset": DATA, "depth": 4, "seeds": list(seeds)}
    block["select"] = {"methods": "backprop", "among": {"learning.lr": list(rates)}, "seeds": [0]}
    return [block]


TINY = {
    "pathvars": {"results": "results/tiny"},
    "training": {"epochs": 1},
    "propagation": None,
    "experiments": depth(),
}
PC = f"depth/{DATA}/L004/pc"
BP = f"depth/{DATA}/L004/backprop"
WAITS = f"{BP}/selected/seed1"
ALL = {f"{PC}/seed0", f"{PC}/seed1", f"{BP}/lr0.001/seed0", f"{BP}/lr0.003/seed0", WAITS}
TABLE = ("--configfile", "tiny.yaml", "--", "table_depth")


def configure(project: Project, **changes) -> None:
    (project.folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY, **changes}), encoding="utf-8")


def trained(plan: dict[str, list[str]]) -> set[str]:
    return {what.removesuffix(" at the chosen settings") for what in plan.get("training", [])}


@pytest.fixture(scope="module")
def ready(tmp_path_factory) -> Project:
    """The project after one run of the tiny table."""
    done = Project(tmp_path_factory.mktemp("tiny") / "project")
    configure(done)
    done.snakemake(*TABLE)
    return done


@pytest.fixture
def tiny(ready, tmp_path) -> Project:
    copy = object.__new__(Project)
    copy.folder = tmp_path / "project"
    shutil.copytree(ready.folder, copy.folder, symlinks=True)
    return copy


def out(project: Project, path: str) -> Path:
    return project.folder / f"results/tiny/runs/{path}.json"


def test_data_that_are_checked_again_and_a_kernel_that_is_built_again_train_nothing(tiny):
    """A dry run lists every training that waits for them; the call itself trains only what is missing."""
    shutil.rmtree(tiny.folder / "results/tiny/prepared")
    out(tiny, f"{PC}/seed1").unlink()
    kept = {path: out(tiny, path).read_bytes() for path in ALL - {f"{PC}/seed1"}}
    tiny.snakemake(*TABLE)
    assert {path: out(tiny, path).read_bytes() for path in kept} == kept
    assert out(tiny, f"{PC}/seed1").exists()


def test_a_change_of_the_check_and_of_a_method_in_one_pull_trains_the_method(tiny):
    tiny.edit("workflow/rules/prepare.smk", "highways data {wild", "highways  data {wild")
    tiny.edit("src/highways/methods/pc.py", "Gradient(weights, logits,", "Gradient(weights, 1 * logits,")
    old = {path: out(tiny, path).read_bytes() for path in ALL}
    tiny.snakemake(*TABLE)
    changed = {path for path in ALL if out(tiny, path).read_bytes() != old[path]}
    assert changed == {path for path in ALL if path.startswith(PC)}
    run = tiny.snakemake("--dry-run", *TABLE)
    assert "Nothing to be done" in run.stdout + run.stderr


def test_a_change_of_the_analysis_makes_the_table_again_and_trains_nothing(tiny):
    tiny.edit("src/highways/analysis/tables/accuracy.py", '"""', '"""Edited. ')
    assert set(tiny.plan(*TABLE)) == {"table:"}


def test_a_job_that_is_called_again_keeps_its_record(tiny):
    """As after a Snakemake that ended before its job wrote the record."""
    written = out(tiny, f"{PC}/seed0").read_bytes()
    tiny.snakemake("--configfile", "tiny.yaml", "--force", "--", f"results/tiny/runs/{PC}/seed0.json")
    assert out(tiny, f"{PC}/seed0").read_bytes() == written


def test_weights_are_kept_beside_records_that_stay_as_they_are(tiny):
    """Only `keep_weights: true` with missing weights trains a run again; its record stays as it is."""
    written = {path: out(tiny, path).read_bytes() for path in ALL}
    configure(tiny, keep_weights=True)
    assert trained(tiny.plan(*TABLE)) == ALL
    out(tiny, f"{PC}/seed1").unlink()
    tiny.snakemake(*TABLE)
    for path in ALL:
        about, arrays = weights.read(out(tiny, path).with_suffix(".npz"))
        assert about.is_of(record.read(out(tiny, path)))
        assert "w_in" in arrays
        assert path == f"{PC}/seed1" or out(tiny, path).read_bytes() == written[path]
    for kept in (True, False):
        configure(tiny, keep_weights=kept)
        assert trained(tiny.plan(*TABLE)) == set()
    out(tiny, f"{PC}/seed0").with_suffix(".npz").unlink()
    assert trained(tiny.plan(*TABLE)) == set()
    configure(tiny, keep_weights=True)
    assert trained(tiny.plan(*TABLE)) == {f"{PC}/seed0"}


def test_records_of_the_reference_are_not_trained_for_their_weights(tiny):
    from highways.collection import index

    shutil.copytree(tiny.folder / "results/tiny", tiny.folder / "results/reference")
    index(tiny.folder / "results/reference").write()
    shutil.rmtree(tiny.folder / "results/tiny/runs")
    configure(tiny, records="reference", keep_weights=True, experiments=depth(seeds=(0, 1, 2)))
    assert trained(tiny.plan(*TABLE)) == {f"{PC}/seed2", f"{BP}/selected/seed2"}


def test_the_reference_serves_what_is_of_its_very_settings(tiny):
    """It serves records and the choice among the same candidates; the rest is trained, nothing is copied."""
    from highways.collection import index

    reference = tiny.folder / "results/reference"
    shutil.move(tiny.folder / "results/tiny/runs", reference / "runs")
    shutil.move(tiny.folder / "results/tiny/selections", reference / "selections")
    index(reference).write()
    shutil.rmtree(tiny.folder / "results/tiny")
    shutil.rmtree(tiny.folder / ".snakemake")
    configure(tiny)
    assert trained(tiny.plan(*TABLE)) == ALL  # `own` is the default
    configure(tiny, records="reference", experiments=depth(name="renamed"))
    tiny.snakemake(*TABLE[:3], "table_renamed")
    assert not (tiny.folder / "results/tiny/runs").exists()
    table = (tiny.folder / "results/tiny/tables/renamed.md").read_text(encoding="utf-8")
    assert "5 of 5 records come from results/reference." in table
    assert "not run" not in table
    configure(tiny, records="reference", experiments=depth(seeds=(0, 1, 2)))
    todo = tiny.plan(*TABLE)
    assert trained(todo) == {f"{PC}/seed2", f"{BP}/selected/seed2"}
    assert "choosing" not in todo
    configure(tiny, records="reference", experiments=depth(rates=(1e-3, 3e-3, 1e-2)))
    todo = tiny.plan(*TABLE)
    assert trained(todo) == {f"{BP}/lr0.01/seed0", WAITS}
    assert len(todo["choosing"]) == 1
    configure(tiny, records="reference", training={"epochs": 2})
    assert trained(tiny.plan(*TABLE)) == ALL


@pytest.mark.parametrize("name", ["a {project}", "{a}"])
def test_a_project_runs_in_a_folder_with_braces(project, tmp_path, name):
    project.folder = project.folder.rename(tmp_path / name)
    configure(project)
    project.snakemake("--configfile", "tiny.yaml", "--", f"results/tiny/runs/{BP}/lr0.001/seed0.json")
    assert record.read(out(project, f"{BP}/lr0.001/seed0"))["status"] == "ok"


def test_it_runs_from_another_directory(project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    start = ["-s", str(project.folder / "Snakefile"), "-d", str(elsewhere)]
    target = f"results/smoke/runs/{BP}/lr0.001/seed0.json"
    home, project.folder = project.folder, elsewhere
    for profile in (str(home / "profiles/smoke"), "smoke"):
        project.snakemake(*start, "--workflow-profile", profile, "-n", "--", target, PYTHONPATH=str(home / "src"))
    project.snakemake(*start, "--workflow-profile", profile, "--", target, PYTHONPATH=str(home / "src"))
    assert (elsewhere / target).exists()
    assert not (home / "results").exists()


def test_a_profile_that_is_none_stops_in_one_line(project):
    run = project.snakemake("--workflow-profile", "profiles/smok", "--dry-run", "--cores", "1", check=False)
    assert run.returncode != 0
    assert (
        "there is no profile profiles/smok; it takes default, slurm, slurm_gpu, smoke" in run.stderr + run.stdout
    )
    assert "Traceback" not in run.stderr


def test_a_report_after_a_part_of_the_run_has_that_part(tiny):
    tiny.snakemake(*TABLE[:2], "--report", "own.html", "--", "table_depth")
    assert "depth.html" in (tiny.folder / "own.html").read_text(encoding="utf-8")


def test_nothing_that_is_committed_is_a_symbolic_link():
    """The profiles must survive a zip archive, which may hold no links."""
    parts = ("Snakefile", "config.yaml", "profiles", "workflow", "src", "tests", "docs")
    found = [path for part in parts for path in [ROOT / part, *(ROOT / part).rglob("*")] if path.is_symlink()]
    assert found == []
    assert json.dumps(yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text(encoding="utf-8")))
