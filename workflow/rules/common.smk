# Shared by the other files: the checked configuration, the runs that it asks for, and options of commands.

import json
import shlex
import shutil
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

INSTALL = "activate the environment that `make` or `pip install --editable .` has made"
try:
    from highways.experiments import config_files
    from highways import provenance
    from highways.analysis.sections import sections
    from highways.errors import UserError
    from highways.experiments.results import Reference
    from highways.workflow import (
        Workflow,
        check_profile,
        check_results,
        megabytes,
        minutes,
        paths,
    )
except ModuleNotFoundError as error:
    raise WorkflowError(
        f"this Snakemake's Python has no {error.name}; {INSTALL}"
    ) from None
if shutil.which("highways") is None:
    raise WorkflowError(f"jobs call `highways`, which is not on the PATH; {INSTALL}")

ROOT = Path(workflow.basedir)
REFERENCE = ROOT / "results/reference"
if ROOT == Path.cwd():
    REFERENCE = REFERENCE.relative_to(ROOT)
try:
    check_profile(sys.argv, ROOT)
    # Snakemake has already merged the user's files. Here they are read strictly, and the reference's rows of
    # `settings` come back for depths that the user's list, which has replaced them all, does not name.
    for file in workflow.configfiles:
        config_files.read(file)
    config.update(config_files.completed(config))
    FLOW = Workflow(config, Reference.read(REFERENCE))
    check_results(config)
except UserError as error:
    raise WorkflowError(f"configuration: {error}") from None

# Options that change no number. Trainings get them as resources, not params, so that a change re-runs none.
DEVICE = config["device"]
WEIGHTS = "--weights" if config["keep_weights"] else ""
BUILT = ["native", *({run.kernel for run in FLOW.runs.values()} & {"mixed"})]

HEADINGS = {
    (item.kind, item.name): heading
    for heading, own in sections(config).items()
    for item in own
}

# The analysis takes seconds, so any change of the configuration or the package re-runs it. A training run
# depends only on its specification and the code that determines its numbers.
CONFIG = json.dumps(config, sort_keys=True)
PACKAGE_CODE = provenance.package_code()
# Computed once per method, not once per job: reading the modules would dominate the time of a parse.
TRAINING_CODE = {
    method: provenance.training_code(method)
    for method in {
        run.spec.method for run in (*FLOW.runs.values(), *FLOW.traced_in_training)
    }
}
TRACING_CODE = {
    method: provenance.propagation_code(method)
    for method in {one.run.method for one in FLOW.propagations.values()}
}


# With `--software-deployment-method conda` jobs run in the environment of environment.yml, given by its name,
# so that an edit of that file re-runs nothing. Without it they run in Snakemake's own environment.
def environment(wildcards):
    asked = {one.name for one in workflow.deployment_settings.deployment_method}
    return "highways" if "CONDA" in asked else None


# The output files of a training at a place: the record, and the weights where the configuration keeps them.
def trained(place):
    record = {"record": update(f"<results>/runs/{place}.json")}
    return record | (
        {"weights": update(f"<results>/runs/{place}.npz")} if WEIGHTS else {}
    )


# The options that tell a command where a data set is.
def data_dir(dataset):
    return shlex.join(FLOW.place(dataset))


# The input function of a run: it waits until its data and the kernel are there, and then returns no file.
def after_preparing(spec):
    checkpoints.ready.get(dataset=spec.dataset)
    return []


def selected(wildcards):
    return FLOW.runs[f"{wildcards.selection}/selected/seed{wildcards.seed}"]


def shown(kind):
    """How Snakemake's own report shows a table or figure."""
    return {
        "caption": "../report/artefact.rst",
        "category": lambda w: HEADINGS[kind, w[kind]],
        "labels": lambda w: {"kind": kind, "what": FLOW.items[kind, w[kind]].title},
    }
