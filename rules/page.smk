# The page of a platform: all decisions, figures, tidy tables; and what they need from outside the run.
import os

from adrbench.report.figures import names as figure_names
from adrbench.report.tidy import names as tidy_names

DATA = [f"reports/{P}/data/{name}" for name in tidy_names.files()]
FIGURES = [f"reports/{P}/figures/{name}" for name in figure_names.files()]
PAGE = f"reports/{P}/index.html"
PUBLISHED_PAGE = "reports/index.html"

# Results of other tools that were imported, and kernel benchmarks: files that no rule makes.
IMPORTED = sorted(map(str, Path(RESULTS, "imported").glob("*.json")))
_MEASURED_KERNELS = sorted(map(str, Path(RESULTS, "kernels").glob("decode*.json")))
_PUBLISHED_KERNELS = [
    os.path.relpath(path)
    for path in (BASE / "docs/evidence" / P).glob("decode_main.json")
]
KERNEL_BENCHMARKS = _MEASURED_KERNELS or _PUBLISHED_KERNELS
PAGE_EVIDENCE = {adr: report_evidence(adr) for adr in RUN.main.adrs}
PAGE_INPUTS = [*dict.fromkeys(leaves(PAGE_EVIDENCE)), *IMPORTED, *KERNEL_BENCHMARKS]
PAGE_SHELL = " ".join(
    [
        PROJECT,
        "-m adrbench.report.{params.part} --spec {params.spec:q}",
        "--output {params.output:q} > {log:q} 2>&1",
    ]
)


rule tidy:
    input:
        PAGE_INPUTS,
    output:
        [
            (
                report(
                    path,
                    category="Data",
                    caption="captions/data.rst",
                    labels={"table": Path(path).stem},
                )
                if path.endswith(".csv")
                and Path(path).stem in ("rounds", "gates", "options")
                else path
            )
            for path in DATA
        ],
    log:
        f"{LOGS}/report/tidy.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        part="tidy",
        spec=lambda wildcards: page_spec(),
        output=lambda wildcards, output: str(Path(output[0]).parent),
        code=code_digest("report"),
    message:
        "tidy: tables of platform {P} (log: {log})"
    shell:
        PAGE_SHELL


rule figures:
    input:
        PAGE_INPUTS,
    output:
        [
            (
                report(
                    path,
                    category="Figures",
                    caption="captions/figure.rst",
                    labels={
                        "figure": figure_names.texts()[f"{Path(path).stem}.title"][
                            "en"
                        ]
                    },
                )
                if path.endswith(".svg") and not path.endswith(".zh.svg")
                else path
            )
            for path in FIGURES
        ],
    log:
        f"{LOGS}/report/figures.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        part="figures",
        spec=lambda wildcards: page_spec(),
        output=lambda wildcards, output: str(Path(output[0]).parent),
        code=code_digest("report"),
    message:
        "figures: of platform {P} (log: {log})"
    shell:
        PAGE_SHELL


rule page:
    input:
        PAGE_INPUTS,
        f"reports/{P}/figures/figures.json",
        f"reports/{P}/data/schema.json",
    output:
        PAGE,
    log:
        f"{LOGS}/report/page.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        part="page",
        spec=lambda wildcards: page_spec(),
        output=lambda wildcards, output: output[0],
        code=code_digest("report"),
    message:
        "page: {output} (log: {log})"
    shell:
        PAGE_SHELL


# The page rests on every decision; an ADR does not wait for it.
rule publish_page:
    input:
        PUBLISHED,
        page=PAGE,
    output:
        PUBLISHED_PAGE,
    log:
        f"{LOGS}/report/publish_page.log",
    conda:
        "../envs/analysis.yaml"
    container:
        PLATFORM.serve.container
    params:
        beside=[f"reports/{P}/{name}" for name in DOCUMENT_FILES],
    message:
        "page: the page of platform {P} is now reports/index.html"
    shell:
        " ".join(
            [
                PROJECT,
                "-m adrbench.report.publish {input.page:q} --to reports",
                "--beside {params.beside:q} 2> {log:q}",
            ]
        )
