# The verdict of one decision, computed from evidence.
rule decide:
    input:
        lambda wildcards: leaves(evidence_of(wildcards.adr)),
    output:
        evidence=f"{RESULTS}/decide/{{adr}}.json",
    log:
        f"{LOGS}/decide/{{adr}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: canonical(
            jobs.decide(RUN, wildcards.adr, evidence_of(wildcards.adr))
        ),
        code=jobs.code_digest("decide"),
    message:
        "decide: {wildcards.adr} (log: {log})"
    shell:
        job("decide")
