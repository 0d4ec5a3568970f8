# Memory of every arm's KV scheme by layout and by vLLM's pool; arithmetic over evidence, nothing is served.
rule memory:
    input:
        MODEL_EVIDENCE,
        pools=leaves(pools()),
    output:
        evidence=MEMORY,
    log:
        f"{LOGS}/memory.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: specification(
            jobs.memory(RUN, MODEL, MODEL_EVIDENCE, pools())
        ),
        code=code_digest("memory"),
    message:
        "memory: KV bytes by layout and by pool (log: {log})"
    shell:
        job("memory")
