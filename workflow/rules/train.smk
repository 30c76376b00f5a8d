# One training job per run record.
#
# A job re-runs when its own specification changes, or the code that determines its numbers (`code`, a
# fingerprint that ignores comments); plotting code and the settings of other runs do not count. An existing
# record of the same specification and code stays: the job of a killed Snakemake may have written it.
# Checkpoints lie beside the records and are not declared as outputs, so a failed job keeps them.


wildcard_constraints:
    run=r"(?!.*/selected/).+",
    selection=r".+",
    seed=r"\d+",


rule train:
    input:
        lambda w: after_preparing(FLOW.runs[w.run].spec),
    output:
        **trained("{run}"),
    log:
        "<results>/logs/train/{run}.log",
    conda:
        environment
    threads: 1
    resources:
        device=DEVICE,
        data_dir=lambda w: data_dir(FLOW.runs[w.run].spec.dataset),
        weights=WEIGHTS,
        mem_mb=lambda w, attempt: megabytes(FLOW.runs[w.run], attempt),
        runtime=lambda w, attempt: minutes(FLOW.runs[w.run], attempt),
    params:
        spec=lambda w: FLOW.runs[w.run].spec.to_json(),
        code=lambda w: TRAINING_CODE[FLOW.runs[w.run].spec.method],
        kernel=lambda w: FLOW.kernel(FLOW.runs[w.run]),
    message:
        "training {wildcards.run}"
    shell:
        "highways train --renew --spec {params.spec:q} --out {output.record:q} {resources.weights}"
        " --threads {threads} {params.kernel:q} --device {resources.device} {resources.data_dir} 2> {log:q}"


rule select:
    input:
        lambda w: FLOW.records(FLOW.sweep(w.selection)),
    output:
        "<results>/selections/{selection}.json",
    log:
        "<results>/logs/select/{selection}.log",
    conda:
        environment
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        specs=lambda w: [run.spec.hash for run in FLOW.sweep(w.selection)],
    message:
        "choosing the settings of {wildcards.selection} on validation accuracy"
    shell:
        "highways select {input:q} --out {output:q} 2> {log:q}"


rule train_selected:
    input:
        lambda w: after_preparing(selected(w).spec),
        chosen=lambda w: FLOW.selection(w.selection),
    output:
        **trained("{selection}/selected/seed{seed}"),
    log:
        "<results>/logs/train/{selection}/selected/seed{seed}.log",
    conda:
        environment
    threads: 1
    resources:
        device=DEVICE,
        data_dir=lambda w: data_dir(selected(w).spec.dataset),
        weights=WEIGHTS,
        mem_mb=lambda w, attempt: megabytes(selected(w), attempt),
        runtime=lambda w, attempt: minutes(selected(w), attempt),
    params:
        spec=lambda w: selected(w).spec.to_json(),
        code=lambda w: TRAINING_CODE[selected(w).spec.method],
        kernel=lambda w: FLOW.kernel(selected(w)),
    message:
        "training {wildcards.selection}/selected/seed{wildcards.seed} at the chosen settings"
    shell:
        "highways train --renew --spec {params.spec:q} --selection {input.chosen:q} --out {output.record:q} {resources.weights}"
        " --threads {threads} {params.kernel:q} --device {resources.device} {resources.data_dir} 2> {log:q}"
