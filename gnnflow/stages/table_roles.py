"""Proposes which tables hold nodes and which edges, from column names and from the values they share.

Nothing is guessed: where names and values do not show a role, an error names the option that gives it. The names of
ends are read as `gnnflow import` reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.edge_headers import RELATIVES, find_ends, find_types, split_words
from gnnflow.graph.errors import ConfigError, listed
from gnnflow.stages.given_tables import GivenTable, all_values, say_ends, say_id
from gnnflow.stages.table_ids import ID_WORDS, INDEX, KEY_WORDS, SURE, are_text, held_ids, id_of, stems_of

Pair = tuple[str, str]

_FOUND = 0.5  # share of a column's values among a table's ids that makes it an end, with a name that says so
_HERE = "gnnflow init"
_PAIR = 2
_MANY_FOR_EACH = 50
"""The rows for each row of the tables that they name, from which on these look like their categories."""


@dataclass(frozen=True)
class NodeRole:
    """A table of nodes, and its column of ids. bare: a type whose nodes are the ids in a table of edges alone."""

    table: GivenTable
    id: str
    bare: str = ""

    @property
    def name(self) -> str:
        """The name of its type."""
        return self.bare or self.table.name


@dataclass(frozen=True)
class Reference:
    """A column whose values are ids of a node table. share: of a sample of its values that are among these ids."""

    column: str
    nodes: NodeRole
    share: float


@dataclass(frozen=True)
class EdgeRole:
    """A table of edges between two node tables; is_key: a node table, whose second end is a foreign key."""

    table: GivenTable
    src: Reference
    dst: Reference
    is_key: bool = False


@dataclass(frozen=True)
class Roles:
    """The tables of a graph, and the foreign keys of its node tables. left: tables that no other is joined with."""

    nodes: tuple[NodeRole, ...]
    edges: tuple[EdgeRole, ...]
    keys: tuple[EdgeRole, ...] = ()
    left: tuple[GivenTable, ...] = ()


@dataclass(frozen=True)
class _Shown:
    """The roles that names and values show of each table alone, by its place.

    ids: the column of ids, None where none is shown. nodes: the tables with one. references: the columns that hold ids
    of a table. named: the tables whose ids the user names.
    """

    tables: Sequence[GivenTable]
    ids: Mapping[str, str | None]
    nodes: Sequence[NodeRole]
    references: Mapping[str, Sequence[Reference]]
    named: Collection[str]


def find_roles(
    tables: Sequence[GivenTable], *, ids: Sequence[str], ends: Sequence[Pair], unnamed: Collection[str] = ()
) -> Roles:
    """Return the roles of tables. ids: columns that the user names, COLUMN or TABLE.COLUMN; ends: pairs of columns.

    unnamed: the tables of a database that the user gave as a whole, which are left out where nothing joins them.
    Raises ConfigError where the names and values do not show a role.
    """
    _refuse_unknown(tables, ids, ends)
    shown = _look_at(tables, ids, ends)
    roles = _joined_roles(shown, ends)
    lost = _lost_tables(shown, roles)
    left = _left_tables(lost, shown, roles, unnamed)
    _ask_about_lost([each for each in lost if each not in left], shown, roles)
    return replace(roles, nodes=tuple(each for each in roles.nodes if each.table not in left), left=tuple(left))


def _look_at(tables: Sequence[GivenTable], ids: Sequence[str], ends: Sequence[Pair]) -> _Shown:
    """Return what names and values show of tables."""
    said = {name for pair in ends for name in pair}
    found = {table.uri: id_of(table, ids, tables, said) for table in tables}
    for may_refer in (False, True):  # first tables without foreign keys, whose ids may be keys of the others
        nodes = _candidates(tables, found)
        for table in tables:
            referring = {each.column for each in _references(table, nodes, found[table.uri])}
            if found[table.uri] is None and (may_refer or not referring):
                found[table.uri] = held_ids(table, tables, said, referring)
    nodes = _candidates(tables, found)
    references = {table.uri: _references(table, nodes, found[table.uri]) for table in tables}
    named = {table.uri for table in tables for given in ids if table.named(given) not in (None, given)}
    return _Shown(tables, found, nodes, references, named)


def _joined_roles(shown: _Shown, ends: Sequence[Pair]) -> Roles:
    """Return the tables of edges, the tables of nodes, and the foreign keys of the latter."""
    able = [table for table in shown.tables if table.uri not in shown.named]
    edges = tuple(edge for table in able if (edge := _edge_of(table, shown, ends)) is not None)
    of_edges = {edge.table.uri for edge in edges}
    nodes = tuple(each for each in shown.nodes if each.table.uri not in of_edges)
    keys = tuple(
        EdgeRole(each.table, Reference(each.id, each, 1.0), reference, is_key=True)
        for each in nodes
        for reference in shown.references[each.table.uri]
        if reference.nodes.table.uri not in of_edges
    )
    return Roles(nodes, edges, keys)


def _lost_tables(shown: _Shown, roles: Roles) -> list[GivenTable]:
    """Return the tables that no edges and no foreign key join with another."""
    joins = (*roles.edges, *roles.keys)
    reached = {end.nodes.table.uri for each in joins for end in (each.src, each.dst)}
    reached |= {each.table.uri for each in joins}
    return [table for table in shown.tables if table.uri not in reached]


def _left_tables(lost: Sequence[GivenTable], shown: _Shown, roles: Roles, unnamed: Collection[str]) -> list[GivenTable]:
    """Return the lost tables that nobody named and nothing shows to belong to the graph."""
    if not roles.edges and not roles.keys:
        return []
    held_by_edges = {each.nodes.table.uri for edge in roles.edges for each in shown.references[edge.table.uri]}
    may_miss = {*unnamed} - held_by_edges - {*shown.named}
    return [each for each in lost if each.uri in may_miss and _is_apart(each, shown.ids[each.uri], shown.nodes)]


def _ask_about_lost(lost: Sequence[GivenTable], shown: _Shown, roles: Roles) -> None:
    """Raise ConfigError where a table is joined with no other, by the question that says most about it."""
    for table in lost:
        _refuse_same_ids(table, shown.ids[table.uri], shown.nodes)
    for table in lost:
        if shown.ids[table.uri] is None and find_ends(table.columns) is None:
            _ask_about(table, None)
    for table in lost:
        _ask_for_nodes(table, shown.ids[table.uri], shown.nodes)
    for table in lost:
        _ask_about_unnamed(table, shown, roles)
        _ask_about(table, shown.ids[table.uri])
    if not roles.edges and not roles.keys:
        raise ConfigError(
            f"no table of edges is among {listed([table.name for table in shown.tables])}",
            where=_HERE,
            fix="Give one more table, or name the columns of an edge's source and target: --ends SRC,DST.",
        )


def _candidates(tables: Sequence[GivenTable], ids: Mapping[str, str | None]) -> list[NodeRole]:
    """Return the tables whose columns of ids are found."""
    return [NodeRole(table, name) for table in tables if (name := ids[table.uri]) is not None]


def _refuse_unknown(tables: Sequence[GivenTable], ids: Sequence[str], ends: Sequence[Pair]) -> None:
    """Raise ConfigError where an option names no column of the tables."""
    for given in ids:
        if not any(each.named(given) for each in tables):
            raise _unknown("--id", given, tables)
    for pair in ends:
        if not any({*pair} <= {*each.columns} for each in tables):
            raise _unknown("--ends", ",".join(pair), tables)


def _unknown(option: str, given: str, tables: Sequence[GivenTable]) -> ConfigError:
    held = "; ".join(f"{each.name} has {listed(each.columns, at_most=20)}" for each in tables)
    return ConfigError(f"no table has {given!r}", where=option, fix=f"Name columns of one table: {held}.")


def _ask_for_nodes(table: GivenTable, own: str | None, nodes: Sequence[NodeRole]) -> None:
    """Raise ConfigError where the names of a table's columns show ends whose nodes no table holds."""
    pair = find_ends([name for name in table.columns if name != own])
    others = [each for each in nodes if each.table.uri != table.uri]
    if pair is None:
        return
    shares = [_best_end(table, name, others).share if others else 0.0 for name in pair]
    lacking = [f"{name!r} ({share:.0%})" for name, share in zip(pair, shares, strict=True) if share < _FOUND]
    raise ConfigError(
        f"{table.uri} has the ends of edges, and no table holds the nodes of {' and '.join(lacking)}: in brackets the "
        "share of values that are ids of another table",
        where=_HERE,
        fix="Give the table of these nodes too, or name its column of ids: --id TABLE.COLUMN.",
    )


