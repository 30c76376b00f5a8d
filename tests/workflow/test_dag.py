"""The workflow runs what is missing or changed, and nothing else."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from highways import record
from highways.analysis.sections import items, sections
from highways.experiments import configuration
from highways.experiments import relaxations as plan
from highways.experiments.runs import Run
from highways.experiments.status import state
from highways.propagation import trace
from highways.specs.run import RunSpec
from projects import ROOT, SMOKE, Project, until

RUNS = "results/smoke/runs"
EXCERPT = "fashion_mnist_excerpt"
LONG = f"{RUNS}/depth/{EXCERPT}/L016/hep/seed0.json"
HEP_8 = f"depth/{EXCERPT}/L008/hep"

# Runs of each ablation in config.yaml: at its own cells, else at depth 16 on three seeds and depth 32 on one.
# A sweep counts every rate, and the chosen rate on the other seeds.
ABLATIONS = {
    **dict.fromkeys(("hep", "no_chain", "redraw", "dfa", "pc", "pc_4T"), 3 + 1),
    **dict.fromkeys(("euler", "euler_sum"), 2 * 3),
    **dict.fromkeys(("hep_plain", "pc_plain"), 2 * 3 + 1),
    "pc_rates": (5 - 1 + 2) + 5,  # the printed rate is among them: a run of "pc"
    "pc_rates_fresh": (5 + 3) + (5 + 1),
    "small_batches": 1,
    "backprop_fresh": 9 * (6 + 3),
    "backprop_above": 2,
    "no_exception_below": 1,
    "no_exception": 3,
    "short_schedule": 6 + 2,
}

# The table of depth on one data set at one depth.
PART = """
experiments:
  - name: depth
    cells: {dataset: mnist, depth: 4, seeds: [0, 1, 2]}
    methods: [pc, hep, backprop]
    select:
      methods: backprop
      among: {learning.lr: [1.0e-5, 3.0e-5, 1.0e-4, 3.0e-4, 1.0e-3, 3.0e-3]}
      seeds: [0]
"""

pytestmark = pytest.mark.dag


def smoke_config(folder: Path) -> dict:
    """config.yaml with the smoke configuration merged over it, as Snakemake does it."""
    import yaml
    from snakemake.utils import update_config

    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    update_config(config, yaml.safe_load((folder / "profiles/smoke/smoke.yaml").read_text(encoding="utf-8")))
    return configuration.validate(config)


def smoke_runs(project: Project) -> dict[str, Run]:
    return configuration.all_runs(smoke_config(project.folder))


def trained(plan: dict[str, list[str]]) -> set[str]:
    return {what.removesuffix(" at the chosen settings") for what in plan.get("training", [])}


def test_the_smoke_run_leaves_every_record_table_and_figure(smoke):
    runs = smoke_runs(smoke).values()
    assert {state(run, smoke.folder / RUNS)[0] for run in runs} <= {"done", "diverged"}
    results = smoke.folder / "results/smoke"
    found = {path.name for folder in ("tables", "figures") for path in (results / folder).iterdir()}
    made = {Path(file).name for item in items(smoke_config(smoke.folder)).values() for file in item.files}
    assert found == made | {f"verdict.{ending}" for ending in ("csv", "md", "html", "tex")}
    assert "does the paper hold?" in (results / "report.html").read_text(encoding="utf-8")
    assert (results / "figures/depth.png").read_bytes().startswith(b"\x89PNG")
    for name in ("depth", "conventions", "ablations", "baselines", "optimizer", "adam_steps"):
        assert "not run" not in (results / f"tables/{name}.md").read_text(encoding="utf-8")
    left = [path for path in results.rglob("*") if path.suffix in (".pt", ".tmp") or ".progress" in path.name]
    assert left == []
    assert {path.name for path in (smoke.folder / "results").iterdir()} == {"smoke"}


def test_snakemake_s_own_report_has_every_artefact_with_its_caption(finished):
    finished.snakemake(*SMOKE, "--report", "own.html")
    text = (finished.folder / "own.html").read_text(encoding="utf-8")
    for heading, own in sections(smoke_config(finished.folder)).items():
        assert heading in text
        for item in own:
            assert f"{item.name}.{'html' if item.kind == 'table' else 'png'}" in text
            assert item.title in text
    assert "Whether the paper holds, claim by claim" in text


def test_the_smoke_run_shows_what_the_readme_says(smoke):
    """To within three points, since another processor or the torch kernel gives other bits."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = dict(
        re.findall(r"(\d+\.\d) ± \d+\.\d % for (vanilla PC|HEP|BP)", text.partition("make smoke` installs")[2])
    )
    names = {"vanilla PC": "pc", "HEP": "hep", "BP": "backprop"}
    printed = {names[name]: float(number) for number, name in said.items()}
    table = pd.read_csv(smoke.folder / "results/smoke/tables/depth.csv").query("depth == 16").set_index("method")
    assert printed.keys() == set(names.values())
    for method, number in printed.items():
        assert table.loc[method, "mean"] == pytest.approx(number, abs=3.0), method


