# Error Highways: one run record per training job, and every table and figure from the records.
#
#   snakemake --cores all                            the whole paper
#   snakemake --cores all table_depth                one artefact and the runs behind it
#   snakemake --workflow-profile smoke               minutes, on embedded data

from snakemake.utils import min_version

min_version("9.12")


configfile: f"{workflow.basedir}/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/propagation.smk"
include: "workflow/rules/analysis.smk"


rule all:
    default_target: True
    input:
        FLOW.everything,
        paths(FLOW.items.values()),
        rules.report.input,
