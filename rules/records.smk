# What the rules of an ADR share: its specifications, what is published along with it, the mark of staleness.
import functools

from adrbench.evidence import EvidenceError
from adrbench.report import status as report_status


def report_evidence(adr):
    """What a report is made from: the decision's evidence, and what was derived from it."""
    derived = {
        "decide": f"{RESULTS}/decide/{adr}.json",
        "history": f"{RESULTS}/history/{adr}.json",
        "lock": f"reports/{P}/lock/{adr}/lock.json",
    }
    mine = evidence_of(adr)
    counted = counter_evidence() if mine.get("profile") else {}
    elsewhere = records.accuracy_elsewhere(RUN, adr)
    shown = {"elsewhere": elsewhere} if elsewhere else {}
    return mine | {"counters": counted} | shown | derived


def decision_of(adr):
    evidence_of(adr)  # names what there is, when it is none
    return RUN.decisions[adr]


def report_spec(adr, language):
    return specification(records.report(RUN, adr, language, report_evidence(adr)))


def published_along(wildcards):
    """Documents that are published with this one."""
    if wildcards.document == "claims":
        return []
    decision = decision_of(wildcards.document)
    names = [name for name in decision.together if name in RUN.decisions]
    if RUN.main.claims.enabled and "claims" in decision.stages:
        names.append("claims")
    return [
        f"reports/{name}{SUFFIX[language]}" for name in names for language in LANGUAGES
    ]


def lock_spec(adr):
    verdict = f"{RESULTS}/decide/{adr}.json"
    return records.lock(RUN, adr, verdict, MODEL, SERVE_PYTHON)


@functools.cache
def page_spec():
    """Specification of the page, its figures and tables: made only when one of their jobs is planned."""
    return specification(
        records.page(
            RUN,
            PAGE_EVIDENCE,
            imported=IMPORTED,
            kernels=KERNEL_BENCHMARKS,
            claim_files=(
                [f"{BASE}/config/claims/{name}.yaml" for name in RUN.main.claims.files]
                if RUN.main.claims.enabled
                else []
            ),
            documents=DOCUMENT_FILES,
        )
    )


# Whatever ran, a report whose evidence changed must say so.
def mark_stale():
    try:
        stale = [s for s in report_status.refresh(Path("reports")) if s.changes]
    except (EvidenceError, OSError) as error:
        print(f"status of the reports: {error}", file=sys.stderr)
        return
    for state in stale:
        print(f"{state.seal.platform}/{state.seal.adr} is {state.word}: build it again")
