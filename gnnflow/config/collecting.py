"""Reads a config as far as it can be read, and finds all of its mistakes.

A mistake hides others: pydantic compares sections only once all of their keys are valid. So a wrong key is taken out,
which leaves its default, and the config is read again, until nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gnnflow.config.messages import Finding, findings_of, path_text
from gnnflow.config.root import Config

_MOST_READINGS = 25
_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Reading:
    """A config without its wrong keys, and its mistakes.

    config: None where tables or sections are missing without which nothing can be read. removed: the keys that were
    taken out, as people write them.
    """

    config: Config | None
    findings: tuple[Finding, ...] = ()
    removed: tuple[str, ...] = ()


def read_all(values: Mapping[str, Any]) -> Reading:
    """Return a config of plain values with everything that is wrong with it."""
    held: dict[str, Any] = _copied(values)
    findings: list[Finding] = []
    removed: list[_Path] = []
    for _ in range(_MOST_READINGS):
        try:
            return Reading(Config.model_validate(held), tuple(findings), tuple(map(path_text, removed)))
        except ValidationError as error:
            found = findings_of(error, held, model=Config)
        # what follows from a key that was taken out is no mistake of the user
        new = [each for each in found if not any(_follows(each.path, path) for path in removed)]
        findings += [each for each in new if each not in findings]
        cut = [path for each in found if (path := _take_out(held, each)) is not None]
        removed += cut
        if not cut:
            break
    return Reading(None, tuple(findings), tuple(map(path_text, removed)))


def _follows(path: _Path, removed: _Path) -> bool:
    """Return whether a mistake follows from a key that was taken out: nodes from edges too, and edges from nodes."""
    are_tables = {path[:2], removed[:2]} == {("graph", "nodes"), ("graph", "edges")}
    return are_tables or all(mine == theirs for mine, theirs in zip(path, removed, strict=False))


def _take_out(held: dict[str, Any], found: Finding) -> _Path | None:
    """Take a wrong key out of a config and return its path; None where nothing can be taken out."""
    if found.path == ("name",):
        held["name"] = "unnamed"
        return found.path
    if found.path == ("graph", "target") and isinstance(types := held["graph"].get("nodes"), dict):
        if held["graph"].get("target") != (first := min(types)):
            held["graph"] |= {"target": first, "label": None}
            return found.path
        return None
    path = _existing(held, found.path[:-1] if found.names_kind else found.path)
    if not path or path in {("graph",), ("graph", "nodes"), ("graph", "edges")}:
        return None
    _container(held, path[:-1]).pop(path[-1])
    return path


def _existing(held: dict[str, Any], path: _Path) -> _Path:
    """Return the part of a path that is there, up to its last key of a mapping."""
    value: Any = held
    for depth, step in enumerate(path):
        if not isinstance(value, dict) or step not in value:
            return path[:depth]
        value = value[step]
    return path


def _container(held: dict[str, Any], path: Sequence[str | int]) -> Any:
    value: Any = held
    for step in path:
        value = value[step]
    return value


def _copied(value: Any) -> Any:
    """Return a copy of all mappings, with the same values in them."""
    return {key: _copied(below) for key, below in value.items()} if isinstance(value, Mapping) else value
