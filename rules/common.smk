# What all rules share: the shell line of a job, interpreters, paths of evidence.
import json
import os
import re

from adrbench.config.host_cpu import unserved
from adrbench.decide.interleave import Order
from adrbench.evidence import canonical
from adrbench.handover import hand_over
from snakemake.settings.types import DeploymentMethod


wildcard_constraints:
    arm=r"[a-z0-9][a-z0-9_.-]*",
    round=r"\d+",
    name=r"[A-Za-z0-9][A-Za-z0-9_.-]*",
    adr=r"adr[a-z0-9]+",
    look=r"\d+",


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
# is read by the shell (a long one lies in a file: adrbench.handover); tee shows progress and keeps the log; without
# -i Ctrl-C would end it before the job.
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


# Specifications that are too long for a command line, by digest; `make clean` removes them.
SPECIFICATIONS = Path(".snakemake/specifications")


def specification(value):
    """What a job gets as `params.spec`: its specification, or the file that holds it."""
    return hand_over(canonical(value), SPECIFICATIONS, write=not workflow.dryrun)


def project(arguments):
    """Shell line of a command of the project that is no job."""
    return PROJECT + arguments


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
    """The same, with devices leased from the host (or granted by the queue).

    By `--devices` in it a merge of archives tells what was measured from what is computed (src/archive/computed.py).
    """
    return command(quoted(PYTHON), stage, True)


def serving_job(stage):
    """Shell line of a job that runs in the serving interpreter itself (it needs torch and Triton)."""
    python = "python3" if CONDA or CONTAINER else "{params.python:q}"
    return command(python, stage, True)


def devices(count):
    """Resources of a job that uses ``count`` devices: what a queue is asked for; without one, `device` counts."""
    return SITE.resources(count)


BASELINE = PLATFORM.baseline.name
ARM_BY_NAME = {arm.name: arm for arm in PLATFORM.arms}
DEVICES_OF = {name: servers.devices(RUN, arm) for name, arm in ARM_BY_NAME.items()}


def arm_devices():
    """Resources of a job of one arm: a tensor-parallel arm takes several devices.

    Functions only where arms differ: Snakemake calls each of them for each job.
    """
    if len(set(DEVICES_OF.values())) == 1:
        return devices(DEVICES_OF[BASELINE])

    def of(name):
        return lambda wildcards: SITE.resources(DEVICES_OF[known_arm(wildcards).name])[
            name
        ]

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
    if wildcards.arm not in ARM_BY_NAME:
        raise WorkflowError(
            f"{wildcards.arm!r} is not an arm of platform {P}; there are {', '.join(ARM_BY_NAME)}"
        )
    return ARM_BY_NAME[wildcards.arm]


def served_arm(wildcards):
    """The arm a wildcard names, of a job that measures it.

    Raises:
        WorkflowError: it is not an arm of this platform, or must refuse to start.
    """
    arm = known_arm(wildcards)
    if arm.expect_failure is None:
        return arm
    raise WorkflowError(
        f"arm {arm.name} of platform {P} must refuse to start here ({unserved(arm)}): there is nothing to measure; "
        f"{RESULTS}/integrate/refusal-{arm.name}.json tries it"
    )


STARTS = Order(
    {arm.name: len(RUN.rounds(arm)) for arm in RUN.serving_arms()},
    PLATFORM.serve.order_seed,
)


def start_priority(wildcards):
    """Priority of one server start (rules/serve.smk); 0 for an arm that is none: its job says so."""
    planned = wildcards.arm in STARTS.rounds
    return STARTS.priority(wildcards.arm, int(wildcards.round)) if planned else 0


DEVICE = f"{RESULTS}/device.json"
MODEL_EVIDENCE = f"{RESULTS}/model.json"
KERNELS = f"{RESULTS}/kernels.json"
CEILING = f"{RESULTS}/ceiling.json"
CLAIMS = f"{RESULTS}/claims.json"
NOISE_FLOOR = f"{RESULTS}/noise_floor.json"
AGREEMENT = f"{RESULTS}/agreement/compare.json"
CALIBRATION = f"{RESULTS}/calibrate.json"
MEMORY = f"{RESULTS}/memory.json"
REFERENCE = f"{RESULTS}/serve/{BASELINE}/r1/{TIERS[0]}.json"


def serve_paths(rounds):
    """Evidence of rounds of arms: {arm: {round: {tier: path}}}."""
    return {
        arm: {
            str(k): {tier: f"{RESULTS}/serve/{arm}/r{k}/{tier}.json" for tier in TIERS}
            for k in numbers
        }
        for arm, numbers in rounds.items()
    }


def replays():
    """Evidence of every replayed text: {arm: {round: path}}; the baseline's second round is the A/A control."""
    return {
        arm.name: {
            str(k): f"{RESULTS}/agreement/{arm.name}/r{k}.json"
            for k in range(1, 3 if arm.baseline else 2)
        }
        for arm in RUN.serving_arms()
    }


def scales(wildcards):
    """Calibration evidence that the arm of a job needs before it is served."""
    simulated = served_arm(wildcards).kv_simulation
    return [simulated.scales] if simulated and simulated.scales else []


def pools():
    """Evidence that names the KV pool of arms whose backend stores their scheme, of decisions on memory: {arm: path}."""
    asked = {
        arm.name
        for decision in RUN.decisions.values()
        if "memory" in decision.stages
        for arm in inputs.arms(decision, PLATFORM)
    }
    stored = [
        arm.name
        for arm in RUN.serving_arms()
        if arm.name in asked and arm.measures and arm.kv_simulation is None
    ]
    if reads_answers(PLATFORM.agreement):
        return {arm: replays()[arm]["1"] for arm in stored}
    return {arm: f"{RESULTS}/serve/{arm}/r1/{TIERS[0]}.json" for arm in stored}


