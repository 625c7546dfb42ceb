"""Reads a config as far as it can be read, and finds all of its mistakes.

A mistake hides others: pydantic compares sections only once all of their keys are valid. So a wrong key is written as
it was most likely meant, or else taken out, which leaves its default, and the config is read again, until nothing is
wrong. Where sections contradict each other and no key can be taken out, they are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gnnflow.config.messages import Finding, findings_of, path_text
from gnnflow.config.root import Config
from gnnflow.config.sections import Sections

UNREAD = "location-that-is-not-read"
"""Stands for the location of a table where the config gives none that can be read."""

_UNREAD_NAME = "__unread__"  # of the relation that stands for those that cannot be read
_MOST_READINGS = 25
_TABLES = (("graph", "nodes"), ("graph", "edges"))
_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Reading:
    """A config without its wrong keys, and its mistakes.

    config: None where sections are missing without which nothing can be read. removed: the keys of mistakes, as people
    write them, whose consequences are no mistakes.
    """

    config: Config | None
    findings: tuple[Finding, ...] = ()
    removed: tuple[str, ...] = ()


def read_all(values: Mapping[str, Any]) -> Reading:
    """Return a config of plain values with everything that is wrong with it."""
    held: dict[str, Any] = _copied(values)
    findings: dict[str, Finding] = {}
    removed: list[_Path] = []
    for _ in range(_MOST_READINGS):
        try:
            return _reading(Config.model_validate(held), findings, removed)
        except ValidationError as error:
            found = findings_of(error, held, model=Config)
        # what follows from a key that was taken out is no mistake of the user
        for each in found:
            follows = any(_follows(each.path, path) for path in removed) or _is_mended_by(each, removed)
            if not follows and _UNREAD_NAME not in each.problem + each.fix:
                findings.setdefault(f"{path_text(each.path)}: {each.problem}", each)
        sections = _sections_of(held)
        if not _mend_all(held, found, removed, is_exact=sections is not None):
            removed += [each.path for each in found]
            return _reading(sections, findings, removed)
    return _reading(None, findings, removed)


def _reading(config: Config | None, findings: Mapping[str, Finding], removed: Sequence[_Path]) -> Reading:
    return Reading(config, tuple(findings.values()), tuple(map(path_text, removed)))


def _sections_of(values: Mapping[str, Any]) -> Config | None:
    """Return a config whose sections may contradict each other; None where one of them cannot be read."""
    try:
        read = Sections.model_validate(values)
    except ValidationError:
        return None
    held = {name: getattr(read, name) for name in Sections.model_fields}
    return Config.model_construct(_fields_set=set(read.model_fields_set), **held)


def _follows(path: _Path, removed: _Path) -> bool:
    """Return whether a mistake follows from a key that was taken out: nodes from edges too, and edges from nodes.

    A key of one table says nothing of the other tables, nor of the table's name.
    """
    of_table = len(("graph", "edges", "relation"))
    if removed[:2] in _TABLES and len(removed) > of_table == len(path):
        return False
    is_table = len(removed) <= of_table and removed[-1] != UNREAD
    are_tables = is_table and {path[:2], removed[:2]} == {*_TABLES}
    return are_tables or all(mine == theirs for mine, theirs in zip(path, removed, strict=False))


def _is_mended_by(found: Finding, removed: Sequence[_Path]) -> bool:
    """Return whether a key that was taken out, and whose value nobody knows, could mend a mistake."""
    keys: list[_Path] = [("graph", "reverse_edges")] if "reverse_edges" in found.meant else []
    keys += [(*_TABLES[0], found.meant["type"])] if "type" in found.meant else []
    return any(key in removed for key in keys)


def _mend_all(held: dict[str, Any], found: Sequence[Finding], removed: list[_Path], *, is_exact: bool) -> bool:
    """Mend what is wrong in a config, and return whether anything has changed."""
    before, has_changed = len(removed), False
    for each in found:
        is_there = "graph" in (each.meant.get("name"), *(key for key in held if isinstance(held[key], dict)))
        is_there = is_there and not _is_within(each.path, removed[before:])
        has_changed |= is_there and _mend(held, each, removed, is_exact=is_exact)
    return has_changed


def _is_within(path: _Path, removed: Sequence[_Path]) -> bool:
    """Return whether a key is gone with one that was taken out, as all items of a wrong list are."""
    return any(path[: len(each)] == each for each in removed)


def _mend(held: dict[str, Any], found: Finding, removed: list[_Path], *, is_exact: bool) -> bool:
    """Mend a wrong key of a config or take it out, and return whether anything has changed.

    is_exact: take out the key itself alone, and no section around it.
    """
    path = _written(held, found.path)
    is_whole = path_text(path) == path_text(found.path)
    if found.path == ("name",):
        held["name"] = "unnamed"
        return True
    if (is_whole and _write_as_meant(held, path, found.meant)) or _set_elsewhere(held["graph"], found.meant):
        return True
    if _is_target(held, path) and _value(held, path) is None:
        return _forget_labels(held, removed)
    if found.path == ("graph", "target"):
        return _forget_target(held, removed)
    if found.path[:2] in _TABLES or found.path == ("graph",):
        return _mend_table(held, path if len(path) > 1 else found.path, removed)
    path = path[:-1] if found.names_kind and path[-1:] == found.path[-1:] else path
    return bool(path) and (is_whole or not is_exact) and _take_out(held, path, removed)


def _set_elsewhere(graph: dict[str, Any], meant: Mapping[str, Any]) -> bool:
    """Read edges in both directions, or add a type without a table, where meant so; False where it is so already."""
    if "reverse_edges" in meant and not graph.get("reverse_edges"):
        graph["reverse_edges"] = True
        return True
    if "type" in meant and meant["type"] not in graph["nodes"]:
        graph.setdefault("target", min(graph["nodes"]) if len(graph["nodes"]) == 1 else None)  # one type needs none
        graph["nodes"][meant["type"]] = None
        return True
    return False


def _is_target(held: dict[str, Any], path: _Path) -> bool:
    return path[:2] == _TABLES[0] and path[2:] == (held["graph"].get("target"),)


def _write_as_meant(held: dict[str, Any], path: _Path, meant: Mapping[str, Any]) -> bool:
    """Give a key the name or the value that it was meant to have; False where it has it, or nobody knows."""
    value = _value(held, path)
    if "value" in meant and value != meant["value"]:
        _container(held, path[:-1])[path[-1]] = meant["value"]
        return True
    if "item" in meant and isinstance(value, list) and len(value) > 1 and meant["item"] in value:
        value.remove(meant["item"])
        return True
    return "name" in meant and _rename(held, path, meant["name"])


def _take_out(held: dict[str, Any], path: _Path, removed: list[_Path]) -> bool:
    _container(held, path[:-1]).pop(path[-1])
    removed.append(path)
    return True


def _mend_table(held: dict[str, Any], path: _Path, removed: list[_Path]) -> bool:
    """Give a table a location that is not read, or take its wrong name or key out."""
    graph = held["graph"]
    of_one = ("graph", "nodes", "type")
    is_known = len(path) < len(of_one) or _value(held, path) is None or _is_good(_value(held, path))
    if len(path) > len(of_one) or (len(path) == len(of_one) and is_known):
        return _take_out(held, path, removed)
    if len(path) == len(of_one):
        value: Any = UNREAD
    elif path != _TABLES[0] and isinstance(graph.get("nodes"), dict) and graph["nodes"]:
        target = graph.get("target")
        of = next((name for name in graph["nodes"] if name == target), min(graph["nodes"]))
        path, value = _TABLES[1], {f"{of}{_UNREAD_NAME}{of}": UNREAD}
    else:
        path, value = _TABLES[1] if path == ("graph",) else path, UNREAD
    below = _container(held, path[:-1])
    if below.get(path[-1]) == value:
        return False
    below[path[-1]] = value
    removed += [path, (UNREAD,)]
    return True


def _is_good(value: Any) -> bool:
    """Return whether a table's value can be one, so that its name is wrong."""
    return isinstance(value, dict) or (isinstance(value, str) and value != "" and "@" not in value)


