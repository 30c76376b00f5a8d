# One training job per run record.
#
# A job re-runs when its own spec changes, or the code that determines its numbers (`code`, a fingerprint without
# comments); plotting code and the settings of other runs do not count. Checkpoints lie beside
# the records and are not declared, so that a failed job keeps them.


wildcard_constraints:
    run=r"(?!.*/selected/).+",
    selection=r".+",
    seed=r"\d+",


rule train:
    input:
        lambda w: data_check(RUNS[w.run]),
    output:
        "<results>/runs/{run}.json",
    log:
        "<results>/logs/train/{run}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: memory_mb(RUNS[w.run], attempt),
        runtime=lambda w, attempt: runtime_minutes(RUNS[w.run], attempt),
    params:
        spec=lambda w: RUNS[w.run].spec.to_json(),
        code=lambda w: code(RUNS[w.run]),
        device=device(),
        folder=data_folder(),
    message:
        "training {wildcards.run}"
    shell:
        "highways train --spec {params.spec:q} --out {output:q} --threads {threads} {params.device:q} {params.folder:q} 2> {log:q}"


rule select:
    input:
        sweep_records,
    output:
        "<results>/selections/{selection}.json",
    log:
        "<results>/logs/select/{selection}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        specs=sweep_specs,
        code=lambda w: code(sweep(w)[0]),
    message:
        "choosing the settings of {wildcards.selection} on validation accuracy"
    shell:
        "highways select {input:q} --out {output:q} 2> {log:q}"


rule train_selected:
    input:
        lambda w: data_check(selected(w)),
        chosen=chosen,
    output:
        "<results>/runs/{selection}/selected/seed{seed}.json",
    log:
        "<results>/logs/train/{selection}/selected/seed{seed}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: memory_mb(selected(w), attempt),
        runtime=lambda w, attempt: runtime_minutes(selected(w), attempt),
    params:
        spec=lambda w: selected(w).spec.to_json(),
        sweep=sweep_specs,
        code=lambda w: code(selected(w)),
        device=device(),
        folder=data_folder(),
    message:
        "training {wildcards.selection}/selected/seed{wildcards.seed} at the chosen settings"
    shell:
        "highways train --spec {params.spec:q} --selection {input.chosen:q} --out {output:q}"
        " --threads {threads} {params.device:q} {params.folder:q} 2> {log:q}"
