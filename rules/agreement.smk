# A text replayed on one arm's fresh server: log-probabilities at every position. The baseline is replayed twice.
if PLATFORM.agreement is not None:

    rule agreement:
        input:
            DEVICE,
            KERNELS,
            MODEL_EVIDENCE,
            scales,
            ENVIRONMENT["serve"],
        output:
            evidence=f"{RESULTS}/agreement/{{arm}}/r{{round}}.json",
        log:
            f"{LOGS}/agreement/{{arm}}-r{{round}}.log",
        conda:
            "../envs/analysis.yaml"
        container:
            PLATFORM.serve.container
        resources:
            **arm_devices(),
        params:
            spec=lambda wildcards: specification(
                jobs.agreement(
                    RUN,
                    served_arm(wildcards),
                    int(wildcards.round),
                    MODEL,
                    SERVE_PYTHON,
                    MODEL_EVIDENCE,
                )
            ),
            code=code_digest("agreement"),
        message:
            "agreement: replay on arm {wildcards.arm}, round {wildcards.round} (log: {log})"
        shell:
            device_job("agreement")

    # All replays against the baseline's first one; nothing is served.
    rule compare:
        input:
            leaves(replays()),
        output:
            evidence=AGREEMENT,
        log:
            f"{LOGS}/agreement/compare.log",
        conda:
            "../envs/analysis.yaml"
        container:
            PLATFORM.serve.container
        params:
            spec=lambda wildcards: specification(jobs.compare(RUN, replays())),
            code=code_digest("compare"),
        message:
            "agreement: all replays against the baseline's (log: {log})"
        shell:
            job("agreement.compare")
