"""The guide to claim files: every check with its arguments and fields, from the register itself.

python -m adrbench.claims.guide > config/claims/README.md
"""

from __future__ import annotations

import inspect
from typing import get_args

from adrbench.claims import checks  # noqa: F401  (fills the register)
from adrbench.claims.conditions import OPERATORS, SEVERITY
from adrbench.claims.registry import CHECKS, Check, Kind

HEAD = """\
# Claims

One file per document; one entry per statement. Adding a claim is adding an entry:

```yaml
- id: ADR0011-A-L1-flag-line                      # unique over all files; a prefix groups them in the ADR
  place: {{document: adr-0011, section: "A / L1", lines: [9]}}
  statement: {{en: "...", zh: "..."}}
  kind: source                                    # the kind of its check
  check: {{name: flag, flag: --attention-backend}}  # a check and its arguments, see below
  expect: {{exists: true, lines: 782}}              # fields of its finding, and what the statement says of them
  correction: {{en: "line {{lines}}", zh: "..."}}     # optional: the right value, from the finding's own fields
  also: [...]                                     # optional: further check, expect, correction
  note: {{en: "...", zh: "..."}}                    # optional: shown beside the verdict
```

A value in `expect` means equality; a mapping holds one operator ({operators}) and perhaps
`otherwise`, the verdict of a miss ({verdicts}; `false` unless said, `moved` for `path`). `lines`
is a place: one line must lie inside the found range, a range must be equal; one that overlaps is imprecise,
one that does not is moved. The verdict of a claim is the worst of its parts.

`data/` holds what claims are derived from: models as config.json with their source, and tables of cited
values with source and trust. `open.yaml` lists unverified items, to-dos and contradictions; their state is computed.

This file is written by `python -m adrbench.claims.guide`; do not edit it.
"""


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name} = {parameter.default!r}"


def entry(check: Check) -> str:
    """Arguments, meaning and fields of one check."""
    parameters = list(inspect.signature(check.function).parameters.values())[1:]
    arguments = ", ".join(f"`{_argument(p)}`" for p in parameters) or "none"
    meaning = inspect.cleandoc(check.function.__doc__ or "")
    fields = ", ".join(f"`{name}`" for name in check.gives)
    return f"### {check.name}\n\n{meaning}\n\nArguments: {arguments}. Fields: {fields}.\n"


def guide() -> str:
    """The whole guide as Markdown, kinds in their order and checks by name."""
    parts = [HEAD.format(operators=", ".join(f"`{o}`" for o in OPERATORS), verdicts=", ".join(SEVERITY[1:]))]
    for kind in get_args(Kind):
        parts.append(f"## {kind}\n")
        parts += [entry(check) for name, check in sorted(CHECKS.items()) if check.kind == kind]
    return "\n".join(parts)


if __name__ == "__main__":
    print(guide(), end="")
