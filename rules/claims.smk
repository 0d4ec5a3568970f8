# Statements of the team's documents, checked against vLLM's source and this platform's evidence.
if RUN.main.claims.enabled:

    rule claims:
        input:
            claims_evidence(),
            ENVIRONMENT["serve"],
        output:
            evidence=CLAIMS,
        log:
            f"{LOGS}/claims.log",
        conda:
            "../envs/analysis.yaml"
        container:
            PLATFORM.serve.container
        params:
            spec=lambda wildcards: specification(jobs.claims(RUN, SERVE_PYTHON)),
            code=code_digest("claims"),
        message:
            "claims: statements of the documents (log: {log})"
        shell:
            job("claims")

    rule claims_table:
        input:
            CLAIMS,
        output:
            report(
                f"reports/{P}/claims{{suffix}}",
                category="Claims",
                caption="captions/claims.rst",
                labels={"file": "claims{suffix}"},
            ),
        log:
            f"{LOGS}/report/claims{{suffix}}.log",
        wildcard_constraints:
            suffix=SUFFIXES,
        conda:
            "../envs/analysis.yaml"
        container:
            PLATFORM.serve.container
        params:
            files=constant(
                [f"{BASE}/config/claims/{name}.yaml" for name in RUN.main.claims.files]
            ),
            open=constant(f"{BASE}/config/claims/open.yaml"),
            decisions=constant(
                [
                    word
                    for adr in RUN.main.adrs
                    for word in (
                        "--decision",
                        str(BASE / RUN.main.decisions / f"{adr}.yaml"),
                    )
                ]
            ),
            language=lambda wildcards: LANGUAGE_OF[wildcards.suffix],
            code=code_digest("claims"),
        message:
            "claims: {output} (log: {log})"
        shell:
            PROJECT
            + "-m adrbench.claims.table {params.files:q} --evidence {input:q} --open {params.open:q} "
            "{params.decisions:q} --language {params.language} --output {output:q} > {log:q} 2>&1"
