# `snakemake decide_<adr>`: rounds are added until the decision stands. Each look is a checkpoint: it says which arms
# get another round, those starts become jobs like any others, and the next look waits for them.
checkpoint adaptive:
    input:
        look_inputs,
    output:
        evidence=f"{RESULTS}/adaptive/{{adr}}/look{{look}}.json",
    log:
        f"{LOGS}/adaptive/{{adr}}-look{{look}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=look_spec,
        code=code_digest("decide"),
    message:
        "adaptive: {wildcards.adr} after {wildcards.look} rounds (log: {log})"
    shell:
        job("decide.adaptive")


# The last look, where the report finds it: its existence says that this decision is an adaptive one.
rule adaptive_verdict:
    input:
        last_look,
    output:
        evidence=f"{RESULTS}/adaptive/{{adr}}.json",
    log:
        f"{LOGS}/adaptive/{{adr}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    message:
        "adaptive: the verdict of {wildcards.adr}"
    shell:
        "cp {input:q} {output:q} 2> {log:q}"


for _adr in (adr for adr, found in RUN.decisions.items() if hasattr(found, "adaptive")):

    rule:
        name:
            f"decide_{_adr}"
        input:
            f"{RESULTS}/adaptive/{_adr}.json",
        message:
            "rounds were added until the decision stood"
