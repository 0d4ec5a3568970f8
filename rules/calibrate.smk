# Static scales of the simulated schemes that have any, from a small text; evidence, never part of the weights (C03).
if PLATFORM.calibrate is not None:

    rule calibrate:
        input:
            MODEL_EVIDENCE,
            ENVIRONMENT["serve"],
        output:
            evidence=CALIBRATION,
        log:
            f"{LOGS}/calibrate.log",
        conda:
            "../envs/serve.yaml"
        container:
            PLATFORM.serve.container
        resources:
            **devices(1),
        params:
            spec=lambda wildcards: specification(
                jobs.calibrate(RUN, MODEL, MODEL_EVIDENCE)
            ),
            code=code_digest("calibrate"),
            python=RUN.python("serve"),
        message:
            "calibrate: static scales (log: {log})"
        shell:
            serving_job("calibrate")