def _is_apart(table: GivenTable, own: str | None, nodes: Sequence[NodeRole]) -> bool:
    """Return whether neither names of ends nor ids of another table show that a table belongs to the graph."""
    return find_ends([name for name in table.columns if name != own]) is None and _same_ids(table, own, nodes) is None


def _same_ids(table: GivenTable, own: str | None, nodes: Sequence[NodeRole]) -> NodeRole | None:
    """Return the table that has the ids of this one as its own, so that both describe the same nodes.

    Numbers of two things are alike by chance, so that their columns must have one name.
    """
    if own is None:
        return None
    values = pc.unique(table.values(own))
    alike = [each for each in nodes if each.table.uri != table.uri and (each.id == own or are_text(values))]
    return next((each for each in alike if len(values) and _share_among(values, each) >= SURE), None)


def _refuse_same_ids(table: GivenTable, own: str | None, nodes: Sequence[NodeRole]) -> None:
    if (other := _same_ids(table, own, nodes)) is not None:
        columns = f"column {own!r}" if own == other.id else f"columns {other.id!r} and {own!r}"
        raise ConfigError(
            f"{other.table.uri} and {table.uri} hold the same ids ({columns}), so that both describe the same nodes",
            where=_HERE,
            fix="Join them into one table with one row for each id, and give that one instead of the two.",
        )


