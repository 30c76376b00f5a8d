# The tables and figures, from the records: one rule per artefact, named table_depth, figure_depth and so on.


for kind, artefact in ALL_ARTEFACTS:

    rule:
        name:
            f"{kind}_{artefact}"
        input:
            sources(kind, artefact),
        output:
            outputs(kind, artefact),
        log:
            f"<results>/logs/{kind}s/{artefact}.log",
        conda:
            "../../environment.yml"
        resources:
            mem_mb=1000,
            runtime=10,
        params:
            kind=kind,
            name=artefact,
            config=CONFIG,
            runs=runs_folder,
            traces=traces_folder,
            folder=lambda w, output: Path(output[0]).parent,
            text=ITEMS[kind, artefact].text,
            command=ITEMS[kind, artefact].command,
        message:
            f"{kind}: {artefact}"
        shell:
            "highways {params.kind} {params.name} --config {params.config:q} --runs {params.runs:q}"
            " --traces {params.traces:q}"
            " --out {params.folder:q} 2> {log:q}"


rule propagation:
    input:
        [
            f"{RESULTS}/{kind}s/{name}{ending}"
            for kind, name in ALL_ARTEFACTS
            if name in TRACE_ARTEFACTS[kind]
            for ending in ENDINGS[kind]
        ],


rule conventions:
    input:
        rules.table_conventions.output,


rule report:
    input:
        lambda w: records(RUNS.values()),
        artefacts(),
    output:
        page=report(
            "<results>/report.html",
            caption="../report/page.rst",
            category="The verdict",
            labels={"what": "the page"},
        ),
        verdict="<results>/verdict.json",
        table=multiext("<results>/tables/verdict", *ENDINGS["table"]),
    log:
        "<results>/logs/report.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        config=CONFIG,
        runs=runs_folder,
        traces=traces_folder,
        folder=lambda w, output: Path(output.page).parent,
    message:
        "the verdict and the report"
    shell:
        "highways report --only-page --config {params.config:q} --runs {params.runs:q} --traces {params.traces:q}"
        " --out {params.folder:q} 2> {log:q}"
