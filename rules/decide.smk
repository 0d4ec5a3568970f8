# The verdict of one decision, computed from evidence; that of an adaptive run (decide_<adr>) where there was one.
rule decide:
    input:
        decision_inputs,
    output:
        evidence=f"{RESULTS}/decide/{{adr}}.json",
    log:
        f"{LOGS}/decide/{{adr}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=decision_spec,
        code=code_digest("decide"),
    message:
        "decide: {wildcards.adr} (log: {log})"
    shell:
        job("decide")
