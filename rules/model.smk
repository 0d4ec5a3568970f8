# The model: the embedded one is converted into a Hugging Face folder, a shape is written, a named folder is checked.
_CONVERTED = (
    {} if PLATFORM.model.source == "folder" else {"folder": directory(f"models/{P}")}
)


rule model:
    input:
        DEVICE,
        ENVIRONMENT["serve"],
    output:
        **_CONVERTED,
        evidence=MODEL_EVIDENCE,
    log:
        f"{LOGS}/model.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    resources:
        **devices(PLATFORM.device.devices),
    params:
        spec=lambda wildcards: specification(jobs.model(RUN, MODEL, SERVE_PYTHON)),
        code=code_digest("model"),
    message:
        "model: {MODEL} (log: {log})"
    shell:
        device_job("model")
