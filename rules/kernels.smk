# Unit tests of the Triton kernels: which formats does this platform prove? A failure blocks serving.
rule kernels:
    input:
        DEVICE,
        ENVIRONMENT["serve"],
    output:
        evidence=KERNELS,
    log:
        f"{LOGS}/kernels.log",
    conda:
        "../envs/serve.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **devices(1),
    params:
        spec=lambda wildcards: specification(jobs.kernels(RUN)),
        code=code_digest("kernels"),
        python=constant(RUN.python("serve")),
    message:
        "kernels: Triton kernels against their references (log: {log})"
    shell:
        serving_job("kernels")
