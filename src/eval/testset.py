"""Which real test sets can be used: present, complete, or missing, file by file.

    python -m adrbench.eval.testset --folder PATH [--json]

``complete`` means: every line is JSON with the fields that the task needs, and there are as many
lines as the published file has (LongBench; a RULER file is made by its user, in any length).
It does not mean that the content is the published one: the digest is printed for that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from adrbench.eval.tasks import Task, load_tasks
from adrbench.evidence import digest_file


@dataclass(frozen=True)
class FileStatus:
    """One file that a task class would read; ``used``: the run reads it, otherwise its texts are generated.

    ``status`` is complete, incomplete, missing or not configured.
    """

    task: str
    collection: str
    path: str
    status: str
    problem: str
    expected_lines: int | None
    lines: int = 0
    bytes: int = 0
    sha256: str = ""
    used: bool = False


def _problem(path: Path, fields: tuple[str, ...], expected: int | None) -> tuple[int, str]:
    """(number of lines, what is wrong or empty)."""
    lines = 0
    try:
        with open(path, encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                missing = [name for name in fields if not (isinstance(row, dict) and row.get(name))]
                if missing:
                    return lines, f"line {number} lacks {', '.join(missing)}"
                lines += 1
    except (OSError, ValueError) as error:
        return lines, f"line {lines + 1} cannot be read: {error}"
    if lines == 0:
        return lines, "no lines"
    if expected is not None and lines != expected:
        return lines, f"{lines} lines, the published file has {expected}"
    return lines, ""


def check_file(task: Task, folder: Path, choices: tuple[str, ...]) -> FileStatus:
    """Status of one file below ``folder``; the first existing one of ``choices`` counts."""
    source = task.source
    path = next((folder / choice for choice in choices if (folder / choice).is_file()), None)
    if path is None:
        problem = f"no such file ({' or '.join(choices)} below {folder})"
        return FileStatus(task.name, source.collection, str(folder / choices[0]), "missing", problem, source.lines)
    lines, problem = _problem(path, source.fields, source.lines)
    return FileStatus(
        task=task.name,
        collection=source.collection,
        path=str(path),
        status="incomplete" if problem else "complete",
        problem=problem,
        expected_lines=source.lines,
        lines=lines,
        bytes=path.stat().st_size,
        sha256=digest_file(path),
        used=not problem,
    )


def verify_testset_access(data: Mapping[str, str], tasks: Iterable[str] | None = None) -> list[FileStatus]:
    """Status of every file that the tasks would read from the configured folders.

    Args:
        data: folder by collection (``longbench``, ``ruler``), the config's ``eval.data``.
        tasks: names of the tasks that run; None: all.
    """
    known = load_tasks()
    found: list[FileStatus] = []
    for task in [known[name] for name in tasks] if tasks is not None else known.values():
        collection = task.source.collection
        for choices in task.source.files:
            if folder := data.get(collection):
                found.append(check_file(task, Path(folder), choices))
            else:
                problem = f"eval.data.{collection} names no folder; texts are generated"
                found.append(
                    FileStatus(task.name, collection, choices[0], "not configured", problem, task.source.lines)
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m adrbench.eval.testset", description="What a folder holds of the real test sets."
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder with LongBench's *.jsonl or RULER's <task>/validation.jsonl"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    collections = {task.source.collection for task in load_tasks().values()}
    statuses = verify_testset_access({name: str(arguments.folder) for name in collections})
    if arguments.json:
        print(json.dumps([asdict(status) for status in statuses], indent=1))
    else:
        for status in statuses:
            size = f"{status.lines} lines, {status.bytes} bytes, sha256 {status.sha256[:16]}" if status.sha256 else ""
            remarks = "; ".join(filter(None, (size, status.problem)))
            print(f"{status.status:<11} {status.task:<32} {status.path}  {remarks}")
    if not any(status.status == "complete" for status in statuses):
        print(f"{arguments.folder}: nothing usable", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
