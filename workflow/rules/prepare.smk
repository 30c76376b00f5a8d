# What must be there before a training starts: its data and the kernels. These rules run where Snakemake
# runs, since a node of a cluster may have neither internet nor a compiler.


localrules:
    data,
    kernel,
    ready,


# Finds a data set, downloads it where it is missing, and checks it. The only rule that uses the network.
rule data:
    output:
        "<results>/prepared/{dataset}.json",
    log:
        "<results>/logs/prepared/{dataset}.log",
    conda:
        environment
    resources:
        data_dir=lambda w: data_dir(w.dataset),
    message:
        "finding and checking {wildcards.dataset}"
    shell:
        "highways data {wildcards.dataset:q} {resources.data_dir} --out {output:q} 2> {log:q}"


# Where native cannot be built, trainings use another kernel, and the output file says why.
rule kernel:
    output:
        "<results>/prepared/kernel.txt",
    log:
        "<results>/logs/prepared/kernel.log",
    conda:
        environment
    params:
        code=provenance.kernel_code(),
        built=BUILT,
    message:
        "building the kernels"
    shell:
        "highways build --kernel {params.built:q} --out {output:q} 2> {log:q}"


# A checkpoint, so that trainings wait for it but do not depend on it: checking the data or building a kernel
# again re-runs no finished training.
checkpoint ready:
    input:
        "<results>/prepared/{dataset}.json",
        "<results>/prepared/kernel.txt",
    output:
        touch("<results>/prepared/{dataset}.ready"),
    message:
        "ready for runs on {wildcards.dataset}"
