"""What the code must not contain: pickles, shells, unsafe YAML, foreign code. Read from its syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from adrbench.paths import ROOT

FILES = sorted(p for folder in ("src", "envs", "pythonpath") for p in (ROOT / folder).rglob("*.py") if p.is_file())
# Modules that read pickles, or run what they read.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "runpy", "code"}
CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "torch.load", "pandas.read_pickle", "pd.read_pickle",
         "yaml.unsafe_load", "yaml.full_load", "subprocess.getoutput", "subprocess.getstatusoutput"}  # fmt: skip
SAFE_LOADERS = {"SafeLoader", "CSafeLoader", "_UniqueKeyLoader"}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def unsafe(text: str) -> Iterator[str]:
    """What a module does that it must not."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name, keywords = dotted(node.func), {k.arg: k.value for k in node.keywords}
            if name in CALLS:
                yield name
            if name == "yaml.load":
                loader = node.args[1] if len(node.args) > 1 else keywords.get("Loader")
                if loader is None or dotted(loader).rpartition(".")[2] not in SAFE_LOADERS:
                    yield name
            for key in ("shell", "allow_pickle", "trust_remote_code"):
                value = keywords.get(key)
                if value is not None and not (isinstance(value, ast.Constant) and not value.value):
                    yield f"{name}({key}=...)"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_pickle_no_shell_no_foreign_code(path: Path) -> None:
    assert list(unsafe(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "yaml.load(text, yaml.Loader)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "AutoTokenizer.from_pretrained(folder, trust_remote_code=trusted)",
    ],
)
def test_the_search_finds_each_of_them(line: str) -> None:
    assert list(unsafe(line))


def test_the_search_allows_what_is_safe() -> None:
    assert (
        list(unsafe("yaml.load(text, yaml.SafeLoader)\nsubprocess.run(argv, shell=False)\nast.literal_eval(x)")) == []
    )