# Arms that are profiled.
PROFILED = PLATFORM.profile.arms or [BASELINE]


def profile_names():
    """Profiles of the run: each profiled arm at the bounded load, then at each tier's."""
    return PROFILED + [
        f"{arm}/{tier}" for arm in PROFILED for tier in PLATFORM.profile.tiers
    ]


def counter_evidence():
    """Evidence of the deeper pass by arm; empty where the platform does not ask for it."""
    if not PLATFORM.profile.counters:
        return {}
    return {arm: f"{RESULTS}/counters/{arm}.json" for arm in PROFILED}


def adaptive_rounds(adr):
    """{arm: rounds} that an adaptive run of a decision measured; empty where there was none."""
    path = Path(f"{RESULTS}/adaptive/{adr}.json")
    return json.loads(path.read_text())["adaptive"]["rounds"] if path.is_file() else {}


def serve_evidence(adr=None):
    """Evidence of every arm, round and tier: those of the configuration, and those an adaptive run of `adr` added."""
    added = adaptive_rounds(adr) if adr else {}
    return serve_paths(
        {
            arm.name: range(1, max(len(RUN.rounds(arm)), added.get(arm.name, 0)) + 1)
            for arm in RUN.serving_arms()
        }
    )


def baseline_evidence():
    """{round: {tier: path}} of the baseline: its configured rounds, and those that adaptive decisions added."""
    rounds = [len(RUN.rounds(PLATFORM.baseline))]
    rounds += [adaptive_rounds(adr).get(BASELINE, 0) for adr in RUN.main.adrs]
    return serve_paths({BASELINE: range(1, max(rounds) + 1)})[BASELINE]


def reads_answers(section):
    """Whether a section whose jobs read a model's answers is declared, of a platform that has real weights."""
    return section is not None and not PLATFORM.random_weights


def eval_paths(arms):
    """Evidence of accuracy by arm; none where the weights are random, whose answers mean nothing."""
    if PLATFORM.random_weights:
        return {}
    return {arm: f"{RESULTS}/eval/{arm}.json" for arm in arms}


def real_weights(wildcards):
    """No input: refuses to measure the answers of a model whose weights are random.

    Raises:
        WorkflowError: they are.
    """
    if PLATFORM.random_weights:
        raise WorkflowError(
            f"platform {P} serves random weights (model.source shape, or --load-format dummy): no accuracy, agreement "
            "or calibration can be measured there; ask for it on a platform with a real model"
        )
    return []


def all_evidence(adr=None):
    """Paths of all evidence by stage, as decisions and reports read them."""
    names = [mechanism.name for mechanism in PLATFORM.integrate] + [
        f"refusal-{arm}" for arm in REFUSALS
    ]
    return {
        "device": DEVICE,
        "model": MODEL_EVIDENCE,
        "kernels": KERNELS,
        "serve": serve_evidence(adr),
        "eval": eval_paths(ARMS),
        "integrate": {name: f"{RESULTS}/integrate/{name}.json" for name in names},
        "profile": {name: f"{RESULTS}/profile/{name}.json" for name in profile_names()},
        "ceiling": CEILING,
        "claims": CLAIMS if RUN.main.claims.enabled else None,
        "agreement": AGREEMENT if reads_answers(PLATFORM.agreement) else None,
        "memory": MEMORY,
        "calibrate": CALIBRATION if reads_answers(PLATFORM.calibrate) else None,
    }


def evidence_of(adr):
    """Paths of the evidence that one decision rests on.

    Raises:
        WorkflowError: it is not a decision of this configuration.
    """
    if adr not in RUN.decisions:
        raise WorkflowError(
            f"{adr!r} is not among `adrs` of the configuration; there are {', '.join(RUN.decisions)}"
        )
    return inputs.evidence(RUN.decisions[adr], PLATFORM, all_evidence(adr))


def claims_evidence():
    """What the documents' statements are held against: evidence of the decisions that `claims.decisions` names.

    They speak of accelerators (`arch_pattern` of their checks): on a CPU no measurement can settle one.
    """
    if PLATFORM.device.vendor == "cpu":
        return [DEVICE]
    decisions = [adr for adr in RUN.main.claims.decisions if adr in RUN.decisions]
    parts = [evidence_of(adr) for adr in decisions]
    stages = ("device", "serve", "eval", "profile")
    return sorted(
        {path for part in parts for stage in stages for path in leaves(part[stage])}
        | {DEVICE}
    )


def unnamed_evidence():
    """Evidence of the arms that no decision names: measured with everything, reported nowhere."""
    named = {
        arm.name
        for decision in RUN.decisions.values()
        for arm in inputs.arms(decision, PLATFORM)
    }
    everything = all_evidence()
    return [
        path
        for stage in inputs.BY_ARM
        for arm, tree in everything[stage].items()
        if arm not in named
        for path in leaves(tree)
    ]


def figures_of(wildcards):
    """Figures that a report shows: those of a strategy."""
    if getattr(RUN.decisions.get(wildcards.adr), "kind", None) != "strategy":
        return []
    suffix = wildcards.suffix.replace(".md", ".svg")
    return [f"reports/{P}/figures/{wildcards.adr}-pareto{suffix}"]


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
