"""`${VAR}` and `${VAR:-default}` in configuration values, and `--set a.b=c`.

Both work on plain dictionaries, after YAML was read and before anything is validated, so that they can set
every key and no value can inject YAML. `$${` stands for a literal `${`. `deployment.py` says which variables may be
read. An expanded text keeps its original form, so that a message shows the variable's name and never its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from gnnflow.config.deployment import Deployment
from gnnflow.config.yaml_text import read_yaml, yaml_inline
from gnnflow.graph.errors import ConfigError

_VARIABLE = re.compile(r"\$(?P<escape>\$)?\{(?P<body>[^}]*)\}")
_BODY = re.compile(r"(?P<name>[A-Za-z_]\w*)(:-(?P<default>.*))?", re.DOTALL)
_WHOLE = r"(?<!\w\.)(?!\B\w){}(?<!\w\B)(?!\.\w)"  # not in the middle of a word, nor of a key
_DEEPEST = 16  # keys of one --set
_LONGEST_SHOWN = 100
_SHORTEST_MASKED = 4  # a shorter value occurs in too many other words of a message


class Expanded(str):
    """A text whose variables were replaced; its repr shows the original."""

    __slots__ = ("variables", "written")

    written: str
    variables: dict[str, str]

    def __new__(cls, text: str, *, written: str, variables: dict[str, str]) -> Self:
        """Return the text with its original and its variables' values, "" for a default."""
        made = super().__new__(cls, text)
        made.written, made.variables = written, variables
        return made

    def __repr__(self) -> str:
        return repr(self.written)


class UnreadText(NamedTuple):
    """A text whose variable cannot be read, and the error that says why."""

    text: str
    error: ConfigError


def expand(
    value: Any,
    environment: Mapping[str, str],
    *,
    where: str = "",
    deployment: Deployment | None = None,
    unread: list[UnreadText] | None = None,
) -> Any:
    """Return the value with every variable in its texts replaced.

    An empty variable takes the default, as in a shell. deployment: the limits; by default this process's. unread: gets
    the texts that cannot be read, which stay as they are; None raises the first one's error: a ConfigError with the
    key's path and the variable's name where a variable may not be read, or is not set and has no default.
    """
    here = deployment or Deployment.here()
    below = partial(expand, environment=environment, deployment=here, unread=unread)
    if isinstance(value, dict):
        return {key: below(held, where=f"{where}.{key}".lstrip(".")) for key, held in value.items()}
    if isinstance(value, list):
        return [below(held, where=f"{where}[{i}]") for i, held in enumerate(value)]
    try:
        return _expand_text(value, environment, where, here) if isinstance(value, str) else value
    except ConfigError as error:
        if unread is None:
            raise
        unread.append(UnreadText(value, error))
        return value


def escape(value: Any) -> Any:
    """Return a value whose texts `expand` reads back as they are here: `${x}` is written `$${x}`. Keys stay."""
    if isinstance(value, dict):
        return {key: escape(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [escape(held) for held in value]
    return _VARIABLE.sub(r"$\g<0>", value) if isinstance(value, str) else value


def config_line(value: Any) -> str:
    """Return plain values on one line as a config reads them back: quoted by YAML's rule, without variables."""
    return yaml_inline(escape(value))


def mask_values(error: ConfigError, values: Any) -> ConfigError:
    """Return an error that shows the names of variables instead of their values."""
    return ConfigError(_masked(error.problem, values), where=error.where, fix=_masked(error.fix, values))


def _masked(text: str, values: Any) -> str:
    """Return a message with the environment's values replaced by `${NAME}`.

    A value is replaced where it is a whole text or whole words that are not part of a key, as `train` is in `train.lr`:
    the message's own words may contain it too.
    """
    for expanded in _expanded(values):
        shown = {value: f"${{{name}}}" for name, value in expanded.variables.items()}
        if any(shown):
            shown = {expanded: expanded.written, **shown}
        for value, written in shown.items():
            if len(value) >= _SHORTEST_MASKED:
                text = re.sub(_WHOLE.format(re.escape(value)), written.replace("\\", r"\\"), text)
    return text


def _expanded(values: Any) -> Iterator[Expanded]:
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for held in values:
            yield from _expanded(held)
    elif isinstance(values, Expanded):
        yield values


def _expand_text(text: str, environment: Mapping[str, str], where: str, deployment: Deployment) -> str:
    variables: dict[str, str] = {}

    def lookup(match: re.Match[str]) -> str:
        if match["escape"]:
            return match[0][1:]
        name, value = _lookup(match, environment, where, deployment)
        variables[name] = environment.get(name, "")
        return value

    expanded = _VARIABLE.sub(lookup, text)
    return Expanded(expanded, written=text, variables=variables) if variables else expanded


def apply_override(raw: dict[str, Any], override: str) -> dict[str, Any]:
    """Return a copy of `raw` with one `a.b=value` applied; the value is YAML, so [10, 5] is a list.

    Raises ConfigError for text without `=` and for a path through a value that holds no keys.
    """
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or len(keys) > _DEEPEST:
        shown = _shortened(override)
        raise ConfigError(f"{shown!r} does not set a key", where="--set", fix="Write it as key.path=value.")
    return _set_key(raw, keys, read_yaml(text, source=f"--set {path.strip()}"), where=f"--set {path.strip()}")


def apply_overrides(raw: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of `raw` with each override applied in turn; the last one wins."""
    for override in overrides:
        raw = apply_override(raw, override)
    return raw


def override_of(path: Sequence[str | int], values: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """Return the last override that a wrong key comes from, as it was typed; "" where the file's `values` have it."""
    wrong = tuple(map(str, path))
    for override in reversed(overrides):
        keys = tuple(override.partition("=")[0].strip().split("."))
        is_new = keys[: len(wrong)] == wrong and not _holds(values, wrong)
        if wrong[: len(keys)] == keys or is_new:
            return _shortened(override)
    return ""


def _holds(values: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return False
        values = values[key]
    return True


def _shortened(override: str) -> str:
    return override if len(override) <= _LONGEST_SHOWN else f"{override[:_LONGEST_SHOWN]}..."


def _lookup(
    match: re.Match[str], environment: Mapping[str, str], where: str, deployment: Deployment
) -> tuple[str, str]:
    """Return a variable's name and value."""
    body = _BODY.fullmatch(match["body"])
    if body is None:
        raise ConfigError(f"{match[0]!r} is not a variable", where=where, fix="Write ${NAME}, ${NAME:-default} or $${.")
    name = body["name"]
    deployment.check_variable(name, where=where)
    found = environment.get(name) or body["default"]
    if found is None:
        raise ConfigError(
            f"the environment variable {name} is not set",
            where=where,
            fix=f"Set it, or write ${{{name}:-default}}.",
        )
    return name, found


def _set_key(section: Any, keys: list[str], value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ConfigError(
            f"the key before {keys[0]!r} holds a value, not keys",
            where=where,
            fix="Set the whole key instead.",
        )
    below = section.get(keys[0])
    below = value if len(keys) == 1 else _set_key({} if below is None else below, keys[1:], value, where=where)
    return {**section, keys[0]: below}
