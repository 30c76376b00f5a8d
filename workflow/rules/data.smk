# Finds a data set, downloads it where it is missing, and checks it. The only rule that uses the network.


localrules:
    data,


rule data:
    output:
        "<results>/data/{dataset}.json",
    log:
        "<results>/logs/data/{dataset}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        folder=data_folder(),
    message:
        "finding and checking {wildcards.dataset}"
    shell:
        "highways data {wildcards.dataset:q} {params.folder:q} --out {output:q} 2> {log:q}"
