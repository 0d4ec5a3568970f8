# Where the time goes: measured bandwidth ceiling, then a profile of the baseline.
rule ceiling:
    input:
        DEVICE,
        ENVIRONMENT["serve"],
    output:
        evidence=CEILING,
    log:
        f"{LOGS}/ceiling.log",
    conda:
        "../envs/serve.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **devices(1),
    params:
        spec=lambda wildcards: specification(jobs.ceiling(RUN)),
        code=code_digest("profile"),
        python=constant(RUN.python("serve")),
    message:
        "profile: memory-bandwidth ceiling (log: {log})"
    shell:
        serving_job("profile.ceiling")


rule profile:
    input:
        DEVICE,
        KERNELS,
        MODEL_EVIDENCE,
        CEILING,
        ENVIRONMENT["serve"],
    output:
        evidence=f"{RESULTS}/profile/{{arm}}.json",
    log:
        f"{LOGS}/profile/{{arm}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **arm_devices(),
    params:
        spec=lambda wildcards: specification(
            jobs.profile(RUN, served_arm(wildcards), MODEL, SERVE_PYTHON, CEILING)
        ),
        code=code_digest("profile"),
    message:
        "profile: arm {wildcards.arm} (log: {log})"
    shell:
        device_job("profile")


# The same profile at a tier's own load: for arms and tiers that the platform names.
if PLATFORM.profile.tiers:

    rule profile_tier:
        input:
            DEVICE,
            KERNELS,
            MODEL_EVIDENCE,
            CEILING,
            ENVIRONMENT["serve"],
        output:
            evidence=f"{RESULTS}/profile/{{arm}}/{{tier}}.json",
        log:
            f"{LOGS}/profile/{{arm}}.{{tier}}.log",
        wildcard_constraints:
            tier="|".join(PLATFORM.profile.tiers),
        conda:
            "../envs/analysis.yaml"
        container:
            PLATFORM.serve.container
        resources:
            **arm_devices(),
        params:
            spec=lambda wildcards: specification(
                jobs.profile(
                    RUN,
                    served_arm(wildcards),
                    MODEL,
                    SERVE_PYTHON,
                    CEILING,
                    wildcards.tier,
                )
            ),
            code=code_digest("profile"),
        message:
            "profile: arm {wildcards.arm}, tier {wildcards.tier} (log: {log})"
        shell:
            device_job("profile")


# Memory traffic by hardware counters, where the vendor's tool is installed; says why where it is not.
rule counters:
    input:
        DEVICE,
        MODEL_EVIDENCE,
        ENVIRONMENT["serve"],
    output:
        evidence=f"{RESULTS}/counters/{{arm}}.json",
    log:
        f"{LOGS}/counters/{{arm}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **arm_devices(),
    params:
        spec=lambda wildcards: specification(
            jobs.counters(RUN, served_arm(wildcards), MODEL, SERVE_PYTHON)
        ),
        code=code_digest("counters"),
    message:
        "counters: arm {wildcards.arm} (log: {log})"
    shell:
        device_job("profile.counters")


rule profile_figures:
    input:
        leaves(all_evidence()["profile"]),
        CEILING,
    output:
        [f"reports/{P}/profile/{name}{{zh}}.svg" for name in records.FIGURES],
    log:
        f"{LOGS}/report/profile{{zh}}.log",
    wildcard_constraints:
        zh=r"(\.zh)?",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        spec=lambda wildcards: specification(
            records.figures(
                RUN,
                "zh" if wildcards.zh else "en",
                CEILING,
                all_evidence()["profile"],
            )
        ),
        code=code_digest("figures"),
    message:
        "profile: figures (log: {log})"
    shell:
        PROJECT
        + "-m adrbench.profile.draw --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
