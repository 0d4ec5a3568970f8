# adrbench: architecture decision records whose tables are measured.
#
#   snakemake --cores 1 reports/adr0011.md                      the main job
#   snakemake --cores 1 results/cpu/serve/fp8-e4m3/r1/short.json  one bench (its whole round)
#   snakemake --cores 1 results/cpu/eval/fp8-e4m3.json            one accuracy run
#   snakemake --cores 1 results/cpu/profile/auto.json             one profile
#   snakemake --cores 1 decide_adr0010                            add rounds until the decision stands
#
#   snakemake --cores 1 --config platform=dcu-bw -- reports/adr0011.md   another platform; the dashes end --config
#
# What to measure is data: config/config.yaml, config/platforms/, config/decisions/.
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")
BASE = Path(workflow.basedir)
if set("{}") & set(str(BASE)):
    raise WorkflowError(
        f"{BASE}: Snakemake takes braces in a path for a variable; move the project"
    )
sys.path.insert(0, str(BASE / "pythonpath"))

from adrbench import scratch

# Before anything that takes time, as a run may be killed at any.
scratch.adopt(*scratch.of_snakemake(workflow))

from adrbench import config as configuration
from adrbench.cluster.inside import end_with_batch_script
from adrbench.config import inputs, jobs, records, servers, targets
from adrbench.config.measuring_code import code_digest
from adrbench.nearest import names_of

end_with_batch_script()


configfile: BASE / "config/config.yaml"


report: "rules/captions/workflow.rst"


try:
    RUN = configuration.load(config)
    SITE = configuration.load_site(BASE / RUN.main.cluster.site)
except configuration.ConfigError as error:
    raise WorkflowError(f"the configuration is refused:\n{error}") from None

PLATFORM = RUN.platform
P = PLATFORM.name
if wrong := targets.of_another_platform(
    sys.argv[1:], P, names_of(BASE / "config/platforms")
):
    raise WorkflowError(wrong)
RESULTS = f"results/{P}"
LOGS = f"logs/{P}"
ARMS = [arm.name for arm in RUN.serving_arms()]
REFUSALS = [arm.name for arm in PLATFORM.arms if arm.expect_failure is not None]
TIERS = [tier.name for tier in PLATFORM.tiers]
LANGUAGES = RUN.main.report.languages
MODEL = servers.model_folder(RUN, Path.cwd())


include: "rules/common.smk"
include: "rules/environment.smk"
include: "rules/device.smk"
include: "rules/model.smk"
include: "rules/kernels.smk"
include: "rules/serve.smk"
include: "rules/integrate.smk"
include: "rules/eval.smk"
include: "rules/calibrate.smk"
include: "rules/agreement.smk"
include: "rules/memory.smk"
include: "rules/profile.smk"
include: "rules/claims.smk"
include: "rules/noise_floor.smk"
include: "rules/looks.smk"
include: "rules/adaptive.smk"
include: "rules/decide.smk"
include: "rules/records.smk"
include: "rules/lock.smk"
include: "rules/report.smk"
include: "rules/figures.smk"
include: "rules/audit.smk"
include: "rules/page.smk"


# Analysis runs where Snakemake runs: seconds of work are not worth a place in a queue.
localrules:
    all,
    verify,
    decide,
    history,
    lock,
    report,
    seal,
    publish,
    status,
    audit,
    claims,
    claims_table,
    tidy,
    figures,
    profile_figures,
    page,
    publish_page,
    memory,
    pareto,


rule all:
    default_target: True
    input:
        PUBLISHED,
        unnamed_evidence(),
        PUBLISHED_PAGE,


rule verify:
    input:
        DEVICE,
    message:
        "the device is what config/platforms/{P}.yaml declares"


onerror:
    mark_stale()


onsuccess:
    mark_stale()
    built = [path for path in [*PUBLISHED, PUBLISHED_PAGE] if Path(path).is_file()]
    if built:
        print(f"Reports of platform {P}: {', '.join(built)}")
