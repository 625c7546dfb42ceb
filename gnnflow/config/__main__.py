"""`python -m gnnflow.config` prints the reference of every key, `docs/config.md`, from the models."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ByteSize
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gnnflow.config.base import Section, common_fields, default_kind, map_members, tagged_members
from gnnflow.config.deployment import DEFAULT_WORKSPACE, default_workspace
from gnnflow.config.messages import show
from gnnflow.config.root import Config

_HEAD = """# Configuration

This page is for whoever writes a configuration: after it you know every key, its default and its meaning. It is written
by `python -m gnnflow.config > docs/config.md`; edit the models in `gnnflow/config/`, not this file.

```bash
gnnflow generate payments --out quickstart-data
gnnflow run configs/quickstart.yaml --set train.lr=0.02      # a config, and another value of one of its keys
```

Values of a file and of `--set` may hold `${VAR}` and `${VAR:-default}`, read from the environment; `$${` stands for
`${` itself. Texts of a form or a request are taken as they are. On the command line `--set train.lr=0.02` replaces any
key before anything is checked. Unknown keys are errors. A file has at most 256 Ki characters, 10,000 values (aliases
followed) and 32 levels.

The workspace comes from `--workspace`, else the key `workspace`, else the variable `GNNFLOW_WORKSPACE`, else `runs`.

## Limits of a service

These environment variables belong to the machine or the service, and no config can change them. Lists are separated by
spaces or commas.

- `GNNFLOW_SERVICE`: `1` says that this process serves others. Airflow's tasks and the chart's pods set it.
- `GNNFLOW_WORKSPACE`: the workspace of configs that name none.
- `GNNFLOW_MODULES`: packages whose layer classes `model.kind` and a saved model, whose losses `train.loss.kind`, and
  whose Dask clusters `cluster.kind` may import. Unset: all on the command line, none in a service.
- `GNNFLOW_ENV_ALLOW`: what `${VAR}` may read: names, and prefixes such as `TEAM_*`. Unset: all on the command line but
  names that look like secrets, `GNNFLOW_*` in a service.
- `GNNFLOW_ALLOWED_URLS`: prefixes of tables and workspaces, such as `s3://bucket/` or `/data`. Unset: all on the
  command line, local paths and object stores in a service. Links are followed first, and a URL with `..` is refused.
- `GNNFLOW_DASK_ADDRESS`: the one scheduler that `cluster.address` may name in a service.

A variable whose name looks like a secret (`…SECRET…`, `…PASSWORD…`, `…TOKEN…`, `AWS_…KEY…` and the like) is read only
where its whole name is listed in `GNNFLOW_ENV_ALLOW`. URLs with a user, a password, a token or a signed query are
refused, and masked in messages. In a service, and on a cluster elsewhere, relative
local paths are made absolute when the config is read, in the folder of the process that reads it.
"""
_TYPE_NAMES: dict[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    ByteSize: "size",
    type(None): "null",
    Any: "anything",
}


def config_reference() -> str:
    """Return the reference of all keys as Markdown."""
    return "\n".join([_HEAD, *_sections(Config, "", "Top level")])


def _sections(section: type[Section], prefix: str, title: str) -> Iterator[str]:
    nested = {name: field for name, field in section.model_fields.items() if _is_nested(field)}
    plain = {name: field for name, field in section.model_fields.items() if name not in nested}
    yield f"## {title}\n" if not prefix else f"## `{title}`\n"
    yield from _table(plain, prefix)
    for name, field in plain.items():
        if members := map_members(field):
            yield from _members(members, f"{prefix}{name}.<name>", "")
    for name, field in nested.items():
        path = f"{prefix}{name}"
        if tagged_members(field):
            if not prefix:
                yield f"## `{path}`\n\n{field.description}\n"
            yield from _union(field, path)
        else:
            below: Any = field.annotation
            yield from _sections(below, f"{path}.", path)


def _union(field: FieldInfo, path: str) -> Iterator[str]:
    yield from _members(tagged_members(field), path, default_kind(field))


def _members(members: dict[str, type[Section]], path: str, default: Any) -> Iterator[str]:
    shared = common_fields(members)
    if plain := {key: held for key, held in shared.items() if not tagged_members(held)}:
        yield from _table(plain, f"{path}.")
    for kind, member in members.items():
        keys = {key: held for key, held in member.model_fields.items() if key not in shared and key != member.tag}
        yield from _kind(member, path, kind, keys=keys, is_default=default == kind)
    for key, held in shared.items():
        if tagged_members(held):
            yield from _union(held, f"{path}.{key}")


def _kind(
    member: type[Section], path: str, kind: str, *, keys: dict[str, FieldInfo], is_default: bool
) -> Iterator[str]:
    yield f"### `{path}: {{{member.tag}: {kind}}}`{' (the default)' if is_default else ''}\n"
    yield f"{member.model_fields[member.tag].description}\n"
    nested = {key: held for key, held in keys.items() if tagged_members(held)}
    plain = {key: held for key, held in keys.items() if key not in nested}
    if plain:
        yield from _table(plain, f"{path}.")
    for key, held in nested.items():
        yield from _union(held, f"{path}.{key}")


def _table(fields: dict[str, FieldInfo], prefix: str) -> Iterator[str]:
    yield "| key | allowed | default | meaning |\n|---|---|---|---|"
    for name, field in fields.items():
        cells = (f"`{prefix}{name}`", _allowed(field), _default(field), field.description or "")
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _default(field: FieldInfo) -> str:
    if field.default_factory is default_workspace:
        return f"`{DEFAULT_WORKSPACE}`"
    return "required" if field.default is PydanticUndefined else f"`{show(field.default)}`"


def _is_nested(field: FieldInfo) -> bool:
    below = field.annotation
    return bool(tagged_members(field)) or (isinstance(below, type) and issubclass(below, Section))


def _allowed(field: FieldInfo) -> str:
    limits = [
        f" {sign} {getattr(limit, name)}"
        for limit in _limits(field)
        for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
        if getattr(limit, name, None) is not None
    ]
    first, *alternatives = _type_name(field.annotation).split(" or ")
    return " or ".join([first + ",".join(limits), *alternatives])


def _limits(field: FieldInfo) -> list[Any]:
    """Return a key's bounds, also where its type carries them as one member of a union with null."""
    members = [part for part in get_args(field.annotation) if get_origin(part) is Annotated]
    # a list that is one member of a union carries the bounds of its values
    held = [part for member in members for part in get_args(get_args(member)[0]) if get_origin(part) is Annotated]
    inner = [*members, *held]
    within = [limit for part in inner for extra in get_args(part)[1:] for limit in getattr(extra, "metadata", [])]
    return [*field.metadata, *within]


def _type_name(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_name(part) for part in parts)
    if origin in (tuple, dict):
        return f"list of {_type_name(parts[0])}" if origin is tuple else _map_name(parts[1])
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return f"{{{', '.join(annotation.model_fields)}}}"
    return _TYPE_NAMES[annotation]


def _map_name(values: Any) -> str:
    holds_sections = get_origin(values) is Annotated and get_origin(get_args(values)[0]) is types.UnionType
    return "map of mappings, below" if holds_sections else f"map of {_type_name(values)}"


if __name__ == "__main__":
    sys.stdout.write(config_reference())
