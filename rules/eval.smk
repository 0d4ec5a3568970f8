# Accuracy of one arm by OpenCompass against its served endpoint.
rule eval:
    input:
        DEVICE,
        KERNELS,
        MODEL_EVIDENCE,
        scales,
        real_weights,
        ENVIRONMENT["serve"],
        ENVIRONMENT["eval"],
    output:
        evidence=f"{RESULTS}/eval/{{arm}}.json",
    log:
        f"{LOGS}/eval/{{arm}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **arm_devices(),
    params:
        spec=lambda wildcards: specification(
            jobs.accuracy(
                RUN,
                served_arm(wildcards),
                MODEL,
                SERVE_PYTHON,
                EVAL_PYTHON,
                MODEL_EVIDENCE,
            )
        ),
        code=code_digest("eval"),
    message:
        "eval: accuracy of arm {wildcards.arm} (log: {log})"
    shell:
        device_job("eval")
