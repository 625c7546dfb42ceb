"""Paths of tables in a config's file, which are relative to the file's folder.

Tables are named from the folder of the file; the workspace and `--out`, and what the command line or a caller says
(`--set`, `nodes=`), from the working directory. So a config runs from any folder, and moves together with its tables.
`docs/decisions/0044-paths-of-tables.md` says why.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnflow.config.deployment import anchored, location_problem
from gnnflow.config.environment import Expanded, apply_overrides, config_line
from gnnflow.graph.errors import GnnflowError

NO_TABLE = "no such table"
"""The beginning of the error about a missing table."""
_Keys = tuple[str, ...]


@dataclass(frozen=True)
class Places:
    """A config's file, and the path of each of its tables as the file has it, by the absolute path."""

    source: str = ""
    written: Mapping[str, str] = field(default_factory=dict)

    def with_hint(self, error: GnnflowError) -> GnnflowError:
        """Return an error about a missing table with the path to write, where the working directory has its file."""
        path = self.written.get(error.where) if error.problem.startswith(NO_TABLE) else None
        if path is None or "://" in self.source or not os.path.exists(path):  # noqa: PTH110 - text, as URLs are
            return error
        meant = config_line(path_from(path, self.source))
        hint = f"Paths in a config's file are relative to its folder: for {anchored(path)} write {meant}."
        return type(error)(error.problem, where=error.where, fix=hint)


def folder_of(source: str) -> str:
    """Return the folder of a config's file, a path or URL; empty for the working directory and for no file."""
    scheme, mark, path = source.partition("://")
    return f"{scheme}{mark}{posixpath.dirname(path)}" if mark else posixpath.dirname(source)


def path_from(path: str, source: str) -> str:
    """Return a path of the working directory as a config's file has it; absolute paths and URLs stay."""
    folder = folder_of(source)
    is_fixed = "://" in path or path.startswith(("/", "~"))
    return path if not folder or is_fixed or "://" in folder else os.path.relpath(path, folder)


def place_tables(
    values: Mapping[str, Any], *, source: str, overrides: Sequence[str] = ()
) -> tuple[dict[str, Any], Places]:
    """Return a config's values with its tables' paths as seen from the working directory.

    source: the path or URL of the config's file; without a file, paths stay as they are. overrides: those that the
    values hold already, whose paths stay too. Values of another form than paths stay, to be refused when they are read.
    """
    folder, graph = folder_of(source), values.get("graph")
    if not folder or not isinstance(graph, Mapping):
        return dict(values), Places(source)
    said = apply_overrides({}, overrides).get("graph", {})
    written: dict[str, str] = {}
    for keys in list(_table_keys(graph)):
        text = _value_at(graph, keys)
        if isinstance(text, str) and _value_at(said, keys) is None:
            place = place_from(text, folder)
            written[anchored(place)] = str(text)
            graph = _with_value(graph, keys, place)
    return {**values, "graph": graph}, Places(source, written)


def _table_keys(graph: Mapping[str, Any]) -> Iterator[_Keys]:
    """Yield the keys of a graph section that hold paths of tables; a node type's name is none."""
    for key in ("nodes", "edges"):
        held = graph.get(key)
        if not isinstance(held, Mapping):
            yield (key,)
            continue
        for name, table in held.items():
            if not isinstance(table, Mapping):
                yield (key, name)
            elif table.get("table") not in _types_of(graph):
                yield (key, name, "table")


def _types_of(graph: Mapping[str, Any]) -> list[Any]:
    nodes = graph.get("nodes")
    return [*nodes] if isinstance(nodes, Mapping) else []


def _value_at(held: Any, keys: _Keys) -> Any:
    """Return the value at some keys; of a value above them, that value; None where there is none."""
    for key in keys:
        if not isinstance(held, Mapping):
            return held
        held = held.get(key)
    return held


def _with_value(held: Mapping[str, Any], keys: _Keys, value: Any) -> dict[str, Any]:
    key, *below = keys
    return {**held, key: _with_value(held[key], tuple(below), value) if below else value}


def place_from(uri: str, folder: str) -> str:
    """Return a location as seen from a folder; absolute paths, URLs and unusable texts stay. It keeps its variables."""
    if "://" in uri or uri.startswith(("/", "~")) or not uri or location_problem(uri):
        return uri
    scheme, mark, above = folder.partition("://")
    end = "/" if uri.endswith("/") else ""
    if mark:
        bucket, _, path = above.partition("/")
        path = posixpath.normpath(f"/{path}/{uri}").lstrip("/")  # which stays in the bucket
        place = f"{scheme}://{posixpath.join(bucket, path) if bucket else f'/{path}'}{end}"
    else:
        place = posixpath.normpath(posixpath.join(folder, uri)) + end
    return Expanded(place, written=uri.written, variables=uri.variables) if isinstance(uri, Expanded) else place