def test_the_selected_runs_took_the_rate_that_validated_best(smoke):
    runs = smoke_runs(smoke)
    for path, run in runs.items():
        if run.selection is not None:
            made = RunSpec.from_dict(record.read(smoke.folder / RUNS / f"{path}.json")["spec"])
            sweep: dict[bool, list[float]] = {True: [], False: []}
            for rival in run.sweep:
                took = all(rival.spec.setting(key) == made.setting(key) for key in run.swept)
                found = record.read(smoke.folder / RUNS / f"{rival.path}.json")
                sweep[took].append(found["validation_accuracy"])
            assert max(sweep[True]) >= max(sweep[False], default=0.0)


def test_a_finished_workflow_has_nothing_to_do(smoke):
    run = smoke.snakemake("--dry-run", *SMOKE)
    assert "Nothing to be done" in run.stdout + run.stderr


def test_one_deleted_record_runs_one_job(finished):
    (finished.folder / RUNS / f"{HEP_8}/seed1.json").unlink()
    assert trained(finished.plan(*SMOKE)) == {f"{HEP_8}/seed1"}


def test_one_changed_strength_runs_exactly_its_seeds(finished):
    finished.edit("profiles/smoke/smoke.yaml", "{depth: 16, alpha: 1.8,", "{depth: 16, alpha: 1.5,")
    deep = f"depth/{EXCERPT}/L016/hep"
    assert trained(finished.plan(*SMOKE)) == {f"{deep}/seed0", f"{deep}/seed1"}


def test_one_changed_learning_rate_runs_the_runs_that_use_it(finished):
    """The new runs have the paths of the old ones."""
    finished.edit("profiles/smoke/smoke.yaml", "steps: 20, lr: 2.0e-3", "steps: 20, lr: 1.0e-3")
    shallow = f"depth/{EXCERPT}/L004"
    paths = (f"{shallow}/pc", f"{shallow}/hep")
    table = {path for path in trained(finished.plan(*SMOKE)) if path.startswith("depth/")}
    assert table == {f"{path}/seed{seed}" for path in paths for seed in (0, 1)}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("src/highways/analysis/figures/accuracy.py", '"""', '"""Edited. '),
        ("src/highways/analysis/figures/accuracy.py", "import", "import json  # noqa\nimport"),
        ("src/highways/model/energy.py", "\nfrom typing", "\n# a comment\nfrom typing"),
        ("src/highways/training/loop.py", '"""The training loop', '"""The loop of training'),
        ("environment.yml", "python=3.11", "python=3.12"),
        ("src/highways/training/progress.py", "HEARTBEAT_SECONDS = 10.0", "HEARTBEAT_SECONDS = 9.0"),
    ],
)
def test_an_edit_that_changes_no_number_trains_nothing(finished, path, old, new):
    finished.edit(path, old, new)
    assert trained(finished.plan(*SMOKE)) == set()


