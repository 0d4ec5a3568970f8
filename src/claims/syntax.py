"""Small pure helpers over Python syntax trees, shared by the source checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    return []


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, with those under ``if`` and ``try`` (conditional definitions)."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from _statements(node.body + node.orelse + node.finalbody)


def find(module: ast.Module, dotted: str) -> Definition | None:
    """The definition of ``Class.method``, ``function`` or a name; the last one where there are several."""
    body: list[ast.stmt] = module.body
    node: Definition | None = None
    for name in dotted.split("."):
        hits = [n for n in _statements(body) if name in _names(n)]
        if not hits:
            return None
        node = hits[-1]  # type: ignore[assignment]
        body = getattr(node, "body", [])
        body = body if isinstance(body, list) else []
    return node


def span(node: ast.AST) -> list[int]:
    """First and last line of a node. The line of ``def`` or ``class`` counts, not its decorators."""
    return [node.lineno, node.end_lineno or node.lineno]  # type: ignore[attr-defined]


def literal(node: ast.expr | None) -> object:
    """Value of a literal expression; for anything else its source text."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return ast.unparse(node)


def members(node: ast.ClassDef) -> dict[str, ast.Assign]:
    """Assigned names of a class body in order: an enum's members. Private names are left out."""
    found = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                found[target.id] = statement
    return found


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """``name(parameters) -> result`` as source text, spaces normalised."""
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){result}"


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Parameter names with ``=default`` where there is one, in order; annotations left out."""
    positional = node.args.posonlyargs + node.args.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults)) + list(node.args.defaults)
    pairs = list(zip(positional, defaults, strict=True))
    pairs += list(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
    return [a.arg if d is None else f"{a.arg}={ast.unparse(d)}" for a, d in pairs]


def dotted_name(node: ast.expr) -> str:
    """``a.b.c`` of a name or attribute chain, the source text of anything else."""
    return ast.unparse(node)


def imported_from(module: ast.Module, name: str) -> str | None:
    """Dotted module that ``name`` is imported from by ``from module import name``, else None."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and not node.level and name in [a.asname or a.name for a in node.names]:
            return node.module
    return None


def calls(tree: ast.AST, callee: str) -> list[ast.Call]:
    """Calls whose target is ``callee`` or ends in ``.callee``, in source order."""
    found = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and (name := dotted_name(n.func)) and (name == callee or name.endswith("." + callee))
    ]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def returned(node: ast.FunctionDef) -> ast.expr | None:
    """The expression of the only ``return`` in a function that has exactly one, else None."""
    returns = [n for n in ast.walk(node) if isinstance(n, ast.Return)]
    return returns[0].value if len(returns) == 1 else None
