# The figures of the paper, from the records.


rule figure_depth:
    input:
        records(runs.table_runs(config)),
    output:
        multiext("<results>/figures/depth", ".png", ".pdf"),
    log:
        "<results>/logs/figures/depth.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=CONFIG,
        runs=runs_folder,
        folder=lambda w, output: Path(output[0]).parent,
    message:
        "figure: accuracy against depth"
    shell:
        "highways figure depth --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"


rule figure_strength:
    input:
        records(runs.strength_runs(config)),
    output:
        multiext("<results>/figures/strength", ".png", ".pdf"),
    log:
        "<results>/logs/figures/strength.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=CONFIG,
        runs=runs_folder,
        folder=lambda w, output: Path(output[0]).parent,
    message:
        "figure: accuracy against the strength of the highways"
    shell:
        "highways figure strength --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"


rule figure_training:
    input:
        records(runs.table_runs(config)),
    output:
        multiext("<results>/figures/training", ".png", ".pdf"),
    log:
        "<results>/logs/figures/training.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=CONFIG,
        runs=runs_folder,
        folder=lambda w, output: Path(output[0]).parent,
    message:
        "figure: training curves"
    shell:
        "highways figure training --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"


rule figure_density:
    input:
        records(runs.density_runs(config)),
    output:
        multiext("<results>/figures/density", ".png", ".pdf"),
    log:
        "<results>/logs/figures/density.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=CONFIG,
        runs=runs_folder,
        folder=lambda w, output: Path(output[0]).parent,
    message:
        "figure: accuracy against the spacing of the highways"
    shell:
        "highways figure density --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"
