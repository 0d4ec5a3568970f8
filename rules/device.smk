# What the host is, probed and held against its declaration. Everything else waits for it.
rule device:
    input:
        ENVIRONMENT["serve"],
    output:
        evidence=DEVICE,
    log:
        f"{LOGS}/device.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **devices(PLATFORM.device.devices),
    params:
        spec=lambda wildcards: specification(jobs.device(RUN, SERVE_PYTHON)),
        code=code_digest("device"),
    message:
        "device: is this host what platform {P} declares? (log: {log})"
    shell:
        device_job("device")
