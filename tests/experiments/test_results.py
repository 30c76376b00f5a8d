"""Records are found by their specification: first the user's own, then those of the reference."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from highways import record
from highways.analysis import commands
from highways.analysis.data import frame
from highways.cli import main
from highways.collection import collect, index, renew
from highways.errors import UserError
from highways.experiments import configuration, status
from highways.experiments.results import INDEX, Reference, Results, Sources
from highways.experiments.runs import Run
from highways.workflow import Workflow, check_profile, check_results, paths
from mappings import row

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results/reference"


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference.read(REFERENCE)


def trained(spec, path: Path) -> Path:
    assert main(["train", "--spec", spec.to_json(), "--out", str(path), "--quiet"]) == 0
    return path


@pytest.fixture
def runs(tiny) -> dict[str, Run]:
    """A sweep of two rates, a run that waits for the chosen rate, and a run outside the sweep."""
    spec = tiny("backprop", epochs=1)
    rates = [replace(spec, learning=replace(spec.learning, lr=lr)) for lr in (1e-3, 3e-3)]
    made = [Run(f"trial/sweep/lr{one.learning.lr}/seed0", one) for one in rates]
    waiting = replace(rates[0], seed=1)
    made.append(Run("trial/sweep/selected/seed1", waiting, selection="trial/sweep", sweep=tuple(made)))
    made.append(Run("trial/alone", tiny("backprop", epochs=1, seed=5)))
    return {run.path: run for run in made}


def test_the_committed_index_is_that_of_the_committed_files(reference):
    assert index(REFERENCE) == reference, "stale: highways collect results/reference --into results/reference"


def test_every_committed_record_and_choice_serves_the_configuration(reference, paper):
    runs = configuration.all_runs(paper)
    found = reference.runs(runs)
    assert len(found) > 800
    for path, file in found.items():
        if runs[path].selection is None:
            assert json.loads(file.read_text(encoding="utf-8"))["spec_hash"] == runs[path].spec.hash
    assert any(runs[path].selection for path in found)
    assert len(reference.propagations(configuration.all_propagations(paper))) > 50


def test_a_record_serves_whatever_path_a_configuration_gives_its_run(reference, paper):
    blocks = [{**block, "name": f"my_{block['name']}"} for block in paper["experiments"]]
    renamed = {**paper, "experiments": blocks}
    here, there = (configuration.all_runs(config) for config in (paper, renamed))
    assert not set(here) & set(there)
    found, again = reference.runs(here), reference.runs(there)
    specs = [
        {reference.records[file.relative_to(REFERENCE).as_posix()] for file in one.values()}
        for one in (found, again)
    ]
    assert specs[0] == specs[1]


def test_a_choice_counts_only_among_the_very_candidates(reference, paper):
    runs = configuration.all_runs(paper)
    name = "depth/mnist/L032/backprop"
    assert name in reference.chosen(runs)
    changed = configuration.all_runs(row(paper, "depth", 1, select__among={"learning.lr": [1e-4, 3e-4]}))
    assert f"{name}/selected/seed1" in changed
    assert name not in reference.chosen(changed)
    assert f"{name}/selected/seed1" not in reference.runs(changed)


def test_the_workflow_takes_the_reference_only_where_the_configuration_says_so(reference, paper):
    own = Workflow(paper, reference)
    kept = Workflow({**paper, "records": "reference"}, reference)
    assert all(path.startswith("<results>/runs/") for path in own.everything)
    known = set(reference.runs(kept.runs))
    for path, file in zip(kept.runs, kept.everything, strict=True):
        assert file.startswith("<results>/runs/") == (path not in known)
    name = "depth/mnist/L032/backprop"
    assert kept.selection(name) == str(REFERENCE / f"selections/{name}.json")
    assert own.selection(name) == f"<results>/selections/{name}.json"
    assert "<results>/tables/depth.md" in paths([own.items["table", "depth"]])
    assert set(kept.sources("table", "depth")) <= set(kept.everything)


def test_the_user_s_record_comes_first_and_a_bad_one_does_not_hide_the_reference(runs, tmp_path):
    run = runs["trial/alone"]
    kept = trained(run.spec, tmp_path / "kept.json")
    results = Results(tmp_path / "runs", {run.path: kept})
    own = tmp_path / f"runs/{run.path}.json"
    assert status.state(run, results)[0] == "reference"
    assert frame.of_reference([run], results) == (1, 1)
    assert status.state(run, tmp_path / "runs")[0] == "not run"
    own.parent.mkdir(parents=True)
    for text, called in (("{", "broken"), (kept.read_text(encoding="utf-8"), "done")):
        own.write_text(text, encoding="utf-8")
        state, remark = status.state(run, results)
        assert state == ("done" if called == "done" else "reference")
        assert called == "done" or called in remark
        assert frame.of_reference([run], results) == (int(called != "done"), 1)
    other = replace(run, spec=replace(run.spec, seed=6))
    assert status.state(other, Results(tmp_path / "runs", {run.path: kept}))[0] == "outdated"


def test_a_table_says_how_much_of_it_is_not_the_user_s_own(paper, reference, tmp_path):
    found = reference.runs(configuration.all_runs(paper))
    sources = Sources(Results(tmp_path, found), Results(tmp_path))
    table = commands.make_table("density", paper, sources)
    assert table.notes[-1].endswith("records come from results/reference.")
    kept, of = (int(word) for word in table.notes[-1].split(" records")[0].split(" of "))
    assert kept == of > 0
    alone = commands.make_table("density", paper, Sources(REFERENCE / "runs", REFERENCE / "propagation"))
    assert not any("come from" in note for note in alone.notes)
    assert table.frame.equals(alone.frame)


def test_records_of_any_name_are_collected_by_what_they_are_of(runs, tmp_path, tiny):
    source = tmp_path / "there"
    sweep = [run for run in runs.values() if run.selection is None and "sweep" in run.path]
    for number, run in enumerate([*sweep, runs["trial/alone"]]):
        trained(run.spec, source / f"{number}.json")
    for number, lr in enumerate((1e-3, 3e-3)):  # one of them has the rate that will be chosen
        waiting = runs["trial/sweep/selected/seed1"].spec.changed({"learning.lr": lr})
        trained(waiting, source / f"waiting{number}.json")
    trained(tiny("backprop", epochs=1, seed=9), source / "unknown.json")
    fates = collect(source, runs, tmp_path / "runs")
    assert [name for name, fate in fates.items() if fate == "taken"] == ["0", "1", "2"]
    assert fates["unknown"] == "left: the configuration does not ask for it"
    assert record.read(tmp_path / "runs/trial/alone.json")["spec_hash"] == runs["trial/alone"].spec.hash

    folder = tmp_path / "reference"
    fates = renew(source, runs, {}, folder)
    assert sum(fate == "taken" for fate in fates.values()) == 4
    found = Reference.read(folder)
    assert found == index(folder)
    assert set(found.runs(runs)) == set(runs)
    rates = {one.path: record.read(folder / f"runs/{one.path}.json")["validation_accuracy"] for one in sweep}
    best = max(sweep, key=lambda one: rates[one.path])
    chosen = found.chosen(runs)["trial/sweep"]
    assert chosen.settings == {"learning.lr": best.spec.learning.lr}
    assert set(renew(source, runs, {}, folder).values()) == {
        "left: there is one already",
        "left: the configuration does not ask for it",
    }
    # A record that was moved by hand is found once the index is renewed.
    shutil.move(folder / "runs/trial/alone.json", folder / "runs/moved.json")
    index(folder).write()
    assert Reference.read(folder).runs(runs)["trial/alone"] == folder / "runs/moved.json"


def test_a_damaged_index_says_how_to_renew_it(tmp_path):
    assert Reference.read(tmp_path) == Reference(tmp_path)
    for text in ("{", "[]", "{}", '{"records": 3, "traces": {}, "selections": {}}'):
        (tmp_path / INDEX).write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=f"highways collect {tmp_path} --into {tmp_path}"):
            Reference.read(tmp_path)


def test_a_record_is_renewed_only_where_its_specification_or_code_is_another(tiny, tmp_path, capsys):
    spec = tiny("backprop", epochs=1)
    out = trained(spec, tmp_path / "one.json")
    renew_it = ["train", "--out", str(out), "--quiet", "--renew", "--spec"]
    written = out.read_bytes()
    assert main([*renew_it, spec.to_json()]) == 0
    assert out.read_bytes() == written
    document = json.loads(written)
    document["provenance"]["training_code"] = "0" * 16
    out.write_text(json.dumps(document), encoding="utf-8")
    assert main([*renew_it, spec.to_json()]) == 0
    again = json.loads(out.read_text(encoding="utf-8"))
    assert again["provenance"]["training_code"] != "0" * 16
    assert again["epochs"] == document["epochs"]
    other = replace(spec, seed=4)
    assert main(["train", "--out", str(out), "--quiet", "--spec", other.to_json()]) == 1
    assert "is the record of another run" in capsys.readouterr().err
    assert main([*renew_it, other.to_json()]) == 0
    assert json.loads(out.read_text(encoding="utf-8"))["spec_hash"] == other.hash


def test_a_kernel_that_cannot_be_built_is_said_and_stops_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HIGHWAYS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["build", "--out", str(tmp_path / "kernel.txt")]) == 0
    assert "cannot be built" in capsys.readouterr().err
    assert "cannot be built" in (tmp_path / "kernel.txt").read_text(encoding="utf-8")
    assert main(["build"]) == 1


@pytest.mark.parametrize("name", ["smok", "profiles/smok"])
def test_a_profile_that_is_none_is_refused(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for given in (["--workflow-profile", name], [f"--workflow-profile={name}"]):
        with pytest.raises(UserError, match=f"no profile {name}; it takes default, slurm, slurm_gpu, smoke"):
            check_profile(["snakemake", *given], ROOT)
    for known in ("smoke", "none", str(ROOT / "profiles/smoke")):
        check_profile(["snakemake", "--workflow-profile", known], ROOT)
    check_profile(["snakemake"], ROOT)


def test_a_configuration_that_puts_that_of_its_profile_aside_is_refused(monkeypatch, tmp_path):
    """Else `--configfile` would replace the smoke configuration, and the whole paper would be planned."""
    monkeypatch.chdir(tmp_path)
    smoke = ["snakemake", "--workflow-profile", "smoke"]
    for given in (
        ["--configfile", "mine.yaml"],
        ["--configfiles", "a.yaml", "b.yaml"],
        ["--configfile=mine.yaml"],
    ):
        with pytest.raises(UserError, match=r"--configfile: it replaces .* smoke; give both: .*smoke.yaml"):
            check_profile([*smoke, *given], ROOT)
    check_profile([*smoke, "--configfile", str(ROOT / "profiles/smoke/smoke.yaml"), "mine.yaml"], ROOT)
    check_profile(["snakemake", "--workflow-profile", "slurm", "--configfile", "mine.yaml"], ROOT)


@pytest.mark.parametrize("results", ["results/reference", "./results/reference/", f"{ROOT}/results/reference"])
def test_results_do_not_go_into_the_reference(results):
    with pytest.raises(UserError, match=r"pathvars\.results"):
        check_results({"pathvars": {"results": results}})
    check_results({"pathvars": {"results": "results/mine"}})


def test_signs_that_snakemake_reads_in_a_path_are_refused(paper):
    with pytest.raises(UserError, match=r"pathvars\.results"):
        configuration.validate({**paper, "pathvars": {"results": "a{b}"}})


def test_a_training_is_told_of_the_kernel_of_its_depth_where_it_relaxes_with_one(paper):
    rows = [{**one, "kernel": "mixed"} if one["depth"] == 8 else one for one in paper["settings"]]
    flow = Workflow({**paper, "settings": rows}, Reference(Path()))
    told = {
        (run.spec.network.depth, run.spec.method): flow.kernel(run)
        for run in flow.runs.values()
        if run.path.startswith("depth/mnist/")
    }
    assert told[8, "hep"] == told[8, "pc"] == ["--kernel", "mixed"]
    assert told[8, "backprop"] == told[16, "hep"] == []


def test_a_record_of_another_kernel_than_asked_for_is_renewed(tiny, tmp_path, capsys):
    out = tmp_path / "r.json"
    arguments = ["train", "--out", str(out), "--quiet", "--renew", "--spec", tiny("pc", epochs=1).to_json()]
    assert main([*arguments, "--kernel", "batched"]) == 0
    assert main(arguments) == 0
    assert "is there already" in capsys.readouterr().err
    assert main([*arguments, "--kernel", "reference"]) == 0
    assert record.read(out)["provenance"]["kernel"] == "reference"
