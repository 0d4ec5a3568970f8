# The ADRs in each language, per platform; reports/<adr>.md are those of the active platform.
DOCUMENTS = RUN.main.adrs + (["claims"] if RUN.main.claims.enabled else [])
PUBLISHED = [
    f"reports/{name}{SUFFIX[language]}" for name in DOCUMENTS for language in LANGUAGES
]


rule report:
    input:
        lambda wildcards: leaves(all_evidence(wildcards.adr)),
        decide=f"{RESULTS}/decide/{{adr}}.json",
    output:
        evidence=f"reports/{P}/{{adr}}{{suffix}}",
    log:
        f"{LOGS}/report/{{adr}}{{suffix}}.log",
    wildcard_constraints:
        suffix=SUFFIXES,
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards, input: canonical(
            jobs.report(
                RUN,
                wildcards.adr,
                LANGUAGE_OF[wildcards.suffix],
                all_evidence(wildcards.adr) | {"decide": input.decide},
            )
        ),
        code=jobs.code_digest("report"),
    message:
        "report: {output} (log: {log})"
    shell:
        job("report")


rule publish:
    input:
        [f"reports/{P}/{Path(path).name}" for path in PUBLISHED],
    output:
        PUBLISHED,
    log:
        f"{LOGS}/report/publish.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    message:
        "report: reports of platform {P} are now those in reports/"
    shell:
        PROJECT + "-m adrbench.report.publish {input:q} --to reports 2> {log:q}"
