# The baseline against itself (A/A): what equal servers differ by on this platform. No decision switches for less.
rule noise_floor:
    input:
        leaves(baseline_evidence()),
    output:
        evidence=NOISE_FLOOR,
    log:
        f"{LOGS}/noise_floor.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: specification(
            records.noise_floor(RUN, baseline_evidence())
        ),
        code=code_digest("decide"),
    message:
        "noise floor: the baseline against itself (log: {log})"
    shell:
        job("decide.noise_floor")
