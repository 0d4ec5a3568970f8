"""The three files of a lock, as text. Pure apart from reading the templates."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jinja2
from adrbench.evidence import digest_text
from adrbench.lock.mechanism import AITER, PRIORITY_VARIABLES, Mechanism
from adrbench.lock.spec import LockSpec
from adrbench.serve.server import LOOPBACK, OFFLINE, compiled_folder

FOLDER = Path(__file__).parent / "templates"
METADATA = "adrbench-0.1.0.dist-info"


def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (shell and Markdown; every value of the shell script goes through `sh`)
    )
    made.filters["sh"] = shlex.quote
    return made


def files(spec: LockSpec, arm: str, option: str, mechanism: Mechanism, digest: str) -> dict[str, str]:
    """``serve.sh``, ``Dockerfile.fragment`` and ``RESTORE.md`` of one arm.

    Args:
        digest: of the evidence that the decision rests on.
    """
    server = spec.arms[arm]
    plugin = json.dumps(server.plugin, sort_keys=True) if server.plugin else ""
    variables = OFFLINE | LOOPBACK | server.env
    watched = (AITER, *PRIORITY_VARIABLES)
    values = {
        "number": spec.number,
        "platform": spec.platform,
        "adr": spec.adr,
        "option": " ".join(option.split()),
        "arm": arm,
        "mechanism": mechanism,
        "digest": digest,
        "python": server.python,
        "image_python": server.python if "/" not in server.python else "python3",
        "model": server.model,
        "args": server.args,
        "env": sorted(variables.items()),
        "foreign": [name for name in watched if name not in server.env],
        "kept_variables": [n for n in watched if n in server.env] if mechanism.name == "flag" else [],
        "plugin": plugin,
        "compiled": compiled_folder(server.plugin) if plugin else "",
        "package": spec.package,
        "metadata": METADATA,
    }
    made = environment()
    script = made.get_template("serve.sh.j2").render(values)
    rest = {
        name: made.get_template(f"{name}.j2").render(values, script_digest=digest_text(script))
        for name in ("Dockerfile.fragment", "RESTORE.md")
    }
    return {"serve.sh": script, **rest}
