# The tables of the paper, from the records.


rule table_depth:
    input:
        records(runs.table_runs(config)),
    output:
        multiext("<results>/tables/depth", ".csv", ".md", ".html", ".tex"),
    log:
        "<results>/logs/tables/depth.log",
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
        "table: accuracy against depth"
    shell:
        "highways table depth --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"


rule table_density:
    input:
        records(runs.density_runs(config)),
    output:
        multiext("<results>/tables/density", ".csv", ".md", ".html", ".tex"),
    log:
        "<results>/logs/tables/density.log",
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
        "table: accuracy against the spacing of the highways"
    shell:
        "highways table density --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"


rule table_settings:
    output:
        multiext("<results>/tables/settings", ".csv", ".md", ".html", ".tex"),
    log:
        "<results>/logs/tables/settings.log",
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
        "table: settings of each depth"
    shell:
        "highways table settings --config {params.config:q} --runs {params.runs:q} --out {params.folder:q} 2> {log:q}"
