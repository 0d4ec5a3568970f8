# Every number of every report, computed again from the raw files; needs what the reports were made from, and runs no job.
rule audit:
    log:
        f"{LOGS}/audit.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        eval_python=EVAL_PYTHON,
    message:
        "audit: every number of every report, from raw files (log: {log})"
    shell:
        project(
            "-m adrbench.audit --eval-python {params.eval_python:q} 2>&1 | tee -i {log:q}"
        )