def test_an_edit_of_the_equations_trains_everything_again(finished):
    finished.edit("src/highways/model/energy.py", "0.5 * error.hidden", "0.25 * error.hidden")
    assert trained(finished.plan(*SMOKE)) == set(smoke_runs(finished))


def test_an_edit_of_one_rule_trains_that_rule(finished):
    finished.edit("src/highways/methods/hep.py", "self.spec.highway.alpha *", "2 * self.spec.highway.alpha *")
    runs = smoke_runs(finished)
    again = {path for path, run in runs.items() if run.spec.method == "hep"}
    assert trained(finished.plan(*SMOKE)) == again


def test_after_a_touch_nothing_is_left_to_do(finished):
    shutil.rmtree(finished.folder / ".snakemake")
    for number, path in enumerate(sorted(finished.folder.rglob("*"))):
        os.utime(path, (time.time() - number,) * 2)
    finished.snakemake(*SMOKE, "--touch")
    run = finished.snakemake("--dry-run", *SMOKE)
    assert "Nothing to be done" in run.stdout + run.stderr


def test_other_epochs_train_everything_again_wherever_the_data_are(finished):
    part = finished.folder / "part.yaml"
    part.write_text("training: {epochs: 2}\ndata_dir: /elsewhere\n", encoding="utf-8")
    smoke = ("--configfile", "profiles/smoke/smoke.yaml", "part.yaml")
    asked = smoke_runs(finished)
    own = {path for path, run in asked.items() if run.spec.epochs == 3}  # the others have epochs of their own
    assert own <= trained(finished.plan(*smoke))
    todo = finished.plan(*smoke, "--", "propagation")
    assert len(todo["keeping"]) == 2
    moments = configuration.all_propagations(smoke_config(finished.folder))
    assert set(todo["propagating"]) == {path for path, one in moments.items() if one.trained}


def test_where_the_data_are_and_what_trains_re_run_nothing(finished):
    part = finished.folder / "part.yaml"
    part.write_text("data_dir: /elsewhere\ndevice: cuda\n", encoding="utf-8")
    todo = finished.plan("--configfile", "profiles/smoke/smoke.yaml", "part.yaml")
    assert not {"training", "choosing", "propagating", "keeping"} & set(todo)


def test_a_sweep_of_other_candidates_chooses_again(finished):
    runs = smoke_runs(finished)
    finished.edit(
        "profiles/smoke/smoke.yaml", "learning.lr: [1.0e-3, 3.0e-3, 1.0e-2]", "learning.lr: [3.0e-3, 2.0e-2]"
    )
    todo = finished.plan(*SMOKE)
    new = smoke_runs(finished)
    waiting = {path for path, run in new.items() if run.selection and run.selection.startswith("depth/")}
    assert trained(todo) == (set(new) - set(runs)) | waiting
    assert len(todo["choosing"]) == len(waiting)


def test_one_changed_step_size_relaxes_everything_again_and_trains_nothing(finished):
    finished.edit("profiles/smoke/smoke.yaml", "  step_size: 0.05\n  adam", "  step_size: 0.02\n  adam")
    todo = finished.plan(*SMOKE)
    assert trained(todo) == set()
    assert "keeping" not in todo
    wanted = configuration.all_propagations(smoke_config(finished.folder))
    assert {path for path in todo["propagating"] if path.startswith("paper/")} == {
        path for path, spec in wanted.items() if spec.network == "paper" and spec.run.inference is not None
    }


def test_a_missing_trace_of_a_trained_network_needs_its_weights(finished):
    shutil.rmtree(finished.folder / "results/smoke/snapshots")
    wanted = configuration.all_propagations(smoke_config(finished.folder))
    path = next(path for path, spec in wanted.items() if spec.trained and spec.run.method == "hep" and spec.epoch)
    (finished.folder / f"results/smoke/propagation/{path}.npz").unlink()
    todo = finished.plan(*SMOKE)
    assert path in todo["propagating"]
    assert all("/hep/" in one for one in todo["propagating"])
    assert len(todo["keeping"]) == 1
    assert "/hep/" in todo["keeping"][0]


