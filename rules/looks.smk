# What the looks of an adaptive decision read (rules/adaptive.smk).
from adrbench.config import adaptive as looks


def look_before(wildcards):
    """Path of the look before; None at the first. Reading it waits until it is made.

    Raises:
        WorkflowError: there is no such look in the plan.
    """
    adr, number = wildcards.adr, int(wildcards.look)
    plan = decision_plan(adr)
    if number not in plan.looks:
        raise WorkflowError(
            f"{adr}: no look is planned at {number} rounds; adaptive.first is {plan.first}, adaptive.most {plan.most}"
        )
    if number == plan.first:
        return None
    return checkpoints.adaptive.get(adr=adr, look=number - 1).output.evidence


def decision_plan(adr):
    """The decision's `adaptive` section.

    Raises:
        WorkflowError: it is no decision of config/config.yaml that compares arms.
    """
    try:
        return looks.comparison(RUN, adr).adaptive
    except ValueError as error:
        raise WorkflowError(f"`adrs` in config/config.yaml: {error}") from None


def accounted(path):
    """`adaptive` of a look's document."""
    return json.loads(Path(path).read_text(encoding="utf-8"))["adaptive"]


def look_evidence(wildcards):
    """Evidence of a look, as decide jobs name it."""
    before = look_before(wildcards)
    earlier = accounted(before) if before else None
    if earlier is not None and not earlier["next"]:
        raise WorkflowError(
            f"{wildcards.adr}: it stopped at {earlier['looks'][-1]['rounds']} rounds "
            f"({earlier['stop']}); there is no later look"
        )
    numbers = looks.rounds(RUN, wildcards.adr, int(wildcards.look), earlier)
    fixed = {
        name: path
        for name, path in evidence_of(wildcards.adr).items()
        if name in ("device", "model", "kernels", "integrate")
    }
    # Accuracy is measured for a decision with a gate on it.
    gated = any(
        gate.metric == "accuracy_delta"
        for gate in looks.comparison(RUN, wildcards.adr).gates
    )
    return fixed | {
        "serve": serve_paths({arm: range(1, n + 1) for arm, n in numbers.items()}),
        "eval": eval_paths(numbers) if gated else {},
    }


def look_inputs(wildcards):
    before = look_before(wildcards)
    return leaves(look_evidence(wildcards)) + ([before] if before else [])


def look_spec(wildcards):
    return specification(
        looks.spec(
            RUN,
            wildcards.adr,
            int(wildcards.look),
            look_evidence(wildcards),
            look_before(wildcards),
        )
    )


def last_look(wildcards):
    """The look at which the decision stopped; each look that is still to come is waited for."""
    for number in decision_plan(wildcards.adr).looks:
        made = checkpoints.adaptive.get(adr=wildcards.adr, look=number).output.evidence
        if not accounted(made)["next"]:
            return made
    raise WorkflowError(f"{made}: a look asks for rounds beyond the plan")


def decided_from(adr):
    """Evidence of a decision as its job names it: a comparison is held against the platform's noise floor, too."""
    compares = hasattr(RUN.decisions[adr], "options")
    return evidence_of(adr) | ({"noise_floor": NOISE_FLOOR} if compares else {})


def decision_inputs(wildcards):
    """What a verdict is made of: the decision's evidence, or the document of an adaptive run."""
    if adaptive_rounds(wildcards.adr):
        return f"{RESULTS}/adaptive/{wildcards.adr}.json"
    evidence_of(wildcards.adr)  # names what there is, when it is none
    informing = records.accuracy_elsewhere(RUN, wildcards.adr)
    return leaves(decided_from(wildcards.adr)) + leaves(informing)


def decide_spec(adr):
    """Specification of a decide job."""
    if adaptive_rounds(adr):
        return {"platform": P, "adaptive": f"{RESULTS}/adaptive/{adr}.json"}
    return records.decide(RUN, adr, decided_from(adr))


def decision_spec(wildcards):
    return specification(decide_spec(wildcards.adr))
