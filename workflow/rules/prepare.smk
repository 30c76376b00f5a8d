# What must be there before a training starts: its data and the native kernel. On the machine where Snakemake runs,
# since a node of a cluster may have neither internet nor a compiler.


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


# Where native cannot be built, trainings take another kernel, and the file says why.
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


# A checkpoint, so that trainings wait for it and no more: data that are checked again, or a kernel that is built
# again, re-run none that is done.
checkpoint ready:
    input:
        "<results>/prepared/{dataset}.json",
        "<results>/prepared/kernel.txt",
    output:
        touch("<results>/prepared/{dataset}.ready"),
    message:
        "ready for runs on {wildcards.dataset}"
