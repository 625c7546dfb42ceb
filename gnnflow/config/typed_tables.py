"""The checks of tables by type and relation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from gnnflow.config.base import problem
from gnnflow.config.edge_tables import EdgeTableConfig
from gnnflow.graph.schema import NAME, Relation

_NAMING = "Use letters, digits, '.', '-' and single '_', starting with a letter or digit."
_SEPARATORS, _ALL_SEPARATORS = re.compile(r"[^A-Za-z0-9-]+"), re.compile(r"[^A-Za-z0-9]+")


class _Parted(NamedTuple):
    """A name of words with `_` between. sources, targets: the types that it begins and ends with."""

    words: str
    sources: list[str]
    targets: list[str]


def typed_table_problems(
    nodes: str | Mapping[str, str | None], edges: str | Mapping[str, str | EdgeTableConfig], *, has_reverses: bool
) -> Iterator[PydanticCustomError]:
    """Yield the problems where maps of node and edge tables do not agree. has_reverses: reverse edges are relations."""
    if isinstance(nodes, str) and isinstance(edges, str):
        return
    if isinstance(nodes, str) or isinstance(edges, str):
        yield problem(
            "nodes and edges disagree: one is a path, the other a map of types",
            key="edges",
            fix="Give both as paths, or both as maps {type: path} and {source__relation__target: path}.",
        )
        return
    for name in nodes:
        if not NAME.fullmatch(name):
            fix = f"Rename the type. {_NAMING}"
            yield problem(f"{name!r} cannot be part of a file name", key=f"nodes.{name}", fix=fix)
    relations: dict[str, Relation] = {}
    for name in edges:
        relation = Relation.parse(name)
        if relation is None or not {relation.source, relation.target} <= set(nodes):
            yield _unjoined(name, relation, nodes, edges)
        elif not NAME.fullmatch(relation.name):
            fix = f"Rename the relation. {_NAMING}"
            yield problem(f"{name!r} cannot be part of a file name", key=f"edges.{name}", fix=fix)
        else:
            relations[name] = relation
    for name, relation in relations.items():
        if has_reverses and str(relation.reversed) in edges:
            yield problem(
                f"{relation.reversed} has a table, and the reverse edges of {name} would have the same name",
                key="reverse_edges",
                fix="Leave reverse_edges out, or rename the relation.",
            )
    ends = {end for each in relations.values() for end in (each.source, each.target)}
    yield from _missing_tables(nodes, edges, ends if len(relations) == len(edges) else set(nodes))


def _unjoined(
    name: str, relation: Relation | None, nodes: Mapping[str, str | None], edges: Iterable[str]
) -> PydanticCustomError:
    """Return the problem of a relation that does not join two of the types."""
    near, missing = _nearest_relation(name, relation, nodes), _missing_type(relation, nodes)
    hint, meant = "", {}
    if near:
        hint, meant = f"Did you mean {near!r}?", {"name": near} if near not in edges else {}
    elif missing:
        hint = f"Or give {missing} a table in graph.nodes; null, where its nodes are the ids in edge tables alone."
        meant = {"type": missing}
    return problem(
        f"{name!r} does not join two of the node types {', '.join(nodes)}",
        key=f"edges.{name}",
        fix=f"Write edge types as source__relation__target. {hint}".strip(),
        meant=meant,
    )


def _missing_type(relation: Relation | None, nodes: Mapping[str, str | None]) -> str:
    """Return the type that is not there of a relation with one that is; "" for another name."""
    ends = [] if relation is None else [end for end in (relation.source, relation.target) if end not in nodes]
    return ends[0] if len(ends) == 1 else ""


def _nearest_relation(name: str, relation: Relation | None, nodes: Iterable[str]) -> str:
    """Return the name that a relation with misspelt types or other separators should have; "" where none is near."""
    types = {each.lower(): each for each in nodes}
    if relation is not None:
        near = [get_close_matches(end.lower(), types, n=1) for end in (relation.source, relation.target)]
        return f"{types[near[0][0]]}__{relation.name}__{types[near[1][0]]}" if all(near) else ""
    parted = _parted(name, types)
    if not (parted.sources and parted.targets):
        return ""
    source, target = max(parted.sources, key=len), max(parted.targets, key=len)
    middle = parted.words[len(source) :]
    middle = middle[: len(middle) - len(target)].strip("_") or "to"
    return f"{types[source]}__{middle}__{types[target]}"


def _parted(name: str, types: Iterable[str]) -> _Parted:
    """Return the parts of a name that does not tell them; `-` may be in a type."""
    found = []
    for separators in (_SEPARATORS, _ALL_SEPARATORS):
        words = separators.sub("_", name).strip("_")
        begins = [each for each in types if words.lower().startswith(f"{each}_")]
        found.append(_Parted(words, begins, [each for each in types if words.lower().endswith(f"_{each}")]))
    return next((each for each in found if each.sources and each.targets), found[0])


def _missing_tables(
    nodes: Mapping[str, str | None], edges: Mapping[str, str | EdgeTableConfig], ends: set[str]
) -> Iterator[PydanticCustomError]:
    """Yield a problem where a type without a table has no ids, or is read as a table. ends: types of relations."""
    for name, uri in nodes.items():
        if uri is None and name not in ends:
            fix = "Name its table, or a relation that joins it in graph.edges."
            yield problem("is null, and no edge table has ids of this type", key=f"nodes.{name}", fix=fix)
    for name, table in edges.items():
        if isinstance(table, EdgeTableConfig) and nodes.get(table.table, "") is None:
            fix = "Name the path of the table, or give the type one."
            yield problem(f"{table.table!r} is a node type without a table", key=f"edges.{name}.table", fix=fix)
