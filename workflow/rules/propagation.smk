# Signal propagation: one relaxation per trace, and the weights of the networks that are traced during training.


wildcard_constraints:
    trace=r".+",


rule propagate:
    input:
        lambda w: after_preparing(FLOW.propagations[w.trace].run),
        weights=lambda w: FLOW.weights(FLOW.propagations[w.trace]),
    output:
        "<results>/propagation/{trace}.npz",
    log:
        "<results>/logs/propagate/{trace}.log",
    conda:
        environment
    threads: 1
    resources:
        data_dir=lambda w: data_dir(FLOW.propagations[w.trace].run.dataset),
        mem_mb=1500,
        runtime=30,
    params:
        spec=lambda w: FLOW.propagations[w.trace].to_json(),
        weights=lambda w, input: [
            word for path in input.weights for word in ("--weights", Path(path).parent)
        ],
        code=lambda w: TRACING_CODE[FLOW.propagations[w.trace].run.method],
    message:
        "propagating {wildcards.trace}"
    shell:
        "highways propagate --spec {params.spec:q} {params.weights:q} --out {output:q} {resources.data_dir} 2> {log:q}"


for one in FLOW.traced_in_training:

    rule:
        name:
            f"snapshots_{one.spec.method}"
        input:
            lambda w, run=one: after_preparing(run.spec),
        output:
            FLOW.snapshots(one),
        log:
            f"<results>/logs/snapshots/{one.path}.log",
        conda:
            environment
        threads: 1
        resources:
            device=DEVICE,
            data_dir=data_dir(one.spec.dataset),
            mem_mb=lambda w, attempt, run=one: megabytes(run, attempt),
            runtime=lambda w, attempt, run=one: minutes(run, attempt),
        params:
            spec=one.spec.to_json(),
            code=TRAINING_CODE[one.spec.method],
            epochs=FLOW.moments,
            out=lambda w, output: Path(output[0]).parent,
        message:
            f"keeping the weights of {one.path} during training"
        shell:
            "highways snapshots --spec {params.spec:q} --epochs {params.epochs} --out {params.out:q}"
            " --device {resources.device} {resources.data_dir} 2> {log:q}"
