# What all rules share: the shell line of a job, interpreters, paths of evidence.
import os
from snakemake.settings.types import DeploymentMethod


wildcard_constraints:
    arm=r"[a-z0-9][a-z0-9_.-]*",
    round=r"\d+",
    name=r"[A-Za-z0-9][A-Za-z0-9_.-]*",
    adr=r"adr[a-z0-9]+",


_METHODS = set(workflow.deployment_settings.deployment_method)
CONDA = DeploymentMethod.CONDA in _METHODS
CONTAINER = DeploymentMethod.APPTAINER in _METHODS

# Jobs run in the interpreter that runs Snakemake; inside a conda environment or a container, in its own.
PYTHON = "python3" if CONDA or CONTAINER else sys.executable
# With --sdm conda the serving and evaluating interpreters are Snakemake's own: two jobs write down where.
SERVE_PYTHON = (
    f"@{RESULTS}/environment/serve.json"
    if CONDA
    else "python3" if CONTAINER else RUN.python("serve")
)
EVAL_PYTHON = f"@{RESULTS}/environment/eval.json" if CONDA else RUN.python("eval")
ENVIRONMENT = {
    role: [f"{RESULTS}/environment/{role}.json"] if CONDA else []
    for role in ("serve", "eval")
}


# One shell line for every job. The specification is one quoted word, so that no value of the configuration
# is read by the shell; tee shows progress and keeps the log; without -i Ctrl-C would end it before the job.
# Caches of vLLM, Triton and torch go into the working folder: nothing is written outside it.
CACHES = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".cache/config",
    "TRITON_CACHE_DIR": ".cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/inductor",
}


def quoted(value):
    """One word of a shell line that Snakemake formats: quoted, with braces doubled."""
    return shlex.quote(str(value)).replace("{", "{{").replace("}", "}}")


PATHS = " ".join(
    [
        f"PYTHONPATH={quoted(BASE / 'pythonpath')}${{{{PYTHONPATH:+:$PYTHONPATH}}}}",
        "PYTHONUNBUFFERED=1",
        *(f'{name}="$PWD/{folder}"' for name, folder in CACHES.items()),
    ]
)
PROJECT = f"{PATHS} {quoted(PYTHON)} "


def constant(value):
    """A parameter as it is: in a plain text Snakemake would take `{word}` for a wildcard."""
    return lambda wildcards: value


def command(python, stage, lease):
    leased = f"--devices {{resources.device}} --vendor {PLATFORM.device.vendor} "
    return (
        f"{PATHS} {python} -m adrbench.{stage} --spec {{params.spec:q}} --output {{output.evidence:q}} "
        f"{leased if lease else ''}"
        "2>&1 | tee -i {log:q}"
    )


def job(stage):
    """Shell line of a job that runs in the analysis interpreter and uses no device."""
    return command(quoted(PYTHON), stage, False)


def device_job(stage):
    """The same, with devices leased from the host (or granted by the queue)."""
    return command(quoted(PYTHON), stage, True)


def serving_job(stage):
    """Shell line of a job that runs in the serving interpreter itself (it needs torch and Triton)."""
    python = "python3" if CONDA or CONTAINER else "{params.python:q}"
    return command(python, stage, True)


def devices(count):
    """Resources of a job that uses ``count`` devices: what a queue is asked for; without one, `device` counts."""
    return SITE.resources(count)


def arm_devices():
    """Resources of a job of one arm: a tensor-parallel arm takes several devices."""

    def of(name):
        return lambda wildcards: SITE.resources(
            jobs.devices(RUN, known_arm(wildcards))
        )[name]

    return devices(1) | {
        name: of(name) for name in ("device", "gres") if name in devices(1)
    }


if SITE.setup and "SLURM_JOB_ID" in os.environ:
    shell.prefix("".join(f"{line} && " for line in SITE.setup))


def known_arm(wildcards):
    """The arm a wildcard names.

    Raises:
        WorkflowError: it is not an arm of this platform.
    """
    names = [arm.name for arm in PLATFORM.arms]
    if wildcards.arm not in names:
        raise WorkflowError(
            f"{wildcards.arm!r} is not an arm of platform {P}; there are {', '.join(names)}"
        )
    return PLATFORM.arm(wildcards.arm)


DEVICE = f"{RESULTS}/device.json"
MODEL_EVIDENCE = f"{RESULTS}/model.json"
KERNELS = f"{RESULTS}/kernels.json"
CEILING = f"{RESULTS}/ceiling.json"
CLAIMS = f"{RESULTS}/claims.json"
BASELINE = PLATFORM.baseline.name
REFERENCE = f"{RESULTS}/serve/{BASELINE}/r1/{TIERS[0]}.json"


def serve_evidence():
    """Evidence of every arm, round and tier: {arm: {round: {tier: path}}}."""
    return {
        arm.name: {
            str(k): {
                tier: f"{RESULTS}/serve/{arm.name}/r{k}/{tier}.json" for tier in TIERS
            }
            for k in RUN.rounds(arm)
        }
        for arm in RUN.serving_arms()
    }


def all_evidence():
    """Paths of all evidence by stage, as decisions and reports read them."""
    names = [mechanism.name for mechanism in PLATFORM.integrate] + [
        f"refusal-{arm}" for arm in REFUSALS
    ]
    profiled = PLATFORM.profile.arms or [BASELINE]
    return {
        "device": DEVICE,
        "model": MODEL_EVIDENCE,
        "kernels": KERNELS,
        "serve": serve_evidence(),
        "eval": {arm: f"{RESULTS}/eval/{arm}.json" for arm in ARMS},
        "integrate": {name: f"{RESULTS}/integrate/{name}.json" for name in names},
        "profile": {arm: f"{RESULTS}/profile/{arm}.json" for arm in profiled},
        "ceiling": CEILING,
        "claims": CLAIMS if RUN.main.claims.enabled else None,
    }


def leaves(tree):
    """All paths of a nested dictionary of paths."""
    if tree is None:
        return []
    if isinstance(tree, str):
        return [tree]
    return [path for branch in tree.values() for path in leaves(branch)]


def integration(wildcards):
    for mechanism in PLATFORM.integrate:
        if mechanism.name == wildcards.name:
            return jobs.integrate(RUN, mechanism, MODEL, SERVE_PYTHON, REFERENCE)
    names = ", ".join(mechanism.name for mechanism in PLATFORM.integrate)
    raise WorkflowError(
        f"integrate: {wildcards.name!r} is unknown; platform {P} has {names}"
    )


SUFFIX = {"en": ".md", "zh": ".zh.md"}
SUFFIXES = r"(\.zh)?\.md"
LANGUAGE_OF = {suffix: language for language, suffix in SUFFIX.items()}
