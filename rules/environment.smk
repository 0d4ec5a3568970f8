# With --sdm conda: where Snakemake put the serving and evaluating interpreters.
if CONDA:

    rule environment_serve:
        output:
            f"{RESULTS}/environment/serve.json",
        log:
            f"{LOGS}/environment/serve.log",
        conda:
            "../envs/serve.yaml"
        shell:
            "python -c 'import json, sys; print(json.dumps(dict(python=sys.executable)))' > {output} 2> {log}"

    rule environment_eval:
        output:
            f"{RESULTS}/environment/eval.json",
        log:
            f"{LOGS}/environment/eval.log",
        conda:
            "../envs/eval.yaml"
        shell:
            "python -c 'import json, sys; print(json.dumps(dict(python=sys.executable)))' > {output} 2> {log}"
