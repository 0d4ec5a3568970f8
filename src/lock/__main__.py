"""Render what an accepted decision changes on the serving host, or say why nothing is rendered.

    python -m adrbench.lock --spec JSON --output reports/<platform>/lock/<adr>/lock.json

Files of an earlier lock that no longer holds are removed: a script that nobody decided for must not stay.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from adrbench.config.section import Text
from adrbench.decide.verdict import Verdict
from adrbench.evidence import EvidenceError, digest_file, write_json, write_text
from adrbench.job import JobError, run, say
from adrbench.lock.mechanism import LockRefused, Mechanism, mechanism_of
from adrbench.lock.render import files
from adrbench.lock.spec import Lock, LockSpec, parse_spec
from adrbench.report.history import evidence_digest
from adrbench.report.lookup import read_decide

NAMES = ("serve.sh", "Dockerfile.fragment", "RESTORE.md")


def winner(spec: LockSpec, verdict: Verdict) -> tuple[str, str] | Text:
    """(option, arm) of an accepted decision, or why there is none."""
    status = verdict.status
    if status.word != "Accepted":
        return Text(en=f"the decision is {status.word}", zh=f"决策状态为 {status.word}")
    arm = next((option.arm for option in verdict.options if option.name == status.option), None)
    if arm is None or status.option is None or arm not in spec.arms:
        raise JobError("lock", f"{spec.verdict}: the accepted option {status.option!r} has no arm of this platform")
    return status.option, arm


def allowed(spec: LockSpec, arm: str) -> Mechanism:
    """The arm's mechanism.

    Raises:
        LockRefused: two are active, or it is one that the decision does not allow.
    """
    found = mechanism_of(spec.arms[arm])
    if found.name not in spec.mechanisms:
        raise LockRefused(f"the arm works by {found.name}; the decision allows {', '.join(spec.mechanisms)}")
    return found


def lock(spec: LockSpec, verdict: Verdict) -> tuple[Lock, dict[str, str]]:
    """The document without digests, and the files by name."""
    base = Lock(platform=spec.platform, adr=spec.adr, state="none", reason=Text(en="", zh=""))
    base.evidence_digest = evidence_digest(verdict.evidence)
    if not spec.arms:
        base.reason = Text(en="this record chooses no served configuration", zh="本记录不选择 serving 配置")
        return base, {}
    found = winner(spec, verdict)
    if isinstance(found, Text):
        return base.model_copy(update={"state": "open", "reason": found}), {}
    option, arm = found
    base = base.model_copy(update={"option": option, "arm": arm})
    try:
        mechanism = allowed(spec, arm)
    except LockRefused as refused:
        reason = Text(en=str(refused), zh=f"被拒绝: {refused}")
        return base.model_copy(update={"state": "refused", "reason": reason}), {}
    rendered = files(spec, arm, option, mechanism, base.evidence_digest)
    told = Text(en=f"{option}, by {mechanism.name}", zh=f"{option}, 方式: {mechanism.name}")
    state = {"state": "locked", "reason": told, "mechanism": mechanism.name, "backend": mechanism.backend}
    return base.model_copy(update=state), rendered


def work(raw: dict[str, Any], output: Path) -> None:
    spec = parse_spec(raw)
    try:
        verdict = Verdict.model_validate(read_decide(spec.verdict))
    except EvidenceError as error:
        raise JobError("evidence", str(error)) from None
    document, rendered = lock(spec, verdict)
    for name in NAMES:
        path = output.parent / name
        if name in rendered:
            write_text(path, rendered[name])
            document.files[name] = digest_file(path)
        else:
            path.unlink(missing_ok=True)
    if "serve.sh" in rendered:
        os.chmod(output.parent / "serve.sh", 0o755)  # noqa: S103 (a script, without secrets, for others to start)
    write_json(output, document.model_dump(mode="json"))
    say(f"{spec.adr}: {document.state}: {document.reason.en}")


if __name__ == "__main__":
    run("lock", work)
