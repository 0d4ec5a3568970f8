"""Limits of an attention backend, read from its class and, where it inherits, from its bases."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from adrbench.claims import syntax
from adrbench.claims.registry import Context, Finding, check
from adrbench.claims.source import locate, locate_class, place
from adrbench.claims.tree import Tree

LIMITS = (
    "exists path lines line_count bases name head_sizes min_head_size kernel_block_sizes block_multiple "
    "kv_dtypes dtypes capability cudagraph per_head_scales capability_lines"
)


@dataclass(frozen=True)
class Definer:
    """Where an attribute is defined: file and node."""

    file: str
    node: ast.stmt


def lineage(tree: Tree, path: str, symbol: str, seen: frozenset[str] = frozenset()) -> list[tuple[str, ast.ClassDef]]:
    """(file, class) of a class and its bases within the tree, nearest first, depth first."""
    found = locate_class(tree, path, symbol)
    if not found or symbol in seen:
        return []
    file, node = found
    chain = [(file, node)]
    for base in node.bases:
        name = ast.unparse(base).split("[")[0].split(".")[-1]
        if name not in ("ABC", "Generic", "Enum", "object"):
            origin = syntax.imported_from(tree.module(file), name)
            home = origin.replace(".", "/") + ".py" if origin else file
            chain += lineage(tree, home, name, seen | {symbol})
    return chain


def attribute(chain: list[tuple[str, ast.ClassDef]], name: str) -> Definer | None:
    """The nearest definition of a method or class attribute along a lineage."""
    for file, node in chain:
        for statement in node.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            names = [getattr(statement, "name", None), getattr(target, "id", None)]
            if name in names:
                return Definer(file, statement)
    return None


def _value(definer: Definer | None) -> ast.expr | None:
    """Assigned value of an attribute, or the returned expression of a one-return method."""
    if definer is None:
        return None
    if isinstance(definer.node, ast.FunctionDef):
        return syntax.returned(definer.node)
    value = getattr(definer.node, "value", None)
    return value if isinstance(value, ast.expr) else None


def _list(expression: ast.expr | None) -> list[Any] | None:
    """Elements of a list display; ``torch.float16`` reads as ``float16``, calls as source text."""
    if not isinstance(expression, ast.List | ast.Tuple):
        return None
    items = [syntax.literal(e) for e in expression.elts]
    return [i.removeprefix("torch.") if isinstance(i, str) else i for i in items]


def _least(chain: list[tuple[str, ast.ClassDef]], method: str) -> int | None:
    """N of a method that returns ``x >= N``."""
    expression = _value(attribute(chain, method))
    if isinstance(expression, ast.Compare) and isinstance(expression.ops[0], ast.GtE):
        value = syntax.literal(expression.comparators[0])
        return value if isinstance(value, int) else None
    return None


def _block_multiple(chain: list[tuple[str, ast.ClassDef]]) -> int | None:
    """N where the block size only has to be a multiple of N (a ``MultipleOf(N)`` kernel size)."""
    sizes = _list(_value(attribute(chain, "get_supported_kernel_block_sizes"))) or []
    multiples = [int(s[len("MultipleOf(") : -1]) for s in sizes if isinstance(s, str) and s.startswith("MultipleOf(")]
    numbers = [s for s in sizes if isinstance(s, int)]
    return min(multiples + numbers, default=None)


def _cudagraph(tree: Tree, chain: list[tuple[str, ast.ClassDef]]) -> str | None:
    """Cudagraph support of the backend's metadata builder, e.g. ``ALWAYS``."""
    builder = _value(attribute(chain, "get_builder_cls"))
    definer = attribute(chain, "get_builder_cls")
    if builder is None or definer is None:
        return None
    expression = _value(attribute(lineage(tree, definer.file, ast.unparse(builder)), "_cudagraph_support"))
    return ast.unparse(expression).split(".")[-1] if expression is not None else None


@check("backend", kind="source", gives=LIMITS)
def backend(context: Context, path: str, symbol: str) -> Finding:
    """An attention backend's limits.

    ``head_sizes`` is a list or None where any multiple works, ``block_multiple`` the number that a
    block size must be divisible by, ``capability`` the source of ``supports_compute_capability``
    (``True`` means any), ``cudagraph`` the support its metadata builder declares.
    """
    tree = context.need_tree()
    chain = lineage(tree, path, symbol)
    if not chain:
        return Finding(dict.fromkeys(LIMITS.split()) | {"exists": False}, f"{symbol} is not defined in this tree")
    file, node = chain[0]
    capability = attribute(chain, "supports_compute_capability")
    expression = _value(capability)
    heads = _list(_value(attribute(chain, "get_supported_head_sizes"))) or None
    least = _least(chain, "supports_head_size")
    name, per_head = _value(attribute(chain, "get_name")), _value(attribute(chain, "supports_per_head_quant_scales"))
    values: dict[str, Any] = {
        "exists": True,
        "path": file,
        "lines": syntax.span(node),
        "line_count": tree.text(file).count("\n"),
        "bases": [ast.unparse(b) for b in node.bases],
        "name": syntax.literal(name),
        "head_sizes": None if least is not None else heads,
        "min_head_size": least,
        "kernel_block_sizes": _list(_value(attribute(chain, "get_supported_kernel_block_sizes"))),
        "block_multiple": _block_multiple(chain),
        "kv_dtypes": _list(_value(attribute(chain, "supported_kv_cache_dtypes"))),
        "dtypes": _list(_value(attribute(chain, "supported_dtypes"))),
        "capability": ast.unparse(expression) if expression is not None else None,
        "capability_lines": syntax.span(capability.node) if capability else None,
        "cudagraph": _cudagraph(tree, chain),
        "per_head_scales": ast.unparse(per_head) if per_head is not None else None,
    }
    text = (
        f"{symbol}: head {values['head_sizes'] or f'>= {least}'}, block %{values['block_multiple']}, "
        f"capability {values['capability']}, cudagraph {values['cudagraph']}, KV {', '.join(values['kv_dtypes'] or [])}"
    )
    return Finding(values, text, place(file, values["lines"]))


@check("expression", kind="source", gives="value items lines")
def expression(context: Context, path: str, symbol: str) -> Finding:
    """What a one-return function or method returns, or a name is assigned, as source text.

    ``items`` lists the string constants in it: the architectures of ``any(a in arch for a in [...])``.
    """
    tree = context.need_tree()
    found = locate(tree, path, symbol)
    node = _value(Definer(found[0], found[1])) if found else None
    if not found or node is None:
        return Finding(
            {"value": None, "items": None, "lines": None}, f"{symbol} is not defined, or returns at several places"
        )
    file, lines = found[0], syntax.span(found[1])
    items = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return Finding(
        {"value": ast.unparse(node), "items": items, "lines": lines},
        f"{symbol}: {ast.unparse(node)}",
        place(file, lines),
    )
