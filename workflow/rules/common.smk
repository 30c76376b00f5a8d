# Shared by the other files: the checked configuration, the runs it asks for, and the paths of their records.

import json
import shlex
import sys
from functools import cache
from pathlib import Path

SOURCE = Path(workflow.basedir) / "src"
sys.path.insert(0, str(SOURCE))

from snakemake.exceptions import WorkflowError
from snakemake.io import IOFile

from highways import config as configuration
from highways import config_files
from highways.analysis.sections import SECTIONS
from highways import controls, cost, provenance, readings, remedies, runs, status
from highways.errors import UserError
from highways.propagation import plan as propagation

# Jobs call the package of this checkout with the interpreter that runs Snakemake, or with that of the conda
# environment where one is asked for. The prefix is not part of what Snakemake compares, so another interpreter re-runs nothing.
CONDA = "conda" in {
    method.name.lower() for method in workflow.deployment_settings.deployment_method
}
PYTHON = "python" if CONDA else shlex.quote(sys.executable)
shell.prefix(
    f'highways() {{{{ PYTHONPATH={shlex.quote(str(SOURCE))} {PYTHON} -m highways "$@"; }}}}; '
)

# Snakemake has merged the user's files by now, as YAML reads them: here they are read strictly, and rows of settings
# that a list of the user's has replaced come back for the other depths.
try:
    for file in workflow.configfiles:
        config_files.read(file)
    config.update(config_files.completed(config))
    RUNS, PROPAGATIONS = configuration.expand(config)
except UserError as error:
    raise WorkflowError(f"configuration: {error}") from None

RESULTS = config.get("pathvars", {}).get("results", "results")
RUNS_FOLDER = f"{RESULTS}/runs"
TRACES_FOLDER = f"{RESULTS}/propagation"
TRAINED = propagation.trained_runs(config)
SNAPSHOT_OF = {run.spec: run.path for run in TRAINED}
PROPAGATION_CODE = {
    method: provenance.propagation_code(method)
    for method in {one.run.method for one in PROPAGATIONS.values()}
}
# The analysis takes seconds and is made anew with any change of the configuration; a training run has only its spec.
CONFIG = json.dumps(config, sort_keys=True)


def runs_folder(wildcards):
    return RUNS_FOLDER


def record(run):
    return f"{RUNS_FOLDER}/{run.path}.json"


def traces(wanted):
    return [f"{TRACES_FOLDER}/{one.path}.npz" for one in wanted]


def traces_folder(wildcards):
    return TRACES_FOLDER


def records(wanted):
    return [record(run) for run in wanted]


# Snakemake keeps no notes of a file that came with a clone, so it can tell neither its age nor its settings.
def came_with_a_clone(path):
    return Path(path).exists() and workflow.persistence.metadata(IOFile(path)) is None


# So it would keep what is not of the settings that are asked for, and nobody would know.
def refuse(path, settings):
    raise WorkflowError(
        f"{path} came with the clone and is of another {settings}; Snakemake would keep it. Send the results "
        "elsewhere (pathvars: {results: mine}), or delete what is outdated (docs/workflow.md, What re-runs)"
    )


@cache
def outdated(run):
    return (
        status.outdated(run, Path(RUNS_FOLDER))
        if came_with_a_clone(record(run))
        else []
    )


# A run's check of its data. A record that is there while the check is not came with a clone: it needs no data, and
# the check, once made, must not count as its new input.
def data_check(run):
    fixed = [
        key for key in outdated(run) if run.selection is None or key not in run.swept
    ]
    if fixed:
        refuse(record(run), ", ".join(fixed))
    check = f"{RESULTS}/data/{run.spec.dataset}.json"
    there = Path(record(run)).exists() and not Path(check).exists()
    return [] if there else ancient(check)


def snapshots(run):
    return [
        f"{RESULTS}/snapshots/{run.path}/epoch{epoch:02d}.npz"
        for epoch in config["propagation"]["during_training"]["epochs"]
    ]


def weights(one):
    return f"{RESULTS}/snapshots/{SNAPSHOT_OF[one.trained]}"


# Numpy, for the few parses that ask for a trace.
def of_other_settings(path, one):
    from highways.propagation.trace import is_of_other_settings

    return is_of_other_settings(path, one)


# As for runs: a trace that came with a clone needs neither data nor weights.
def trace_inputs(wildcards):
    one = PROPAGATIONS[wildcards.trace]
    needed = [f"{RESULTS}/data/{one.run.dataset}.json"]
    if one.trained is not None:
        needed.append(f"{weights(one)}/epoch{one.epoch:02d}.npz")
    (trace,) = traces([one])
    if came_with_a_clone(trace) and of_other_settings(Path(trace), one):
        refuse(trace, "specification")
    return [
        ancient(path)
        for path in needed
        if not (Path(trace).exists() and not Path(path).exists())
    ]


