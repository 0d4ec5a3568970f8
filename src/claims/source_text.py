"""Source checks on text and files: occurrences, files and folders, call sites, grep recipes, order."""

from __future__ import annotations

import ast
import re
from typing import Any

from adrbench.claims import syntax
from adrbench.claims.registry import Context, Finding, check
from adrbench.claims.source import locate, place
from adrbench.claims.tree import Tree

SHOWN = 4


def _shown(hits: list[tuple[str, int]]) -> str:
    text = ", ".join(f"{file}:{line}" for file, line in hits[:SHOWN])
    return text + (f" and {len(hits) - SHOWN} more" if len(hits) > SHOWN else "")


def _inside(tree: Tree, hits: list[tuple[str, int]], path: str, symbol: str) -> list[tuple[str, int]]:
    """The hits that lie in one definition of a file."""
    found = syntax.find(tree.module(path), symbol)
    first, last = syntax.span(found) if found else (0, -1)
    return [(file, line) for file, line in hits if first <= line <= last]


@check("text", kind="source", gives="count lines line places files")
def text(
    context: Context, pattern: str, path: str = "", within: str = "", containing: str = "", follow: bool = False
) -> Finding:
    """Matches of a regular expression in a file, folder or the whole tree (``path`` empty).

    ``within`` narrows a single file to one definition. ``lines`` spans the first to the last match
    when there is one file, so that a quoted line or range can be compared. ``follow`` searches the
    rest of the tree when there is no match, so that moved code is told from code that is gone.
    """
    tree = context.need_tree()
    present = not path or tree.exists(path)
    hits = tree.search(pattern, path, containing) if present else []
    if within and present:
        hits = _inside(tree, hits, path, within)
    if not hits and follow and (elsewhere := tree.search(pattern, "", containing)):
        values: dict[str, Any] = {"count": 0, "lines": None, "line": None, "places": [], "files": []}
        where = _shown(elsewhere)
        return Finding(values, f"no match of /{pattern}/ in {path}; the tree has it at {where}", where, moved=True)
    files = sorted({file for file, _ in hits})
    lines = [hits[0][1], hits[-1][1]] if len(files) == 1 else None
    values = {"count": len(hits), "lines": lines, "line": lines[0] if lines else None, "files": files}
    values["places"] = [f"{file}:{line}" for file, line in hits]
    where = _shown(hits)
    found = f"{len(hits)} matches of /{pattern}/" + (f": {where}" if hits else "")
    return Finding(values, found if present else f"{path} does not exist in this tree", where)


@check("file", kind="source", gives="exists kind line_count byte_count now path")
def file(context: Context, path: str, symbol: str = "") -> Finding:
    """A file or folder of the tree. When it is absent, ``now`` is where ``symbol`` is defined instead."""
    tree = context.need_tree()
    target = tree.root / path
    values: dict[str, Any] = dict.fromkeys(["line_count", "byte_count", "now"])
    if target.is_dir():
        return Finding(values | {"exists": True, "kind": "folder", "path": path}, f"{path} is a folder", path)
    if target.is_file():
        content = target.read_bytes()
        values |= {"exists": True, "kind": "file", "path": path, "byte_count": len(content)}
        values["line_count"] = content.count(b"\n")
        return Finding(values, f"{path}: {values['line_count']} lines, {len(content)} bytes", path)
    values |= {"exists": False, "kind": None, "path": None}
    found = locate(tree, path, symbol) if symbol else None
    if found is None:
        return Finding(values, f"{path} does not exist in this tree")
    others = [f for f, _ in tree.find_symbol(symbol) if f != found[0] and syntax.find(tree.module(f), symbol)]
    now = ", ".join([place(found[0], syntax.span(found[1])), *dict.fromkeys(others)])
    return Finding(values | {"now": now, "path": found[0]}, f"{path} does not exist; {symbol} is defined at {now}", now)


@check("calls", kind="source", gives="count lines places callers")
def call_sites(context: Context, callee: str, path: str = "") -> Finding:
    """Calls of a function at or below ``path``; ``lines`` spans them when they are in one file."""
    tree = context.need_tree()
    name = callee.split(".")[-1]
    hits: list[tuple[str, int]] = []
    ends: list[int] = []
    for file in tree.below(path):
        if name not in tree.text(file):
            continue
        for call in syntax.calls(tree.module(file), callee):
            hits.append((file, call.lineno))
            ends.append(call.end_lineno or call.lineno)
    files = sorted({file for file, _ in hits})
    lines = [hits[0][1], ends[-1]] if len(files) == 1 else None
    values = {"count": len(hits), "lines": lines, "places": [f"{f}:{n}" for f, n in hits], "callers": files}
    return Finding(values, f"{len(hits)} calls of {callee}: {_shown(hits) or 'none'}", _shown(hits))


@check("grep-window", kind="source", gives="shown needed hidden matches")
def grep_window(context: Context, path: str, symbol: str, after: int) -> Finding:
    """Does ``grep -A after`` of a function's name show the whole function?

    ``needed`` is the smallest -A that does, ``hidden`` the source lines that the recipe cuts off.
    """
    tree = context.need_tree()
    found = locate(tree, path, symbol)
    if not found:
        return Finding(dict.fromkeys(["shown", "needed", "hidden", "matches"]), f"{symbol} is not defined")
    file, node = found
    first, last = syntax.span(node)
    content = tree.text(file).splitlines()
    hidden = [
        line.strip() for line in content[first + after : last] if line.strip() and not line.strip().startswith("#")
    ]
    matches = len(tree.search(re.escape(symbol), file))
    values = {"shown": last - first <= after, "needed": last - first, "hidden": hidden, "matches": matches}
    where = place(file, [first, last])
    text = f"{symbol} is at {where}: -A {after} shows up to line {first + after}, -A {last - first} is needed"
    return Finding(values, text, where)


def _appended(node: ast.stmt, condition: str) -> list[tuple[str, str, int]]:
    """(member, condition, line) of each ``x.append(Enum.MEMBER)`` in a statement, in source order."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        inner = " and ".join(filter(None, [condition, test]))
        return [hit for child in node.body for hit in _appended(child, inner)]
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(".append") and value.args:
        return [(ast.unparse(value.args[0]).split(".")[-1], condition, node.lineno)]
    return []


@check("append-order", kind="source", gives="order conditions lines first last unconditional path")
def append_order(context: Context, path: str, symbol: str) -> Finding:
    """The order in which a function appends members to its result, with the condition of each."""
    tree = context.need_tree()
    found = locate(tree, path, symbol)
    node = found[1] if found else None
    if not found or not isinstance(node, ast.FunctionDef):
        return Finding(
            dict.fromkeys(["order", "conditions", "lines", "first", "last", "unconditional", "path"]),
            f"{symbol} is not defined",
        )
    file = found[0]
    hits = [hit for statement in node.body for hit in _appended(statement, "")]
    values: dict[str, Any] = {
        "path": file,
        "order": [name for name, _, _ in hits],
        "conditions": {name: condition or "always" for name, condition, _ in hits},
        "lines": syntax.span(node),
        "first": hits[0][0] if hits else None,
        "last": hits[-1][0] if hits else None,
        "unconditional": [name for name, condition, _ in hits if not condition],
    }
    listed = "; ".join(f"{name} ({condition or 'always'}, :{line})" for name, condition, line in hits)
    return Finding(values, f"{symbol} appends in this order: {listed}", place(file, values["lines"]))
