# Where the time goes: measured bandwidth ceiling, then a profile of the baseline.
rule ceiling:
    input:
        DEVICE,
        ENVIRONMENT["serve"],
    output:
        evidence=CEILING,
    log:
        f"{LOGS}/ceiling.log",
    conda:
        "../envs/serve.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **devices(1),
    params:
        spec=constant(canonical(jobs.ceiling(RUN))),
        code=jobs.code_digest("profile"),
        python=constant(RUN.python("serve")),
    message:
        "profile: memory-bandwidth ceiling (log: {log})"
    shell:
        serving_job("profile.ceiling")


rule profile:
    input:
        DEVICE,
        KERNELS,
        MODEL_EVIDENCE,
        CEILING,
        ENVIRONMENT["serve"],
    output:
        evidence=f"{RESULTS}/profile/{{arm}}.json",
    log:
        f"{LOGS}/profile/{{arm}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **arm_devices(),
    params:
        spec=lambda wildcards: canonical(
            jobs.profile(RUN, known_arm(wildcards), MODEL, SERVE_PYTHON, CEILING)
        ),
        code=jobs.code_digest("profile"),
    message:
        "profile: arm {wildcards.arm} (log: {log})"
    shell:
        device_job("profile")
