"""Source checks on definitions: what exists where in a vLLM tree, and with which shape.

Each works on text and syntax trees; vLLM is never imported. A definition that is not where the
claim puts it is searched for in the whole tree, and its new place is given.
"""

from __future__ import annotations

import ast
from typing import Any

from adrbench.claims import syntax
from adrbench.claims.registry import Context, Finding, check
from adrbench.claims.tree import Tree

Located = tuple[str, syntax.Definition]


def locate(tree: Tree, path: str, symbol: str) -> Located | None:
    """The definition of ``symbol`` in ``path``, or where the tree has it instead.

    Of several other places the one whose path shares most of its parts with the claimed one is taken.
    """
    if tree.exists(path) and path.endswith(".py") and (node := syntax.find(tree.module(path), symbol)):
        return path, node
    wanted = set(path.replace(".py", "").split("/"))
    others = sorted({file for file, _ in tree.find_symbol(symbol.split(".")[0])})
    others.sort(key=lambda file: -len(wanted & set(file.replace(".py", "").split("/"))))
    for file in others:
        if node := syntax.find(tree.module(file), symbol):
            return file, node
    return None


def locate_class(tree: Tree, path: str, symbol: str) -> tuple[str, ast.ClassDef] | None:
    """As ``locate``, for a class."""
    if (found := locate(tree, path, symbol)) and isinstance(found[1], ast.ClassDef):
        return found[0], found[1]
    return None


def _absent(symbol: str, path: str, fields: str) -> Finding:
    values = dict.fromkeys(fields.split()) | {"exists": False}
    return Finding(values, f"{symbol} is defined neither in {path} nor elsewhere in the tree")


def place(path: str, lines: list[int]) -> str:
    return f"{path}:{lines[0]}" if lines[0] == lines[1] else f"{path}:{lines[0]}-{lines[1]}"


def _read(node: ast.expr | None) -> Any:
    return syntax.literal(node)


SYMBOL = "exists path lines line length signature parameters decorators value bases elsewhere"


@check("symbol", kind="source", gives=SYMBOL)
def symbol(context: Context, path: str, symbol: str) -> Finding:
    """A class, function, method or name: its place, signature, assigned value, bases."""
    tree = context.need_tree()
    if not (found := locate(tree, path, symbol)):
        name = symbol.split(".")[-1]
        elsewhere = [f"{f}:{line}" for f, line in tree.find_symbol(name)]
        absent = _absent(symbol, path, SYMBOL)
        text = f"{absent.text}; {name} is defined at {', '.join(elsewhere)}" if elsewhere else absent.text
        return Finding(absent.values | {"elsewhere": elsewhere}, text, ", ".join(elsewhere[:3]))
    file, node = found
    lines = syntax.span(node)
    values: dict[str, Any] = dict.fromkeys(SYMBOL.split())
    values |= {"exists": True, "path": file, "lines": lines, "line": lines[0], "length": lines[1] - lines[0] + 1}
    text = symbol
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        text = syntax.signature(node)
        values |= {"signature": text, "parameters": syntax.parameters(node)}
        values["decorators"] = [ast.unparse(d) for d in node.decorator_list]
    elif isinstance(node, ast.ClassDef):
        values["bases"] = [ast.unparse(b) for b in node.bases]
        values["decorators"] = [ast.unparse(d) for d in node.decorator_list]
        text = f"class {symbol}({', '.join(values['bases'])})"
    else:
        values["value"] = _read(node.value)
        text = f"{symbol} = {values['value']!r}"
    return Finding(values, f"{place(file, lines)}: {text}", place(file, lines))


