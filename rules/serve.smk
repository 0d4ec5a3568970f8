# One arm on one fresh server: all tiers of one round. Round k of every arm starts before round k + 1 of any, in an
# order shuffled inside the round. Priorities make that order, not inputs: a start is no input of another, so that one
# arm reruns alone. Serving goes before all other jobs that wait for the device: an accuracy run between two
# starts of a round would part what is to be compared side by side.
rule serve:
    input:
        DEVICE,
        KERNELS,
        MODEL_EVIDENCE,
        scales,
        ENVIRONMENT["serve"],
    output:
        evidence=f"{RESULTS}/serve/{{arm}}/r{{round}}/{TIERS[0]}.json",
        others=[f"{RESULTS}/serve/{{arm}}/r{{round}}/{tier}.json" for tier in TIERS[1:]],
    log:
        f"{LOGS}/serve/{{arm}}-r{{round}}.log",
    priority: start_priority
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **arm_devices(),
    params:
        spec=lambda wildcards: specification(
            jobs.serve(
                RUN,
                served_arm(wildcards),
                int(wildcards.round),
                MODEL,
                SERVE_PYTHON,
                MODEL_EVIDENCE,
            )
        ),
        code=code_digest("serve"),
    message:
        "serve: arm {wildcards.arm}, round {wildcards.round}, tiers "
        + ", ".join(TIERS)
        + " (log: {log})"
    shell:
        device_job("serve")
