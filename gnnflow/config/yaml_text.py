"""YAML text -> plain dictionaries, with the scalars of YAML 1.2's core schema instead of 1.1's.

Only true and false are booleans (so the country code NO stays text), 5e-4 is a number, 1:30 and 2026-01-01 are text. A
key written twice is refused, because the first one would be lost silently. Only plain values are built: tags that name
Python objects are errors.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from gnnflow.graph.errors import ConfigError

_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+")
_NUMBER = r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
_FLOAT = re.compile(rf"{_NUMBER}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULL = re.compile(r"~|null|Null|NULL|")
_MERGE = re.compile(r"<<")
_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 scalars and without duplicate or non-text keys; filled in below."""


def _construct_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag not in _KEY_TAGS:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key.value!r} is not text; quote it", key.start_mark
            )
        if key.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key.value!r} is already set on line {seen[key.value]}", key.start_mark
            )
        seen[key.value] = key.start_mark.line + 1
    return loader.construct_mapping(node, deep=True)


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_Loader.yaml_implicit_resolvers = {}
# The order matters: a plain integer also matches the pattern of floats.
for _tag, _pattern, _first in (
    ("bool", _BOOL, "tTfF"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("null", _NULL, ["~", "n", "N", ""]),
    ("merge", _MERGE, "<"),
):
    _whole = re.compile(f"(?:{_pattern.pattern})$")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def read_yaml(text: str, *, source: str = "config") -> Any:
    """Return the value a YAML text describes.

    Raises ConfigError with the line and column of the first mistake.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = error.problem or error.context or "not valid YAML"
        raise ConfigError(what, where=f"{source}{line}", fix="Fix the YAML at that line.") from error
    except yaml.YAMLError as error:  # a character YAML does not allow at all: it has no line
        raise ConfigError(str(error), where=source, fix="Save the file as UTF-8 text.") from error