@check("enum-members", kind="source", gives="exists path count members lines class_lines")
def enum_members(context: Context, path: str, symbol: str) -> Finding:
    """Members of an enum. ``lines`` runs from the class line to the last member's last line."""
    found = locate_class(context.need_tree(), path, symbol)
    if not found:
        return _absent(symbol, path, "path count members lines class_lines")
    file, node = found
    assigned = syntax.members(node)
    last = max((syntax.span(a)[1] for a in assigned.values()), default=node.lineno)
    lines = [node.lineno, last]
    values = {"exists": True, "path": file, "count": len(assigned), "members": list(assigned), "lines": lines}
    values["class_lines"] = syntax.span(node)
    return Finding(values, f"{len(assigned)} members: {', '.join(assigned)}", place(file, lines))


@check("missing-members", kind="source", gives="missing surplus listed count")
def missing_members(context: Context, path: str, symbol: str, listed: list[str]) -> Finding:
    """Compare a list of names with an enum's members: what the list lacks and what it makes up."""
    found = locate_class(context.need_tree(), path, symbol)
    if not found:
        return Finding(dict.fromkeys(["missing", "surplus", "listed", "count"]), f"{symbol} is not defined")
    file, node = found
    actual = list(syntax.members(node))
    missing, surplus = [m for m in actual if m not in listed], [m for m in listed if m not in actual]
    values = {"missing": missing, "surplus": surplus, "listed": len(listed), "count": len(actual)}
    text = f"{len(listed)} listed of {len(actual)}; missing: {', '.join(missing) or 'none'}; "
    text += f"not members: {', '.join(surplus) or 'none'}"
    return Finding(values, text, place(file, syntax.span(node)))


@check("enum-target", kind="source", gives="value module class_exists module_exists lines")
def enum_target(context: Context, path: str, symbol: str, member: str) -> Finding:
    """A member whose value is a class path: does the tree have that module and class?"""
    tree = context.need_tree()
    found = locate_class(tree, path, symbol)
    assigned = syntax.members(found[1]) if found else {}
    if not found or member not in assigned:
        return Finding(
            dict.fromkeys(["value", "module", "class_exists", "module_exists", "lines"]),
            f"{symbol}.{member} does not exist",
        )
    value = _read(assigned[member].value)
    lines = syntax.span(assigned[member])
    module, _, name = str(value or "").rpartition(".")
    file = module.replace(".", "/") + ".py"
    module_exists = bool(module) and tree.exists(file)
    class_exists = module_exists and syntax.find(tree.module(file), name) is not None
    values = {
        "value": value,
        "module": module or None,
        "module_exists": module_exists,
        "class_exists": class_exists,
        "lines": lines,
    }
    state = "exists" if class_exists else "does not exist"
    return Finding(values, f"{symbol}.{member} = {value!r}; its class {state} in the tree", place(found[0], lines))


