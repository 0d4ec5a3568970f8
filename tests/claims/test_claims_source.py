"""Source checks on a small tree in vLLM's shape: what they find, and that a change is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adrbench.claims.registry import CHECKS, Context, Finding, Unverifiable
from adrbench.claims.tree import Tree

Find = Callable[..., Finding]
Make = Callable[..., Tree]
REGISTRY = "vllm/v1/backends/registry.py"


def run(tree: Tree, name: str, **arguments: Any) -> Finding:
    return CHECKS[name].run(Context(data=tree.root, tree=tree), arguments)


def test_enum_members_count_and_place(find: Find) -> None:
    found = find("enum-members", path=REGISTRY, symbol="AttentionBackendEnum").values
    assert found["members"] == ["FIRST", "GHOST", "EMPTY", "CUSTOM"]
    assert (found["count"], found["lines"], found["class_lines"]) == (4, [4, 10], [4, 13])


def test_a_new_enum_member_changes_the_count(make_tree: Make, find: Find) -> None:
    text = make_tree().text(REGISTRY).replace("    CUSTOM = None", "    NEW = 'x'\n    CUSTOM = None")
    tree = make_tree(vllm__v1__backends__registry=text)
    found = run(tree, "enum-members", path=REGISTRY, symbol="AttentionBackendEnum").values
    assert (found["count"], found["lines"]) == (5, [4, 11])


def test_a_list_of_members_is_compared(find: Find) -> None:
    listed = ["FIRST", "CUSTOM", "INVENTED"]
    found = find("missing-members", path=REGISTRY, symbol="AttentionBackendEnum", listed=listed).values
    assert (found["missing"], found["surplus"]) == (["GHOST", "EMPTY"], ["INVENTED"])


@pytest.mark.parametrize(
    ("member", "value", "exists"),
    [
        ("FIRST", "vllm.v1.backends.first.FirstBackend", True),
        ("GHOST", "vllm.v1.backends.ghost.GhostBackend", False),
        ("EMPTY", "", False),
        ("CUSTOM", None, False),
    ],
)
def test_an_enum_value_may_point_nowhere(find: Find, member: str, value: str | None, exists: bool) -> None:
    found = find("enum-target", path=REGISTRY, symbol="AttentionBackendEnum", member=member).values
    assert (found["value"], found["class_exists"]) == (value, exists)


def test_a_symbol_gives_signature_and_lines(find: Find) -> None:
    found = find("symbol", path=REGISTRY, symbol="register_backend").values
    assert found["parameters"] == ["backend", "class_path=None", "is_mamba=False"]
    assert found["lines"] == [19, 21]


def test_a_changed_signature_is_noticed(make_tree: Make) -> None:
    text = make_tree().text(REGISTRY).replace("is_mamba: bool = False", "*, kind='mamba'")
    found = run(make_tree(vllm__v1__backends__registry=text), "symbol", path=REGISTRY, symbol="register_backend")
    assert found.values["parameters"] == ["backend", "class_path=None", "kind='mamba'"]


def test_a_moved_symbol_is_found_at_its_new_place(find: Find) -> None:
    found = find("symbol", path="vllm/backends/registry.py", symbol="register_backend")
    assert found.values["path"] == REGISTRY
    assert found.where == f"{REGISTRY}:19-21"


def test_a_method_that_is_a_function_is_absent_and_found_elsewhere(find: Find) -> None:
    found = find("symbol", path=REGISTRY, symbol="AttentionBackendEnum.register_backend")
    assert found.values["exists"] is False
    assert found.values["elsewhere"] == [f"{REGISTRY}:19"]


def test_a_symbol_that_is_nowhere(find: Find) -> None:
    found = find("symbol", path=REGISTRY, symbol="no_such_thing")
    assert (found.values["exists"], found.values["path"], found.values["elsewhere"]) == (False, None, [])


def test_fields_and_missing_attributes(find: Find) -> None:
    path = "vllm/engine/arg_utils.py"
    found = find("field", path=path, symbol="EngineArgs", field="backend").values
    assert (found["annotation"], found["default"], found["lines"]) == ("str | None", "Config.backend", [7, 7])
    missing = find("field", path=path, symbol="EngineArgs", field="copy_from_blocks").values
    assert (missing["exists"], missing["fields"]) == (False, ["model", "backend"])
    assert find("field", path=path, symbol="EngineArgs", field="add_cli_args").values["exists"] is True


def test_flags_with_choices_from_a_config_and_with_a_default(find: Find) -> None:
    found = find("flag", flag="--attention-backend").values
    assert (found["exists"], found["lines"], found["default_of"]) == (True, [10, 12], "kwargs['backend']")
    assert find("flag", flag="--port").values["default"] == 8000
    assert find("flag", flag="--no-such-flag").values == {
        "exists": False,
        "lines": None,
        "count": 0,
        "default_of": None,
        "default": None,
    }


def test_literal_members_are_a_flags_choices(find: Find) -> None:
    found = find("literal", path="vllm/config/cache.py", symbol="CacheDType").values
    assert (found["members"], found["lines"]) == (["auto", "fp8"], [1, 4])
    assert find("literal", path=REGISTRY, symbol="TYPES").values["exists"] is False


def test_mappings(find: Find) -> None:
    found = find("mapping", path=REGISTRY, symbol="TYPES", key="a").values
    assert (found["keys"], found["value"]) == (["a"], "AttentionBackendEnum.FIRST.name")
    assert find("mapping", path=REGISTRY, symbol="TYPES", key="b").values["value"] is None


def test_environment_variables_read_and_absent(find: Find) -> None:
    found = find("environment", variable="VLLM_USE_SECOND").values
    assert (found["declared"], found["default"], found["hits"]) == (True, True, 2)
    assert found["readers"] == ["vllm/platforms/rocm.py"]
    absent = find("environment", variable="VLLM_USE_SECON").values
    assert (absent["declared"], absent["hits"]) == (False, 0), "a longer name must not count"


def test_backend_limits_are_inherited(find: Find) -> None:
    path = "vllm/v1/backends/first.py"
    found = find("backend", path=path, symbol="FirstBackend").values
    assert (found["min_head_size"], found["head_sizes"], found["block_multiple"]) == (32, None, 16)
    assert (found["capability"], found["cudagraph"], found["name"]) == ("on_mi3xx()", "ALWAYS", "OTHER_NAME")
    assert (found["kv_dtypes"], found["dtypes"]) == (["auto", "fp8"], ["float16", "bfloat16"])
    child = find("backend", path=path, symbol="ChildBackend").values
    assert (child["bases"], child["cudagraph"], child["capability"]) == (["FirstBackend"], "ALWAYS", "on_mi3xx()")
    assert find("backend", path=path, symbol="Nowhere").values["exists"] is False


def test_expressions_give_their_strings(find: Find) -> None:
    found = find("expression", path="vllm/platforms/rocm.py", symbol="Platform.supports").values
    assert found["items"] == ["gfx94", "gfx95"]


def test_the_order_of_appends_with_conditions(find: Find) -> None:
    found = find("append-order", path="vllm/platforms/rocm.py", symbol="_priorities").values
    assert (found["order"], found["first"], found["last"]) == (["SECOND", "FIRST"], "SECOND", "FIRST")
    assert found["unconditional"] == ["FIRST"]
    assert found["conditions"]["SECOND"] == "envs.VLLM_USE_FAST and envs.VLLM_USE_SECOND"


def test_call_sites(find: Find) -> None:
    found = find("calls", callee="_priorities").values
    assert (found["count"], found["places"]) == (1, ["vllm/platforms/rocm.py:17"])
    assert find("calls", callee="_priorities", path="vllm/engine").values["count"] == 0


def test_text_in_a_file_in_a_definition_and_nowhere(find: Find) -> None:
    pattern = "backends\\.append"
    assert find("text", pattern=pattern, path="vllm/platforms/rocm.py").values["lines"] == [10, 11]
    inside = find("text", pattern=pattern, path="vllm/platforms/rocm.py", within="Platform.valid").values
    assert (inside["count"], inside["lines"]) == (0, None)
    assert find("text", pattern=pattern, path="vllm/no/such.py").values["count"] == 0


def test_text_that_moved_is_followed_only_when_asked(find: Find) -> None:
    arguments = {"pattern": "backends\\.append", "path": "vllm/envs.py"}
    assert find("text", **arguments).moved is False
    followed = find("text", **arguments, follow=True)
    assert followed.moved is True
    assert "vllm/platforms/rocm.py:10" in followed.where


def test_files_folders_and_moved_files(find: Find) -> None:
    assert find("file", path="vllm/v1/backends").values["kind"] == "folder"
    assert find("file", path="vllm/v1/backends/__init__.py").values["byte_count"] == 0
    moved = find("file", path="vllm/backends/registry.py", symbol="register_backend").values
    assert (moved["exists"], moved["now"]) == (False, f"{REGISTRY}:19-21")
    assert find("file", path="vllm/nothing.py").values["now"] is None


@pytest.mark.parametrize(("after", "shown"), [(8, True), (7, False)])
def test_a_grep_recipe_that_cuts_a_function_off(find: Find, after: int, shown: bool) -> None:
    found = find("grep-window", path="vllm/platforms/rocm.py", symbol="_priorities", after=after).values
    assert (found["shown"], found["needed"]) == (shown, 8)
    assert found["hidden"] == ([] if shown else ["return backends"])


def test_a_check_without_a_tree_says_what_it_needs() -> None:
    with pytest.raises(Unverifiable, match="needs a vLLM tree"):
        CHECKS["flag"].run(Context(data=Path()), {"flag": "--x"})