def _ask_about(table: GivenTable, own: str | None) -> None:
    if own is None:
        raise ConfigError(
            f"no column of {table.uri} is shown to hold ids of nodes; it has {listed(table.columns, at_most=20)}",
            where=_HERE,
            fix=f"Name it: --id {table.name}.COLUMN, or for a table of edges --ends SRC,DST.",
        )
    raise ConfigError(
        f"no other table holds the ids of {table.uri} (column {own!r})",
        where=_HERE,
        fix="Give a table of edges too, or name its columns of ends: --ends SRC,DST. Or leave this table out.",
    )


def _ask_about_unnamed(lost: GivenTable, shown: _Shown, roles: Roles) -> None:
    """Raise ConfigError where a table of edges holds the ids of a table in a column that is no end."""
    for table in (edge.table for edge in roles.edges):
        for column in (each.column for each in shown.references[table.uri] if each.nodes.table.uri == lost.uri):
            own = shown.ids[table.uri]
            nodes = f"Make its rows nodes: {say_id(table, own)}. Or leave" if own else "Leave"
            raise ConfigError(
                f"column {column!r} of {table.uri} holds the ids of {lost.uri}, and is no end of its edges",
                where=_HERE,
                fix=f"{nodes} {lost.uri} out.",
            )


def _references(table: GivenTable, nodes: Sequence[NodeRole], own: str | None) -> list[Reference]:
    """Return the columns of a table whose values are ids of another table.

    Each has the table that holds most of its values. Numbers are often among ids by chance, so their column must be
    named as ids are.
    """
    found = []
    for name in table.columns:
        values = pc.unique(table.values(name))
        if name in (own, INDEX) or not len(values):
            continue
        best = max((_reference(name, values, each, table) for each in nodes), key=lambda each: each[0], default=None)
        if best is not None and best[1] is not None:
            found.append(best[1])
    return found


def _reference(
    name: str, values: pa.Array, nodes: NodeRole, table: GivenTable
) -> tuple[tuple[bool, float], Reference | None]:
    words = split_words(name)
    subject = tuple(word for word in words if word not in ID_WORDS)
    is_named = subject in stems_of(nodes.table.name) or (bool(subject) and words == split_words(nodes.id))
    is_text = are_text(values)
    # small integers are among other ones by chance: category_id, house_number
    says_id = {*words[-1:]} <= (ID_WORDS if is_text else KEY_WORDS) and bool(words)
    says_id &= is_text or not subject or bool(RELATIVES & {*subject})
    if nodes.table.uri == table.uri and ((not is_text and not says_id) or _repeats_ids(name, nodes)):
        return (False, 0.0), None
    share = _share_among(values, nodes)
    least = _FOUND if is_named or says_id else SURE if is_text else 2.0
    return (is_named, share), Reference(name, nodes, share) if share >= least else None


def _repeats_ids(name: str, nodes: NodeRole) -> bool:
    """Return whether a column holds each row's own id again, and so refers to no other row."""
    own = nodes.table.values(nodes.id)
    return bool(nodes.table.values(name).equals(own))


def _share_among(values: pa.Array, nodes: NodeRole) -> float:
    """Return the share of different values that are among a node table's ids."""
    return float(pc.mean(pc.is_in(values, value_set=all_values(nodes.table, nodes.id)).cast(pa.float64())).as_py() or 0)


