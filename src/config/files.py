"""YAML files of the configuration, read so that whatever stands in one is refused in words, and soon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# libyaml's parser where PyYAML has it: several times as fast, the same safe constructors.
try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

# Values of one file with its aliases written out; the largest shipped file has about 1,000.
MOST_VALUES = 100_000


class ConfigError(ValueError):
    """A configuration is refused; the text names file, key, value and what is allowed."""


class _UniqueKeyLoader(SafeLoader):
    """YAML in which a key given twice is an error: the second would silently win otherwise."""


def _mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, (list, dict, set)):
            raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _values(node: yaml.Node, counted: dict[int, int]) -> int:
    """Values of a node with its aliases written out: nine aliases of nine aliases and so on fill any memory."""
    if id(node) not in counted:
        counted[id(node)] = 0  # met again within itself: the constructor refuses that
        inner = node.value if isinstance(node.value, list) else []
        below = [one for entry in inner for one in (entry if isinstance(entry, tuple) else (entry,))]
        counted[id(node)] = 1 + sum(_values(one, counted) for one in below)
    return counted[id(node)]


def _content(text: str) -> Any:
    loader = _UniqueKeyLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values with its aliases written out; use fewer aliases")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def read_yaml(path: Path) -> Any:
    """One YAML file.

    Raises:
        ConfigError: it cannot be read, is not YAML, is too large, or a key is given twice, with line and column.
    """
    try:
        return _content(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        beside = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such file" + (f"; there are {', '.join(beside)}" if beside else "")) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; a YAML file that can be read is needed") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}; save the file as UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{path}: too many levels within each other") from None
    # ValueError of a constructor: a date or number that there is not.
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
