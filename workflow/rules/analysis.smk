# The tables and figures, made from the records. Each has its own target: table_depth, figure_depth and so on.


wildcard_constraints:
    table="|".join([*(name for kind, name in FLOW.items if kind == "table"), "none"]),
    figure="|".join([*(name for kind, name in FLOW.items if kind == "figure"), "none"]),


rule table:
    input:
        lambda w: FLOW.sources("table", w.table),
    output:
        multiext("<results>/tables/{table}", ".csv", ".md", ".tex"),
        report("<results>/tables/{table}.html", **shown("table")),
    log:
        "<results>/logs/tables/{table}.log",
    conda:
        environment
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        code=PACKAGE_CODE,
        config=CONFIG,
        reference=REFERENCE,
        results=lambda w, output: Path(output[0]).parents[1],
        text=lambda w: FLOW.items["table", w.table].text,
        command=lambda w: FLOW.items["table", w.table].command,
    message:
        "table: {wildcards.table}"
    shell:
        "highways table {wildcards.table} --config {params.config:q} --runs {params.results:q}/runs"
        " --traces {params.results:q}/propagation --reference {params.reference:q} --out {params.results:q}/tables 2> {log:q}"


rule figure:
    input:
        lambda w: FLOW.sources("figure", w.figure),
    output:
        "<results>/figures/{figure}.pdf",
        report("<results>/figures/{figure}.png", **shown("figure")),
    log:
        "<results>/logs/figures/{figure}.log",
    conda:
        environment
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        code=PACKAGE_CODE,
        config=CONFIG,
        reference=REFERENCE,
        results=lambda w, output: Path(output[0]).parents[1],
        text=lambda w: FLOW.items["figure", w.figure].text,
        command=lambda w: FLOW.items["figure", w.figure].command,
    message:
        "figure: {wildcards.figure}"
    shell:
        "highways figure {wildcards.figure} --config {params.config:q} --runs {params.results:q}/runs"
        " --traces {params.results:q}/propagation --reference {params.reference:q} --out {params.results:q}/figures 2> {log:q}"


# A target asks for the sources of its table or figure too, so that a missing source is made again.
for (kind, name), item in FLOW.items.items():

    rule:
        name:
            f"{kind}_{name}"
        input:
            lambda w, kind=kind, name=name: FLOW.sources(kind, name),
            lambda w, item=item: FLOW.kept_weights(item.runs_of(config)),
            paths([item]),


rule propagation:
    input:
        FLOW.traces(FLOW.propagations.values()),
        paths(item for item in FLOW.items.values() if item.traces(config)),


rule page:
    input:
        FLOW.everything,
        FLOW.traces(FLOW.propagations.values()),
    output:
        page=report(
            "<results>/report.html",
            caption="../report/page.rst",
            category="The verdict",
            labels={"what": "the page"},
        ),
        verdict="<results>/verdict.json",
        table=multiext("<results>/tables/verdict", ".csv", ".md", ".html", ".tex"),
    log:
        "<results>/logs/report.log",
    conda:
        environment
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        code=PACKAGE_CODE,
        config=CONFIG,
        reference=REFERENCE,
        results=lambda w, output: Path(output.page).parent,
    message:
        "the verdict and the report"
    shell:
        "highways report --only-page --config {params.config:q} --runs {params.results:q}/runs"
        " --traces {params.results:q}/propagation --reference {params.reference:q} --out {params.results:q} 2> {log:q}"


rule report:
    input:
        FLOW.everything,
        FLOW.kept_weights(FLOW.runs.values()),
        FLOW.traces(FLOW.propagations.values()),
        rules.page.output,