def test_the_smoke_run_traces_the_weights_of_the_run_that_it_trained(smoke):
    """After training HEP's errors at the output are small; before it they are not."""
    config = smoke_config(smoke.folder)
    errors = {}
    for (method, epoch), (one,) in plan.training_moments(config).items():
        found = trace.read(smoke.folder / f"results/smoke/propagation/{one.path}.npz", one)
        errors[method, epoch] = found.errors[0, -1]
    last = max(config["propagation"]["during_training"]["epochs"])
    assert errors["pc", 0] == errors["hep", 0]
    assert errors["hep", last] < 0.5 * errors["hep", 0]
    for run in plan.trained_runs(config):
        folder = smoke.folder / f"results/smoke/snapshots/{run.path}"
        kept = record.read(folder / "training.json", whole=False)  # it stops at the last epoch that is traced
        of_table = record.read(smoke.folder / RUNS / f"{run.path}.json")
        assert kept["epochs"] == of_table["epochs"][: len(kept["epochs"])]


def test_a_new_seed_trains_only_what_is_new(finished):
    for _ in ("depth", "strength", "density"):
        finished.edit("profiles/smoke/smoke.yaml", "seeds: [0, 1]", "seeds: [0, 1, 2]")
    plan = finished.plan(*SMOKE)
    new = 3 * 3 + 3 + 2  # depths by methods, other strengths, other spacings
    assert {path.rpartition("/")[2] for path in trained(plan)} == {"seed2"}
    assert len(trained(plan)) == new
    assert "finding" not in plan


def test_the_smoke_plan_lists_only_smoke_jobs(project):
    plan = project.plan(*SMOKE)
    assert all("/fashion_mnist_excerpt/" in path for path in trained(plan))
    assert len(plan["training"]) == len(smoke_runs(project))


def test_the_paper_s_plan_lists_every_run_once(project):
    plan = project.plan()
    assert sorted(plan["finding"]) == ["and checking fashion_mnist", "and checking mnist"]
    assert len(plan["training"]) == len(configuration.all_runs(configuration.load(project.folder / "config.yaml")))
    assert not any("smoke" in path for path in trained(plan))


@pytest.mark.parametrize(
    ("target", "jobs"),
    [
        ("table_settings", 0),
        ("table_density", 6 * 3),
        ("figure_strength", 11),
        # Two data sets; PC and HEP on three seeds; backprop at six rates (three at depth 128), and on two
        # more seeds at the chosen rate.
        ("table_depth", 2 * (6 * (3 + 3) + 5 * (6 + 2) + (3 + 2))),
        ("table_ablations", sum(ABLATIONS.values())),
    ],
)
def test_a_named_target_needs_its_own_runs_alone(project, target, jobs):
    assert len(trained(project.plan(target))) == jobs


def test_a_named_target_whose_records_are_missing_trains_them(finished):
    for seed in (0, 1):
        (finished.folder / RUNS / f"{HEP_8}/seed{seed}.json").unlink()
    missing = {f"{HEP_8}/seed{seed}" for seed in (0, 1)}
    todo = finished.plan(*SMOKE, "--", "table_depth")
    assert trained(todo) == missing
    assert todo["table:"] == ["depth"]
    (finished.folder / "results/smoke/tables/depth.md").unlink()
    assert trained(finished.plan(*SMOKE, "--", "table_depth")) == missing
    assert trained(finished.plan(*SMOKE, "--", "report")) == missing


