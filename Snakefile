# Error Highways: one run record per training job, and every table and figure from the records.
#
#   snakemake --cores all                                          the whole paper
#   snakemake --cores all table_depth                              one artefact and the runs behind it
#   snakemake --cores all --workflow-profile workflow/profiles/smoke   minutes, on embedded data

from snakemake.utils import min_version

min_version("9.12")


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


# On the machine that starts the jobs, once, before many of them would: a node may have no compiler.
onstart:
    shell("highways build > /dev/null || true")


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/propagation.smk"
include: "workflow/rules/analysis.smk"


rule all:
    default_target: True
    input:
        lambda w: records(RUNS.values()),
        artefacts(),
        rules.report.output,
