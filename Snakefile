# adrbench: architecture decision records whose tables are measured.
#
#   snakemake --cores 1 reports/adr0011.md                      the main job
#   snakemake --cores 1 results/cpu/serve/fp8-e4m3/r1/short.json  one bench (its whole round)
#   snakemake --cores 1 results/cpu/eval/fp8-e4m3.json            one accuracy run
#   snakemake --cores 1 results/cpu/profile/auto.json             one profile
#
# What to measure is data: config/config.yaml, config/platforms/, config/decisions/.
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")
BASE = Path(workflow.basedir)
if set("{}") & set(str(BASE)):
    raise WorkflowError(
        f"{BASE}: Snakemake takes braces in a path for a variable; move the project"
    )
sys.path.insert(0, str(BASE / "pythonpath"))

from adrbench import config as configuration
from adrbench.cluster.inside import end_with_batch_script
from adrbench.config import jobs
from adrbench.evidence import canonical

end_with_batch_script()


configfile: BASE / "config/config.yaml"


try:
    RUN = configuration.load(config)
    SITE = configuration.load_site(BASE / RUN.main.cluster.site)
except configuration.ConfigError as error:
    raise WorkflowError(f"the configuration is refused:\n{error}") from None

PLATFORM = RUN.platform
P = PLATFORM.name
RESULTS = f"results/{P}"
LOGS = f"logs/{P}"
ARMS = [arm.name for arm in RUN.serving_arms()]
REFUSALS = [arm.name for arm in PLATFORM.arms if arm.expect_failure is not None]
TIERS = [tier.name for tier in PLATFORM.tiers]
LANGUAGES = RUN.main.report.languages
MODEL = jobs.model_folder(RUN, Path.cwd())


include: "rules/common.smk"
include: "rules/environment.smk"
include: "rules/device.smk"
include: "rules/model.smk"
include: "rules/kernels.smk"
include: "rules/serve.smk"
include: "rules/integrate.smk"
include: "rules/eval.smk"
include: "rules/profile.smk"
include: "rules/claims.smk"
include: "rules/decide.smk"
include: "rules/report.smk"


# Analysis runs where Snakemake runs: seconds of work are not worth a place in a queue.
localrules:
    all,
    verify,
    decide,
    report,
    publish,
    claims,
    claims_table,


rule all:
    default_target: True
    input:
        PUBLISHED,


rule verify:
    input:
        DEVICE,
    message:
        "the device is what config/platforms/{P}.yaml declares"


onsuccess:
    built = [path for path in PUBLISHED if Path(path).is_file()]
    if built:
        print(f"Reports of platform {P}: {', '.join(built)}")