def selected(wildcards):
    return RUNS[f"{wildcards.selection}/selected/seed{wildcards.seed}"]


@cache
def sweep_of(selection):
    return runs.sweep_runs(RUNS.values(), selection)


def sweep(wildcards):
    return sweep_of(str(wildcards.selection))


def selection_file(selection):
    return f"{RESULTS}/selections/{selection}.json"


# The times of its inputs do not count for a file that came with a clone, unless its choice is to be made anew.
def kept(path, selection):
    choice = selection_file(selection)
    of_another_sweep = came_with_a_clone(choice) and status.selection_outdated(
        Path(choice), sweep_of(selection)
    )
    return came_with_a_clone(path) and not of_another_sweep


def sweep_records(wildcards):
    selection, wanted = str(wildcards.selection), records(sweep(wildcards))
    if kept(selection_file(selection), selection):
        return [ancient(path) for path in wanted]
    return wanted


def chosen(wildcards):
    run, path = selected(wildcards), selection_file(wildcards.selection)
    fits = kept(record(run), run.selection) and not outdated(run)
    return ancient(path) if fits else path


# What a choice depends on, besides the code.
def sweep_specs(wildcards):
    return [run.spec.hash for run in sweep(wildcards)]


# Taken once per method, not once per job: reading the modules is most of what a parse would cost.
CODE = {
    method: provenance.training_code(method)
    for method in {run.spec.method for run in RUNS.values()}
}


def code(run):
    return CODE[run.spec.method]


def device():
    return ["--device", config["device"]]


def data_folder():
    return [] if config["data_dir"] is None else ["--data-dir", config["data_dir"]]


# Twice the cost model and some minutes to start: a job that hits its limit resumes on the next attempt.
def runtime_minutes(run, attempt):
    return attempt * (5 + round(2 * cost.seconds(run.spec) / 60))


def memory_mb(run, attempt):
    return attempt * cost.memory_mb(run.spec)


# Tables and figures, with the runs behind each.
ARTEFACTS = {
    "table": {
        "depth": runs.table_runs,
        "density": runs.density_runs,
        "settings": lambda config: [],
        "conventions": readings.reading_runs,
        "controls": controls.control_runs,
        "remedies": remedies.remedy_runs,
        "predictions": remedies.remedy_runs,
    },
    "figure": {
        "depth": runs.table_runs,
        "density": runs.density_runs,
        "strength": runs.strength_runs,
        "training": runs.table_runs,
        "gradients": controls.gradient_runs,
        "remedies": remedies.remedy_runs,
        "remedy_gradients": remedies.remedy_runs,
        "scales": readings.finalist_runs,
        "architecture": lambda config: [],
    },
}
# The same for signal propagation, with the traces behind each.
TRACE_ARTEFACTS = {"table": propagation.TABLES, "figure": propagation.FIGURES}
ENDINGS = {"table": (".csv", ".md", ".html", ".tex"), "figure": (".png", ".pdf")}


# Artefacts share their runs: once per set of runs, not once per artefact.
@cache
def records_of(make):
    return records(make(config))


# Looked up when the artefact is made: of thousands of runs, every parse would expand them for all artefacts.
def sources(kind, name):
    def found(wildcards):
        if name in ARTEFACTS[kind]:
            return records_of(ARTEFACTS[kind][name])
        return traces(TRACE_ARTEFACTS[kind][name](config))

    return found


ALL_ARTEFACTS = [
    (kind, name)
    for kind in ENDINGS
    for name in (*ARTEFACTS[kind], *TRACE_ARTEFACTS[kind])
]


# What `snakemake --report` shows of an artefact: its HTML or its picture.
SHOWN = (".html", ".png")
ITEMS = {(item.kind, item.name): item for items in SECTIONS.values() for item in items}
HEADINGS = {
    (item.kind, item.name): heading
    for heading, items in SECTIONS.items()
    for item in items
}


def outputs(kind, name):
    labels = {"kind": kind, "what": ITEMS[kind, name].title}
    category = HEADINGS[kind, name]

    def flagged(path):
        caption = "../report/artefact.rst"
        return report(path, caption=caption, category=category, labels=labels)

    paths = [f"<results>/{kind}s/{name}{ending}" for ending in ENDINGS[kind]]
    return [flagged(path) if path.endswith(SHOWN) else path for path in paths]


def artefacts():
    return [
        f"{RESULTS}/{kind}s/{name}{ending}"
        for kind, name in ALL_ARTEFACTS
        for ending in ENDINGS[kind]
    ]
