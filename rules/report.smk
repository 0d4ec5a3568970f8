# The ADRs in each language, per platform; reports/<adr>.md are those of the active platform.
DOCUMENTS = RUN.main.adrs + (["claims"] if RUN.main.claims.enabled else [])
DOCUMENT_FILES = [
    f"{name}{SUFFIX[language]}" for name in DOCUMENTS for language in LANGUAGES
]
PUBLISHED = [f"reports/{name}" for name in DOCUMENT_FILES]


# A verdict that differs from the last one is added to the history, which no rule ever deletes.
rule history:
    input:
        f"{RESULTS}/decide/{{adr}}.json",
    output:
        evidence=f"{RESULTS}/history/{{adr}}.json",
    log:
        f"{LOGS}/report/history-{{adr}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        store=f"history/{P}",
    message:
        "history: {wildcards.adr} (log: {log})"
    shell:
        project(
            "-m adrbench.report.history {input:q} --store {params.store:q} "
            "--output {output.evidence:q} > {log:q} 2>&1"
        )


rule report:
    input:
        lambda wildcards: leaves(report_evidence(wildcards.adr)),
        lambda wildcards: leaves(
            records.figure_files(RUN, LANGUAGE_OF[wildcards.suffix])
            if evidence_of(wildcards.adr).get("profile")
            else {}
        ),
        figures_of,
    output:
        evidence=report(
            f"reports/{P}/{{adr}}{{suffix}}",
            category="Decisions",
            caption="captions/adr.rst",
            labels={"ADR": "{adr}", "file": "{adr}{suffix}"},
        ),
    log:
        f"{LOGS}/report/{{adr}}{{suffix}}.log",
    wildcard_constraints:
        suffix=SUFFIXES,
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: report_spec(wildcards.adr, LANGUAGE_OF[wildcards.suffix]),
        code=code_digest("report"),
    message:
        "report: {output} (log: {log})"
    shell:
        job("report")


# What a report was made from and by which specifications: the audit makes it again, `status` looks for changes.
rule seal:
    input:
        [f"reports/{P}/{{adr}}{SUFFIX[language]}" for language in LANGUAGES],
        decide=f"{RESULTS}/decide/{{adr}}.json",
    output:
        evidence=f"reports/{P}/{{adr}}.seal.json",
    log:
        f"{LOGS}/report/seal-{{adr}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: specification(
            records.seal(
                RUN,
                wildcards.adr,
                decide_spec(wildcards.adr),
                report_evidence,
                lock_spec(wildcards.adr),
            )
        ),
        code=code_digest("report"),
    message:
        "seal: {output} (log: {log})"
    shell:
        job("report.seal")


rule publish:
    input:
        lambda wildcards: (
            [f"reports/{P}/{wildcards.document}.seal.json"]
            if wildcards.document != "claims"
            else []
        ),
        published_along,
        texts=[f"reports/{P}/{{document}}{SUFFIX[language]}" for language in LANGUAGES],
    output:
        [f"reports/{{document}}{SUFFIX[language]}" for language in LANGUAGES],
    log:
        f"{LOGS}/report/publish-{{document}}.log",
    wildcard_constraints:
        document=r"adr[a-z0-9]+|claims",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        platform=P,
    message:
        "report: {output} are now those of platform {params.platform}"
    shell:
        project("-m adrbench.report.publish {input.texts:q} --to reports 2> {log:q}")


# Every report with its status; one whose evidence changed since is marked as stale.
rule status:
    log:
        f"{LOGS}/report/status.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    message:
        "status: the published ADRs"
    shell:
        project("-m adrbench.report.status 2>&1 | tee -i {log:q}")