def test_a_part_of_the_paper_is_a_small_configuration(project):
    (project.folder / "part.yaml").write_text(PART, encoding="utf-8")
    plan = project.plan("--configfile", "part.yaml", "--", "table_depth")
    assert len(plan["training"]) == 3 + 3 + 6 + 2
    assert all("/L004/" in path for path in trained(plan))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("weight_decay: 1.0e-4", "weight_decay: 1e-4"), "training.weight_decay: '1e-4'"),
        (("data_dir: null", "data_dir: null\ncolour: red"), "colour"),
        (("depth: [4,", "depth: [1, 4,"), "no row for depth 1"),
        (("dataset: [mnist,", "dataset: [emnist,"), "'emnist'"),
        (("seeds: [0, 1, 2]", 'seeds: ["0", "1"]'), "use --configfile"),
    ],
)
def test_a_bad_configuration_stops_the_workflow_with_its_key(project, change, says):
    project.edit("config.yaml", *change)
    run = project.snakemake("--dry-run", check=False)
    assert run.returncode != 0
    assert says in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_a_missing_data_set_stops_its_runs_with_what_to_do(project, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    (project.folder / "part.yaml").write_text(f"{PART}data_dir: {empty}\n", encoding="utf-8")
    run = project.snakemake("--configfile", "part.yaml", "--", "table_depth", check=False)
    assert run.returncode != 0
    assert "6bbc9ace898e44ae57da46a324031adb" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert not (project.folder / "results/runs").exists()


def test_a_project_in_a_folder_with_a_space_runs(project, tmp_path):
    project.folder = project.folder.rename(tmp_path / "a project")
    smoke_record = f"{RUNS}/depth/{EXCERPT}/L004/backprop/lr0.001/seed0.json"
    project.snakemake(*SMOKE, "--", smoke_record)
    assert record.read(project.folder / smoke_record)["status"] == "ok"


def started(project: Project, target: str) -> "subprocess.Popen[bytes]":
    """Start Snakemake in its own session, and return once the run of `target` has its first checkpoint."""
    command = [sys.executable, "-m", "snakemake", *SMOKE, "--", target]
    log = project.folder / "log"
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command, cwd=project.folder, stdout=stream, stderr=stream, start_new_session=True
        )
    checkpoint = (project.folder / target).with_suffix(".checkpoint.pt")
    until(lambda: checkpoint.exists() or process.poll() is not None, "a checkpoint", seconds=120, every=0.05)
    assert process.poll() is None, log.read_text(encoding="utf-8")[-2000:]
    return process


def test_a_run_cut_off_with_the_workflow_resumes(project):
    """After kill -9 on Snakemake and its job the next start resumes to the record of an unbroken run."""
    process = started(project, LONG)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (project.folder / LONG).exists()
    project.snakemake(*SMOKE, "--unlock")
    project.snakemake(*SMOKE, "--", LONG)
    resumed = record.read(project.folder / LONG)
    assert resumed["timing"]["attempts"] == 2
    (project.folder / LONG).unlink()
    project.snakemake(*SMOKE, "--", LONG)
    unbroken = record.read(project.folder / LONG)
    assert unbroken["timing"]["attempts"] == 1
    assert record.comparable(resumed) == record.comparable(unbroken)


def test_a_record_that_was_written_after_the_end_of_snakemake_is_kept(project):
    """After kill -9 on Snakemake alone its job goes on, as jobs of a cluster do, and writes its record."""
    process = started(project, LONG)
    process.kill()
    process.wait()
    until((project.folder / LONG).exists, "a record", seconds=120, every=0.05)
    written = (project.folder / LONG).read_bytes()
    project.snakemake(*SMOKE, "--unlock")
    project.snakemake(*SMOKE, "--", LONG)
    assert (project.folder / LONG).read_bytes() == written


def test_status_and_cost_speak_of_the_same_runs(smoke):
    def highways(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "highways", *arguments, "--config", json.dumps(smoke_config(smoke.folder))],
            cwd=smoke.folder,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )

    status = highways("status", "--runs", RUNS)
    assert status.returncode == 0, status.stdout
    records = list((smoke.folder / RUNS).rglob("*.json"))
    assert status.stdout.splitlines()[-1].startswith(f"{len(records)} runs: ")
    assert "total" in highways("cost").stdout
    assert " 0 " in highways("cost", "--remaining", "--runs", RUNS).stdout.splitlines()[-2]
