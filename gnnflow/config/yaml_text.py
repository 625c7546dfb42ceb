"""Reads YAML text as plain dictionaries, with the scalars of YAML 1.2's core schema instead of 1.1's.

Only true and false are booleans (so the country code NO stays text), 5e-4 is a number, 1:30 and 2026-01-01 are text. A
key written twice is refused, because the first one would be lost silently. Only plain values are built: tags that name
Python objects are errors.

A config is a page or two. A text that is larger, deeper or expands, through aliases, to more values than any config
holds is refused while it is read, so that every refusal is quick.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

import yaml

from gnnflow.graph.errors import ConfigError

_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+")
_NUMBER = r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
_FLOAT = re.compile(rf"{_NUMBER}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULL = re.compile(r"~|null|Null|NULL|")
_MERGE = re.compile(r"<<")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_TEMPLATE = re.compile(r"(^|[\s,:\[{])\{\{")  # a value that begins with a template, without quotes
_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
_MOST_CHARACTERS = 256 * 1024
_MOST_VALUES = 10_000
_DEEPEST = 32
_LONGEST_KEY = 256
_MOST_DIGITS = 19
_SMALLER = "Give the path of a config: a page or two of keys."


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 scalars, bounds, and without duplicate or non-text keys; filled in below."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._sizes: dict[int, int] = {}  # the number of values of each finished node, its aliases followed

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node as SafeLoader does. Raises ComposerError beyond the bounds."""
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        before = self._values
        self._depth += 1
        self._values += 1
        self._refuse_beyond(mark)
        node = super().compose_node(parent, index)
        if alias:
            if id(node) not in self._sizes:
                raise yaml.composer.ComposerError(None, None, "an alias is inside the value it names", mark)
            self._values += self._sizes[id(node)]
            self._refuse_beyond(mark)
        else:
            self._sizes[id(node)] = self._values - before
        self._depth -= 1
        found: yaml.Node | None = node
        return found

    def _refuse_beyond(self, mark: Any) -> None:
        if self._depth > _DEEPEST:
            raise yaml.composer.ComposerError(None, None, f"values are nested more than {_DEEPEST} deep", mark)
        if self._values > _MOST_VALUES:
            raise yaml.composer.ComposerError(
                None, None, f"there are more than {_MOST_VALUES} values, aliases followed", mark
            )


def _construct_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag not in _KEY_TAGS:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key{_shown(key)} is not text; quote it", key.start_mark
            )
        if len(key.value) > _LONGEST_KEY:
            raise yaml.constructor.ConstructorError(
                None, None, f"a key of {len(key.value)} characters; at most {_LONGEST_KEY} are read", key.start_mark
            )
        if key.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key.value!r} is already set on line {seen[key.value]}", key.start_mark
            )
        seen[key.value] = key.start_mark.line + 1
    return loader.construct_mapping(node, deep=True)


def _shown(key: yaml.Node) -> str:
    """Return a key as an error names it; a list or mapping (`{{ name }}` of a template) is not shown."""
    return f" {key.value!r}" if isinstance(key, yaml.ScalarNode) else ", a list or mapping,"


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if len(text.lstrip("+-")) > _MOST_DIGITS:
        raise yaml.constructor.ConstructorError(
            None, None, f"a whole number of more than {_MOST_DIGITS} digits", node.start_mark
        )
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _construct_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """Return a text with surrogate pairs, JSON's escapes of characters beyond 16 bits, joined."""
    text = _HALVES.sub(_joined, str(loader.construct_scalar(node)))
    if half := _HALF.search(text):
        raise yaml.constructor.ConstructorError(None, None, f"half of a character ({half.group()!a})", node.start_mark)
    return text


def _joined(halves: re.Match[str]) -> str:
    return halves.group().encode("utf-16", "surrogatepass").decode("utf-16")


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
_Loader.add_constructor("tag:yaml.org,2002:str", _construct_text)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes text which only 1.2 reads as a number, such as 1e3."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"(?:{_FLOAT.pattern})$"), list("-+.0123456789"))


def write_yaml(value: Any) -> str:
    """Return plain values as a text that read_yaml reads back, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False)


def yaml_inline(value: Any) -> str:
    """Return plain values on one line that read_yaml reads back, as messages propose them."""
    # a text alone would be quoted less than it is within braces, which may be around it
    text = yaml.dump([value], Dumper=_Dumper, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False)
    return str(text).removesuffix("\n")[1:-1]


def read_yaml(text: str, *, source: str = "config") -> Any:
    """Return the value a YAML text describes.

    Raises ConfigError with the line and column of the first mistake.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(
            f"has {len(text):,} characters; a config has at most {_MOST_CHARACTERS:,}", where=source, fix=_SMALLER
        )
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
        fix = "Fix the YAML at that line."
        if mark and any(map(_TEMPLATE.search, text.splitlines()[mark.line : mark.line + 1])):  # it may be past the end
            fix = 'Put a value with {{ }} in quotes, such as "{{ ds }}/nodes.parquet".'
        raise ConfigError(what, where=f"{source}{line}", fix=fix) from error
    except (ValueError, OverflowError) as error:  # a number that Python refuses, such as a very long 0x
        raise ConfigError("a number cannot be read", where=source, fix="Write it in plain digits.") from error
    except yaml.YAMLError as error:  # a character YAML does not allow at all: it has no line
        what = "holds bytes that are not UTF-8" if _HALF.search(text) else str(error)
        raise ConfigError(what, where=source, fix="Write it as UTF-8 text.") from error


def refuse_oversized(values: Any, *, source: str = "config") -> None:
    """Raise ConfigError where plain values (of a form, a request) are larger or deeper than any config."""
    level, count = [values], 0
    for _ in range(_DEEPEST + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                below += [*value, *value.values()]
            elif isinstance(value, list | tuple):
                below += value
            elif isinstance(value, str) and len(value) > _MOST_CHARACTERS:
                raise ConfigError(f"a text of {len(value):,} characters", where=source, fix=_SMALLER)
        count += len(below)
        if count > _MOST_VALUES:
            raise ConfigError(f"there are more than {_MOST_VALUES} values", where=source, fix=_SMALLER)
        if not below:
            return
        level = below
    raise ConfigError(f"values are nested more than {_DEEPEST} deep", where=source, fix=_SMALLER)
