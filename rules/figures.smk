# Memory against accuracy of every KV scheme; the report of a strategy shows it.
rule pareto:
    input:
        lambda wildcards: leaves(report_evidence(wildcards.adr)),
    output:
        evidence=f"reports/{P}/figures/{{adr}}-pareto{{suffix}}",
    log:
        f"{LOGS}/report/{{adr}}-pareto{{suffix}}.log",
    wildcard_constraints:
        suffix=r"(\.zh)?\.svg",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: report_spec(
            wildcards.adr, "zh" if wildcards.suffix.startswith(".zh") else "en"
        ),
        code=code_digest("report"),
    message:
        "figure: {output} (log: {log})"
    shell:
        job("report.figures_kv")
