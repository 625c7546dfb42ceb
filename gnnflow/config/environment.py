"""`${VAR}` and `${VAR:-default}` in configuration values, and `--set a.b=c`.

Both work on plain dictionaries, after YAML was read and before anything is validated, so that they can set
every key and no value can inject YAML. `$${` stands for a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError

_VARIABLE = re.compile(r"\$(?P<escape>\$)?\{(?P<body>[^}]*)\}")
_BODY = re.compile(r"(?P<name>[A-Za-z_]\w*)(:-(?P<default>.*))?", re.DOTALL)


def expand(value: Any, environment: Mapping[str, str], *, where: str = "") -> Any:
    """Return the value with every variable in its texts replaced.

    An empty variable takes the default, as in a shell.
    Raises ConfigError with the key's path and the variable's name where one is not set and has no default.
    """
    if isinstance(value, dict):
        return {key: expand(held, environment, where=f"{where}.{key}".lstrip(".")) for key, held in value.items()}
    if isinstance(value, list):
        return [expand(held, environment, where=f"{where}[{i}]") for i, held in enumerate(value)]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _lookup(match, environment, where), value)
    return value


def apply_override(raw: dict[str, Any], override: str) -> dict[str, Any]:
    """Return a copy of `raw` with one `a.b=value` applied; the value is YAML, so [10, 5] is a list.

    Raises ConfigError for text without `=` and for a path through a value that holds no keys.
    """
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"{override!r} does not set a key", where="--set", fix="Write it as key.path=value.")
    return _with(raw, keys, read_yaml(text, source=f"--set {path.strip()}"), where=f"--set {path.strip()}")


def apply_overrides(raw: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of `raw` with each override applied in turn; the last one wins."""
    for override in overrides:
        raw = apply_override(raw, override)
    return raw


def _lookup(match: re.Match[str], environment: Mapping[str, str], where: str) -> str:
    if match["escape"]:
        return match[0][1:]
    body = _BODY.fullmatch(match["body"])
    if body is None:
        raise ConfigError(f"{match[0]!r} is not a variable", where=where, fix="Write ${NAME}, ${NAME:-default} or $${.")
    found = environment.get(body["name"]) or body["default"]
    if found is None:
        name = body["name"]
        raise ConfigError(
            f"the environment variable {name} is not set",
            where=where,
            fix=f"Set it, or write ${{{name}:-default}}.",
        )
    return found


def _with(section: Any, keys: list[str], value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ConfigError(
            f"the key before {keys[0]!r} holds a value, not keys",
            where=where,
            fix="Set the whole key instead.",
        )
    below = section.get(keys[0])
    below = value if len(keys) == 1 else _with({} if below is None else below, keys[1:], value, where=where)
    return {**section, keys[0]: below}
