# Statements of the team's documents, checked against vLLM's source and this platform's evidence.
if RUN.main.claims.enabled:

    rule claims:
        input:
            DEVICE,
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
            spec=canonical(jobs.claims(RUN, SERVE_PYTHON)),
            code=jobs.code_digest("claims"),
        message:
            "claims: statements of the documents (log: {log})"
        shell:
            job("claims")
