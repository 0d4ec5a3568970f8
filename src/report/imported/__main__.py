"""Import results that another tool measured: ``python -m adrbench.report.imported FILE ... --platform cpu``.

Each becomes ``results/<platform>/imported/<name>.json`` with the original beside it. The page shows them in a
table of their own; no decision reads them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from adrbench.evidence import digest_text, write_json, write_text
from adrbench.nearest import choice, names_of
from adrbench.paths import ROOT
from adrbench.report.imported.formats import FormatError, parse
from adrbench.report.imported.schema import Imported
from pydantic import ValidationError

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def safe_name(text: str) -> str:
    """A file's name as a name of this project: lower case, no sign that a path or a page would read."""
    return re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-.")[:64] or "imported"


def import_file(path: Path, folder: Path, platform: str, name: str) -> Path:
    """Write the document and a copy of the original below ``folder``.

    Raises:
        FormatError: the file cannot be read as a result, or another import has this name.
    """
    try:
        text = path.read_text(encoding="utf-8")
        parsed = parse(json.loads(text))
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}: not valid JSON ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise FormatError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    original, output, digest = folder / name / "original.json", folder / f"{name}.json", digest_text(text)
    if output.is_file() and json.loads(output.read_text(encoding="utf-8")).get("sha256") != digest:
        raise FormatError(f"{output}: another file was imported under this name; give a new one with --name")
    document = Imported(
        name=name,
        platform=platform,
        tool=parsed.tool,
        tool_version=parsed.tool_version,
        measured_at=parsed.measured_at,
        file=f"{name}/original.json",
        sha256=digest,
        runs=parsed.runs,
    )
    write_text(original, text)
    write_json(output, document.model_dump(mode="json"))
    return output


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.report.imported")
    parser.add_argument("files", nargs="+", type=Path, help="JSON results of vllm bench serve, GuideLLM or AIPerf")
    parser.add_argument("--platform", required=True, help="platform to show them beside")
    parser.add_argument("--name", help="name of the import; default: the file's own")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    arguments = parser.parse_args()
    if arguments.name and len(arguments.files) > 1:
        sys.exit("adrbench report: --name names one file; give the files one by one")
    known = names_of(ROOT / "config/platforms")
    # A platform of a folder of one's own has results, if anything to be shown beside.
    if arguments.platform not in known and not (arguments.results / arguments.platform).is_dir():
        words = choice(arguments.platform, known)
        sys.exit(f"adrbench report: --platform: {arguments.platform!r} is no file of config/platforms/; {words}")
    for value in filter(None, (arguments.name, arguments.platform)):
        if not NAME.fullmatch(value):
            sys.exit(f"adrbench report: {value!r} is no name; use lower-case letters, digits, `_`, `.` and `-`")
    folder = arguments.results / arguments.platform / "imported"
    try:
        for path in arguments.files:
            print(import_file(path, folder, arguments.platform, arguments.name or safe_name(path.stem)))
    except FormatError as error:
        sys.exit(f"adrbench report: {error}")
    except OSError as error:
        sys.exit(f"adrbench report: {error.strerror or error}: {error.filename}")


if __name__ == "__main__":
    main()
