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
from highways.analysis.sections import SECTIONS
from highways import controls, cost, provenance, readings, remedies, runs
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

try:
    RUNS, PROPAGATIONS = configuration.expand(config)
except UserError as error:
    raise WorkflowError(f"configuration: {error}") from None

RESULTS = config.get("pathvars", {}).get("results", "results")
RUNS_FOLDER = f"{RESULTS}/runs"
TRACES_FOLDER = f"{RESULTS}/propagation"
TRAINED = propagation.trained_runs(config)
SNAPSHOT_OF = {run.spec: run.path for run in TRAINED}
PROPAGATION_CODE = provenance.propagation_code()
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


# A run's check of its data. A record that is there while the check is not came with a clone: it needs no data, and
# the check, once made, must not count as its new input.
def data_check(run):
    check = Path(f"{RESULTS}/data/{run.spec.dataset}.json")
    return (
        [] if Path(record(run)).exists() and not check.exists() else ancient(str(check))
    )


def snapshots(run):
    return [
        f"{RESULTS}/snapshots/{run.path}/epoch{epoch:02d}.npz"
        for epoch in config["propagation"]["during_training"]["epochs"]
    ]


def weights(one):
    return f"{RESULTS}/snapshots/{SNAPSHOT_OF[one.trained]}"


# As for runs: a trace that came with a clone needs neither data nor weights.
def trace_inputs(wildcards):
    one = PROPAGATIONS[wildcards.trace]
    needed = [f"{RESULTS}/data/{one.run.dataset}.json"]
    if one.trained is not None:
        needed.append(f"{weights(one)}/epoch{one.epoch:02d}.npz")
    came_with_a_clone = Path(traces([one])[0]).exists()
    return [
        ancient(path)
        for path in needed
        if not (came_with_a_clone and not Path(path).exists())
    ]


def selected(wildcards):
    return RUNS[f"{wildcards.selection}/selected/seed{wildcards.seed}"]


@cache
def sweep_of(selection):
    return runs.sweep_runs(RUNS.values(), selection)


def sweep(wildcards):
    return sweep_of(str(wildcards.selection))


# Inputs of a file whose times count only if Snakemake made that file here: in a clone, times mean nothing.
def inputs(paths, output):
    made_here = workflow.persistence.metadata(IOFile(output)) is not None
    return list(paths) if made_here else [ancient(path) for path in paths]


def selection_file(selection):
    return f"{RESULTS}/selections/{selection}.json"


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
