"""The command line that the page's jobs share: a specification in, files out, one line where it cannot."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from adrbench.claims.schema import ClaimError
from adrbench.evidence import EvidenceError
from adrbench.handover import received
from adrbench.report.site import SiteSpec
from adrbench.report.spec import explain
from pydantic import ValidationError


def run(name: str, work: Callable[[SiteSpec, Path], None]) -> None:
    """Read ``--spec`` (JSON, or @FILE) and call ``work`` with it and ``--output``."""
    parser = argparse.ArgumentParser(prog=f"python -m adrbench.{name.replace(' ', '.')}")
    parser.add_argument("--spec", required=True, help="specification as JSON, or @FILE")
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()
    try:
        work(SiteSpec.model_validate_json(received(arguments.spec)), arguments.output)
    except ValidationError as error:
        sys.exit(f"adrbench {name}: specification: {explain(error)}")
    except (EvidenceError, ClaimError, ValueError) as error:
        sys.exit(f"adrbench {name}: {error}")
    except OSError as error:
        sys.exit(f"adrbench {name}: {error.strerror or error}: {error.filename}; free space or fix permissions, rerun")
