# What an accepted decision changes on the serving host: start script, image fragment, how to undo it.
rule lock:
    input:
        f"{RESULTS}/decide/{{adr}}.json",
    output:
        evidence=f"reports/{P}/lock/{{adr}}/lock.json",
    log:
        f"{LOGS}/lock/{{adr}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: specification(lock_spec(wildcards.adr)),
        code=code_digest("lock"),
    message:
        "lock: {wildcards.adr} (log: {log})"
    shell:
        job("lock")
