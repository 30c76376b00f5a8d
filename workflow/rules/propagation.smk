# Signal propagation: one relaxation per trace, and the weights of the networks that are traced during training.


wildcard_constraints:
    trace=r".+",


rule propagate:
    input:
        trace_inputs,
    output:
        "<results>/propagation/{trace}.npz",
    log:
        "<results>/logs/propagate/{trace}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1500,
        runtime=30,
    params:
        spec=lambda w: PROPAGATIONS[w.trace].to_json(),
        weights=lambda w: (
            ["--weights", weights(PROPAGATIONS[w.trace])]
            if PROPAGATIONS[w.trace].trained
            else []
        ),
        code=lambda w: PROPAGATION_CODE[PROPAGATIONS[w.trace].run.method],
        folder=data_folder(),
    message:
        "propagating {wildcards.trace}"
    shell:
        "highways propagate --spec {params.spec:q} {params.weights:q} --out {output:q} {params.folder:q} 2> {log:q}"


for one in TRAINED:

    rule:
        name:
            f"snapshots_{one.spec.method}"
        input:
            lambda w, run=one: data_check(run),
        output:
            snapshots(one),
        log:
            f"<results>/logs/snapshots/{one.path}.log",
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem_mb=lambda w, attempt, run=one: memory_mb(run, attempt),
            runtime=lambda w, attempt, run=one: runtime_minutes(run, attempt),
        params:
            spec=one.spec.to_json(),
            code=code(one),
            epochs=config["propagation"]["during_training"]["epochs"],
            out=lambda w, output: Path(output[0]).parent,
            device=device(),
            folder=data_folder(),
        message:
            f"keeping the weights of {one.path} during training"
        shell:
            "highways snapshots --spec {params.spec:q} --epochs {params.epochs} --out {params.out:q}"
            " {params.device:q} {params.folder:q} 2> {log:q}"