def _edge_of(table: GivenTable, shown: _Shown, ends: Sequence[Pair]) -> EdgeRole | None:
    """Return a table's role as edges; None where it holds nodes."""
    own, references = shown.ids[table.uri], shown.references
    given = next((pair for pair in ends if {*pair} <= {*table.columns}), None)
    others = [each for each in shown.nodes if each.table.uri != table.uri]
    to_itself = [each.column for each in references[table.uri] if each.nodes.table.uri == table.uri]
    is_key = given is not None and given[0] == own and given[1] in to_itself  # found as a foreign key
    if given is not None and not is_key:
        return EdgeRole(table, _given_end(table, given[0], others), _given_end(table, given[1], others))
    is_referred_to = any(
        each.nodes.table.uri == table.uri for uri, held in references.items() if uri != table.uri for each in held
    )
    # text alone, as numbers are among the ids by chance
    if is_key or is_referred_to or any(are_text(table.values(name)) for name in to_itself):
        return None
    pair = find_ends([name for name in table.columns if name != own])
    if pair is not None and others:
        src, dst = _apart(table, pair, others)
        if min(src.share, dst.share) >= _FOUND:
            return _sure_edges(EdgeRole(table, src, dst), own)
    held = [each for each in references[table.uri] if each.nodes.table.uri != table.uri]
    if own is not None and to_itself:  # manager_id: its rows are each other's ends
        return None
    if len(held) == _PAIR:
        return _sure_edges(EdgeRole(table, held[0], held[1]), own)
    if len(held) > _PAIR:
        raise ConfigError(
            f"columns {listed([each.column for each in held])} of {table.uri} each hold ids of nodes",
            where=_HERE,
            fix=_of_several(table, own, held),
        )
    return None


def _of_several(table: GivenTable, own: str | None, held: Sequence[Reference]) -> str:
    """Return the fixes for a table with three or more columns of ids."""
    pair = say_ends(held[0].column, held[1].column)
    named = {end.nodes.name for end in held[:_PAIR]}
    others = list(dict.fromkeys(end.nodes.name for end in held if end.nodes.name not in named))
    without = f", without the tables {listed(others)}" if others else ""
    edges = f"{pair} for edges{without}"
    if own is None:
        return f"Name an edge's source and target: {edges}. Or give each row an id, which makes it a node."
    return f"Name one: {say_id(table, own)} for nodes with a relation for each, or {edges}."


def _sure_edges(role: EdgeRole, own: str | None) -> EdgeRole:
    """Return the role. Raises ConfigError where the rows may as well be things, each with two foreign keys.

    Such rows have ids and attributes, and are many for each row of the small tables that they name.
    """
    table, ends = role.table, (role.src, role.dst)
    rows = sum(end.nodes.table.num_rows for end in ends)
    is_bare = any(end.nodes.bare for end in ends) or role.src.nodes == role.dst.nodes
    attributes = {*table.columns} - {own, role.src.column, role.dst.column}
    if own is None or is_bare or not attributes or table.num_rows < _MANY_FOR_EACH * rows:
        return role
    pair = say_ends(role.src.column, role.dst.column)
    raise ConfigError(
        f"the rows of {table.uri} may be edges between {role.src.nodes.name} and {role.dst.nodes.name}, or nodes "
        f"(ids in {own!r}) with two foreign keys",
        where=_HERE,
        fix=f"Name one: {pair} for edges, {say_id(table, own)} for nodes.",
    )


def _apart(table: GivenTable, pair: Pair, nodes: Sequence[NodeRole]) -> tuple[Reference, Reference]:
    """Return both ends; of two different things (userId, movieId) one may have no table, and then has a bare type.

    Numbers of one are among the ids of the other by chance, and so are kept apart by their names.
    """
    ends = [_best_end(table, name, nodes) for name in pair]
    types = find_types(*pair)
    sure = [_is_named(end) and end.share >= _FOUND for end in ends]
    if types is None or types[0] == types[1] or sum(sure) != 1:
        return ends[0], ends[1]
    other = sure.index(False)
    is_text = are_text(table.values(pair[other]))
    is_other_thing = not is_text and ends[0].nodes == ends[1].nodes
    if is_other_thing or ends[other].share < _FOUND:
        ends[other] = Reference(pair[other], NodeRole(table, pair[other], bare=types[other]), 1.0)
    return ends[0], ends[1]


def _is_named(end: Reference) -> bool:
    """Return whether a column is called as the node table or its column of ids."""
    subject = {word for word in split_words(end.column) if word not in ID_WORDS}
    by_id = {word for word in split_words(end.nodes.id) if word not in ID_WORDS}
    return any({*stem} <= subject for stem in stems_of(end.nodes.table.name)) or (bool(by_id) and by_id <= subject)


def _best_end(table: GivenTable, name: str, nodes: Sequence[NodeRole]) -> Reference:
    values = pc.unique(table.values(name))
    shares = [Reference(name, each, _share_among(values, each) if len(values) else 0.0) for each in nodes]
    return max(shares, key=lambda each: (_is_named(each) and each.share >= _FOUND, each.share))


def _given_end(table: GivenTable, name: str, nodes: Sequence[NodeRole]) -> Reference:
    best = _best_end(table, name, nodes) if nodes else None
    if best is None or not best.share:
        raise ConfigError(
            f"no table holds the nodes whose ids are in column {name!r} of {table.uri}",
            where=_HERE,
            fix="Give the table of nodes too, with the column of its ids: --id COLUMN.",
        )
    return best