def _forget_target(held: dict[str, Any], removed: list[_Path]) -> bool:
    """Take the target out of a config, and with it the task and the labels."""
    types, path = held["graph"].get("nodes"), ("graph", "target")
    if path in removed:
        return False
    if not isinstance(types, dict):
        return _take_out(held, path, removed)
    held["graph"]["target"] = min(types, key=lambda name: (types[name] is None, name))
    held.pop("task", None)
    removed += [path, ("task",), ("train", "metric"), ("neighbors", "kind")]
    return _forget_labels(held, removed)


def _forget_labels(held: dict[str, Any], removed: list[_Path]) -> bool:
    path = ("graph", "label")
    if path in removed:
        return False
    held["graph"]["label"] = None
    removed.append(path)
    return True


def _rename(held: dict[str, Any], path: _Path, name: str) -> bool:
    """Give a key of a mapping another name, in its place, and return whether it was free."""
    below = _container(held, path[:-1])
    if name in below:
        return False
    renamed = {name if key == path[-1] else key: value for key, value in below.items()}
    below.clear()
    below.update(renamed)
    return True


def _written(held: dict[str, Any], path: _Path) -> _Path:
    """Return the part of a path that is there, up to its last key of a mapping; keys may hold dots."""
    found: list[str] = []
    value: Any = held
    steps = [*path]
    while steps and isinstance(value, dict):
        names = (".".join(map(str, steps[:count])) for count in range(1, len(steps) + 1))
        count, name = next(((count, name) for count, name in enumerate(names, 1) if name in value), (0, ""))
        if not count:
            break
        value, found, steps = value[name], [*found, name], steps[count:]
    return tuple(found)


def _container(held: dict[str, Any], path: Sequence[str | int]) -> Any:
    value: Any = held
    for step in path:
        value = value[step]
    return value


def _value(held: dict[str, Any], path: _Path) -> Any:
    return _container(held, path) if path else held


def _copied(value: Any) -> Any:
    """Return a copy of all mappings and lists, with the same values in them."""
    if isinstance(value, Mapping):
        return {key: _copied(below) for key, below in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value