@check("field", kind="source", gives="exists path lines annotation default fields")
def class_field(context: Context, path: str, symbol: str, field: str) -> Finding:
    """One field of a class body: annotation and default as source text, and all annotated fields."""
    found = locate_class(context.need_tree(), path, symbol)
    if not found:
        return _absent(symbol, path, "path lines annotation default fields")
    file, node = found
    annotated = [n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    fields = [ast.unparse(n.target) for n in annotated]
    names = fields + [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
    hit = next((n for n in annotated if ast.unparse(n.target) == field), None)
    values: dict[str, Any] = {
        "exists": field in names,
        "path": file,
        "lines": None,
        "annotation": None,
        "default": None,
        "fields": fields,
    }
    where = place(file, syntax.span(node))
    if hit is None:
        return Finding(values, f"{symbol} has no attribute {field!r}; its fields: {', '.join(fields)}", where)
    values |= {"lines": syntax.span(hit), "annotation": ast.unparse(hit.annotation)}
    values["default"] = ast.unparse(hit.value) if hit.value else None
    return Finding(values, ast.unparse(hit), place(file, values["lines"]))


@check("literal", kind="source", gives="exists path members count lines")
def literal(context: Context, path: str, symbol: str) -> Finding:
    """Members of a ``Literal[...]`` type alias: the choices of the flag that is typed with it."""
    found = locate(context.need_tree(), path, symbol)
    value = getattr(found[1], "value", None) if found else None
    if not found or not isinstance(value, ast.Subscript) or not ast.unparse(value.value).endswith("Literal"):
        return _absent(symbol, path, "path members count lines")
    file, node = found
    inner = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    names = [_read(e) for e in inner]
    lines = syntax.span(node)
    values = {"exists": True, "path": file, "members": names, "count": len(names), "lines": lines}
    return Finding(values, f"{symbol} = {', '.join(map(str, names))}", place(file, lines))


@check("mapping", kind="source", gives="exists path keys items lines value")
def mapping(context: Context, path: str, symbol: str, key: str = "") -> Finding:
    """A dictionary literal: its keys, and the source text of the value under ``key``."""
    found = locate(context.need_tree(), path, symbol)
    node = getattr(found[1], "value", None) if found else None
    if not found or not isinstance(node, ast.Dict):
        return _absent(symbol, path, "path keys items lines value")
    items = {str(_read(k)): ast.unparse(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    lines = syntax.span(found[1])
    values = {
        "exists": True,
        "path": found[0],
        "keys": list(items),
        "items": items,
        "lines": lines,
        "value": items.get(key),
    }
    shown = f"{symbol}[{key!r}] = {items.get(key)}" if key else f"{symbol}: {', '.join(items)}"
    return Finding(values, shown, place(found[0], lines))


@check("flag", kind="source", gives="exists lines count default_of default")
def flag(context: Context, flag: str, path: str = "vllm/engine/arg_utils.py") -> Finding:
    """A command-line flag: the ``add_argument`` calls that name it.

    ``default_of`` is the keyword source (``**kwargs["field"]``) from which vLLM builds most arguments,
    ``default`` the literal default of the others.
    """
    tree = context.need_tree()
    nothing = dict.fromkeys(["lines", "default_of", "default"]) | {"exists": False, "count": 0}
    for file in dict.fromkeys([path, *(f for f, _ in tree.search(rf"[\"']{flag}[\"']", containing=flag))]):
        if not tree.exists(file):
            continue
        hits = [c for c in syntax.calls(tree.module(file), "add_argument") if any(_read(a) == flag for a in c.args)]
        if hits:
            keywords = {k.arg: k.value for k in hits[0].keywords}
            source = ast.unparse(keywords[None]) if None in keywords else None
            lines = syntax.span(hits[0])
            values = {
                "exists": True,
                "lines": lines,
                "count": len(hits),
                "default_of": source,
                "default": _read(keywords.get("default")),
            }
            origin = f"**{source}" if source else f"default={values['default']!r}"
            return Finding(values, f"add_argument({flag!r}, {origin}) at {place(file, lines)}", place(file, lines))
    return Finding(nothing, f"no add_argument names {flag!r}")


@check("environment", kind="source", gives="declared default lines hits readers")
def environment(context: Context, variable: str, path: str = "vllm/envs.py") -> Finding:
    """An environment variable: declared default, and how often its name occurs in the whole tree."""
    tree = context.need_tree()
    hits = tree.search(rf"\b{variable}\b", containing=variable)
    nodes = [n for n in ast.walk(tree.module(path)) if isinstance(n, ast.AnnAssign)] if tree.exists(path) else []
    hit = next((n for n in nodes if isinstance(n.target, ast.Name) and n.target.id == variable), None)
    readers = sorted({file for file, _ in hits} - {path})
    values: dict[str, Any] = {
        "declared": hit is not None,
        "default": None,
        "lines": None,
        "hits": len(hits),
        "readers": readers,
    }
    if hit is None:
        return Finding(
            values, f"{len(hits)} occurrences of {variable} in {len(tree.files)} Python files; not in {path}"
        )
    values |= {"default": _read(hit.value), "lines": syntax.span(hit)}
    text = f"{variable} defaults to {values['default']!r}; read in {len(readers)} other files"
    return Finding(values, text, place(path, values["lines"]))
