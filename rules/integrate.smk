# ADR 0011 block A: flag, priority and registered class, each exercised as far as the platform goes.
rule integrate:
    input:
        REFERENCE,
        ENVIRONMENT["serve"],
    output:
        evidence=f"{RESULTS}/integrate/{{name}}.json",
    log:
        f"{LOGS}/integrate/{{name}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **devices(PLATFORM.device.devices),
    params:
        spec=lambda wildcards: specification(integration(wildcards)),
        code=code_digest("integrate"),
    message:
        "integrate: {wildcards.name} (log: {log})"
    shell:
        device_job("integrate")


# A mechanism that the platform cannot have is recorded with its reason: no device is leased or queued for.
BLOCKED = [mechanism.name for mechanism in PLATFORM.integrate if mechanism.blocked]
if BLOCKED:

    rule integrate_blocked:
        output:
            evidence=f"{RESULTS}/integrate/{{name}}.json",
        log:
            f"{LOGS}/integrate/{{name}}.log",
        wildcard_constraints:
            name="|".join(map(re.escape, BLOCKED)),
        conda:
            "../envs/analysis.yaml"
        container:
            PLATFORM.serve.container
        params:
            spec=lambda wildcards: specification(integration(wildcards)),
            code=code_digest("integrate"),
        message:
            "integrate: {wildcards.name} is blocked here (log: {log})"
        shell:
            job("integrate")

    ruleorder: integrate_blocked > integrate


# Arms that must refuse to start on this architecture: failing as they should is what passes.
rule refusal:
    input:
        DEVICE,
        KERNELS,
        MODEL_EVIDENCE,
        ENVIRONMENT["serve"],
    output:
        evidence=f"{RESULTS}/integrate/refusal-{{arm}}.json",
    log:
        f"{LOGS}/integrate/refusal-{{arm}}.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **arm_devices(),
    params:
        spec=lambda wildcards: specification(
            jobs.refusal(RUN, known_arm(wildcards), MODEL, SERVE_PYTHON)
        ),
        code=code_digest("integrate"),
    message:
        "integrate: arm {wildcards.arm} must refuse to start here (log: {log})"
    shell:
        device_job("integrate")


ruleorder: refusal > integrate
