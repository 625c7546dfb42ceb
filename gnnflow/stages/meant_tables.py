"""The tables and columns that a config most likely means where it names wrong ones.

A wrong name is not there, or names a column without the ids it should hold. It hides what else is wrong with the rows,
so tables are read on by the name that was meant. It is the nearest one where the config gives the name; else a column's
name shows that it holds ids or ends, or its values are the ids of another table. Numbers are often among ids by chance,
so only values of text show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import ISO_DATE
from gnnflow.config.column_names import own_name
from gnnflow.config.environment import config_line
from gnnflow.config.messages import closest, nearest
from gnnflow.datasets.edge_headers import find_ends, split_words
from gnnflow.graph.errors import TableError
from gnnflow.ingest.preview_tables import own_section
from gnnflow.ingest.schema import LABEL_OF_EDGES, ends_of
from gnnflow.ingest.text import filter_columns
from gnnflow.storage.columns import combine
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.user_tables import holds_text, holds_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.config.edge_tables import EdgeTableConfig
    from gnnflow.graph.errors import GnnflowError
    from gnnflow.graph.schema import Relation
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.preview_tables import SampledTable

_ID = frozenset(("id", "uid", "key"))
_MOST = 0.5  # share of a table's ids, or of a column's values, that shows that they are the same
_LEAST_NAMES = 2  # columns of ids and ends that show which table is which


@dataclass(frozen=True)
class MeantGraph:
    """A graph section with the names that were meant, and the errors about those that are written."""

    graph: GraphConfig
    errors: tuple[GnnflowError, ...]
    mended: str = ""  # a key that named a column of the table without ids

    def explains(self, error: GnnflowError) -> bool:
        """Return whether an error says that another key names this column too, which it then may."""
        return bool(self.mended) and error.problem.endswith(f"is the column of {self.mended}")


class _Wrong(NamedTuple):
    """A column that its table has not: its key in the config and its role: `id`, `label`, `src`, `dst` or `where`.

    meant: the column that was meant, "" where nobody knows. how: what shows it; "" where the error names it already.
    """

    table: SampledTable
    key: str
    role: str
    column: str
    meant: str = ""
    how: str = ""


def as_meant(preview: Preview, graph: GraphConfig) -> MeantGraph | None:
    """Return the section with names that are there; None where it has no wrong ones, or nobody knows what they mean."""
    if (swapped := _swapped_tables(preview, graph)) is not None:
        return MeantGraph(graph.model_copy(update={"nodes": graph.edges, "edges": graph.nodes}), (swapped,))
    errors: list[GnnflowError] = []
    meant = graph
    for error in preview.errors:
        relation, near = _table_meant(error, graph)
        wrong = _wrong_of(error, preview, graph)
        if relation is not None and near:
            meant = _with_edge_table(meant, relation, table=near)
        elif wrong is not None and wrong.meant:
            meant = _with_column(meant, wrong)
        else:
            continue
        errors.append(with_hint(error, preview, graph))
    if errors:
        return MeantGraph(meant, tuple(errors))
    wrong = next(_without_ids(preview, graph), None)
    return None if wrong is None else MeantGraph(_with_column(graph, wrong), (_no_ids(wrong, graph),), wrong.key)


def with_hint(error: GnnflowError, preview: Preview, graph: GraphConfig) -> GnnflowError:
    """Return an error about a missing table or column with the line to write, where names or values show one."""
    relation, _ = _table_meant(error, graph)
    if relation is not None:
        own = graph.edge_table_of(relation)
        assert own is not None, "a relation with a table of its own"
        types = f"{nearest(_name_of(own), [*graph.nodes])} Node types are {', '.join(graph.nodes)}."
        problem = f"{_name_of(own)!r} is {error.problem}, and no node type"
        return type(error)(problem, where=f"graph.edges.{relation}.table", fix=f"{types.strip()} {error.fix}")
    wrong = _wrong_of(error, preview, graph)
    if wrong is not None and wrong.role == "label" and (line := _edges_with_label(wrong, preview, graph)):
        return type(error)(error.problem, where=error.where, fix=f"{error.fix} {line}")
    if wrong is None or not wrong.how:
        return error
    fix = f"{error.fix} By its {wrong.how}: `{_line(wrong, graph)}`."
    return type(error)(error.problem, where=error.where, fix=fix)


def _edges_with_label(wrong: _Wrong, preview: Preview, graph: GraphConfig) -> str:
    """Return the keys by which edges are labelled, where the one table with the column is one of edges; else ""."""
    holders = [table for table in preview.tables if wrong.column in table.names]
    if not wrong.table.is_nodes or len(holders) != 1 or holders[0].is_nodes:
        return ""
    relation = list(graph.edge_tables)[holders[0].number]
    target = f" and `graph: {config_line({'target': str(relation)})}`" if graph.schema.is_typed else ""
    return f"Or label edges, whose table has the column: `task: {{kind: edge}}`{target}."


def _line(wrong: _Wrong, graph: GraphConfig) -> str:
    """Return the line that names the column that was meant."""
    if wrong.key == f"graph.{wrong.role}":
        return f"graph: {config_line({wrong.role: _for_one(wrong, graph)})}"
    return f"{wrong.key}: {config_line(wrong.meant)}"


def unread_times(preview: Preview, graph: GraphConfig, stops: Sequence[GnnflowError]) -> Iterator[str]:
    """Yield a sentence for each name in `graph.timestamp` that no edge table has, where nothing that stops says so."""
    tables = [(own_section(graph, table).time_column, table.names) for table in preview.tables if not table.is_nodes]
    is_told = any("graph.timestamp" in str(error) for error in stops)
    if is_told or "timestamp" not in graph.model_fields_set or len(tables) < len(graph.edge_tables):
        return
    for name in dict.fromkeys(name for name, _ in tables):
        held = [each for asked, names in tables if asked == name for each in names]
        if name != "timestamp" and name not in held:
            near = nearest(name, [*dict.fromkeys(held)])
            yield f"graph.timestamp: no edge table has a column {name!r}, and no stage reads times. {near}".strip()


def _swapped_tables(preview: Preview, graph: GraphConfig) -> TableError | None:
    """Return the error of a graph without types whose two tables are each other's; None for another graph."""
    if graph.schema.is_typed or len(preview.tables) < len(("nodes", "edges")):
        return None
    nodes, edges = preview.tables
    asked = {graph.src_column, graph.dst_column}
    ends, ids = asked & {*nodes.names}, {graph.id_column} & {*edges.names}
    if graph.id_column in nodes.names or asked & {*edges.names} or len(ends) + len(ids) < _LEAST_NAMES:
        return None
    more = f", and graph.edges the column of ids {graph.id_column!r}" if ids else ""
    return TableError(
        f"has the columns of edges ({', '.join(sorted(ends))}){more}",
        where="graph.nodes",
        fix=f"The tables are swapped. Set graph.nodes: {config_line(edges.source.uri)} and graph.edges: "
        f"{config_line(nodes.source.uri)}.",
    )


def _table_meant(error: GnnflowError, graph: GraphConfig) -> tuple[Relation | None, str]:
    """Return the relation whose missing table may be a type, and the type that was meant; "" where nobody knows."""
    for relation in graph.edge_tables if error.problem.startswith("no such table") else ():
        own = graph.edge_table_of(relation)
        if own is not None and error.where == absolute(own.table) and "." not in (name := _name_of(own)):
            return relation, closest(name, [name for name, uri in graph.node_tables.items() if uri])
    return None, ""


def _name_of(table: EdgeTableConfig) -> str:
    """Return the last part of an edge table's path, which may be meant as the name of a node type."""
    return table.table.rpartition("/")[2]


def _wrong_of(error: GnnflowError, preview: Preview, graph: GraphConfig) -> _Wrong | None:
    """Return the column that an error says a table has not, with the one that was meant."""
    for table in preview.tables:
        if not any(error.where == chunk.uri for chunk in table.source.chunks):
            continue
        for wrong in _wrong_columns(table, graph):
            if error.problem.startswith(f"has no column {wrong.column!r} ({wrong.key})"):
                return _meant(wrong, preview, graph)
    return None


def _wrong_columns(table: SampledTable, graph: GraphConfig) -> Iterator[_Wrong]:
    own = own_section(graph, table)
    if table.is_nodes:
        asked = [("graph.id", "id", own.id_column), ("graph.label", "label", own.label_column)]
        asked = asked if table.source.uri else []
    else:
        relation = list(graph.edge_tables)[table.number]
        ends = zip(("src", "dst"), ends_of(own, relation), strict=True)
        asked = [(end.key, role, end.column) for role, end in ends]
        asked.append((LABEL_OF_EDGES, "label", own.label_column))
        asked.append(("graph.timestamp", "timestamp", own.time_column))
        asked += [(f"graph.edges.{relation}.where", "where", name) for name in filter_columns(graph, relation)]
    yield from (_Wrong(table, *each) for each in asked if each[-1] not in table.names)


def _meant(wrong: _Wrong, preview: Preview, graph: GraphConfig) -> _Wrong:
    """Return a wrong column with the one that was meant, where it is evident."""
    own, names = own_section(graph, wrong.table), wrong.table.names
    if wrong.role == "where":
        return wrong._replace(meant=closest(wrong.column, names))
    if wrong.role == "label":
        is_default = wrong.column == wrong.role
        taken = {own.id_column} if wrong.table.is_nodes else {own.src_column, own.dst_column, own.weight_column}
        free = [name for name in names if name not in taken | {own.split_column, own.time_column}]
        return wrong if is_default else wrong._replace(meant=closest(wrong.column, free))
    taken = {own.label_column, own.split_column}
    if not wrong.table.is_nodes:
        taken |= {own.src_column, own.dst_column, own.weight_column, own.time_column}
    if wrong.role == "timestamp":
        times = [name for name in names if name not in taken and _holds_times(wrong.table, name)]
        return wrong._replace(meant=times[0], how="values") if len(times) == 1 else wrong
    free = [name for name in names if name not in taken]
    if wrong.column != wrong.role and (near := closest(wrong.column, names)):
        return wrong._replace(meant=near if near in free else "")
    by_name = _id_by_name(wrong.table, free) if wrong.role == "id" else _end_by_name(names, wrong.role)
    if by_name in free:
        return wrong._replace(meant=by_name, how="name")
    by_value = [name for name in free if _has_ids(wrong, name, preview, graph)]
    return wrong._replace(meant=by_value[0], how="values") if len(by_value) == 1 else wrong


def _without_ids(preview: Preview, graph: GraphConfig) -> Iterator[_Wrong]:
    """Yield the columns of ids and ends that are there and hold none, where one other column alone does; ids first.

    Later rows of a node table could hold them, so its sample has to be the table. Ids are different in each row.
    """
    nodes = {each.number: each for each in preview.tables if each.is_nodes}
    whole = {number for number, each in nodes.items() if each.sample.is_whole and each.parts}
    for table in sorted(preview.tables, key=lambda each: not each.is_nodes):
        own = own_section(graph, table)
        taken = {own.label_column, own.split_column}
        if table.is_nodes:
            asked, of = [("graph.id", "id", own.id_column)], {table.number}
        else:
            ends = ends_of(own, list(graph.edge_tables)[table.number])
            asked = [(end.key, role, end.column) for role, end in zip(("src", "dst"), ends, strict=True)]
            taken, of = taken | {own.src_column, own.dst_column}, {*table.source.ids.values()}
        if not of <= whole:
            continue
        rows = sum(part.num_rows for part in table.parts)
        free = [name for name in table.names if name not in {*taken, own.id_column if table.is_nodes else ""}]
        if table.is_nodes:
            free = [name for name in free if len(_texts(table, name)) == rows]
        for wrong in (_Wrong(table, *each) for each in asked if each[-1] in table.names):
            found = [name for name in free if _has_ids(wrong, name, preview, graph)]
            if len(found) == 1 and not _has_ids(wrong, wrong.column, preview, graph, least=0):
                yield wrong._replace(meant=found[0], how="values")


def _no_ids(wrong: _Wrong, graph: GraphConfig) -> TableError:
    """Return the error of a column that is there and holds no ids."""
    what = "no end of an edge is among its values" if wrong.role == "id" else "none of its values is an id of a node"
    return TableError(
        f"column {wrong.column!r} ({wrong.key}) holds no ids: {what}; column {wrong.meant!r} holds ids",
        where=wrong.table.source.chunks[0].uri,
        fix=f"By its values: `{_line(wrong, graph)}`.",
    )


def _end_by_name(names: Sequence[str], role: str) -> str:
    pair = find_ends(names)
    return "" if pair is None else pair[("src", "dst").index(role)]


def _id_by_name(table: SampledTable, names: Sequence[str]) -> str:
    """Return the only column that is called as ids are and differs in each row, as no foreign key does."""
    rows = sum(part.num_rows for part in table.parts)
    called = [name for name in names if {*split_words(name)[-1:]} & _ID]
    ids = [name for name in called if len(pc.unique(table.rows([name])[name])) == rows]
    return ids[0] if len(ids) == 1 else ""


def _has_ids(wrong: _Wrong, name: str, preview: Preview, graph: GraphConfig, *, least: float = _MOST) -> bool:
    """Return whether a column has the values that the wrong one should have: more than this share of them."""
    values = _texts(wrong.table, name)
    if wrong.role != "id":
        of = wrong.table.source.ids[wrong.column]
        nodes = next((each for each in preview.tables if each.is_nodes and each.number == of), None)
        return nodes is not None and _share(values, _texts(nodes, own_section(graph, nodes).id_column)) > least
    ends = (
        _texts(table, column)
        for table in preview.tables
        for column, of in table.source.ids.items()
        if not table.is_nodes and of == wrong.table.number
    )
    return any(_share(each, values) > least for each in ends)


def _holds_times(table: SampledTable, name: str) -> bool:
    """Return whether a column holds dates or times alone, as such or as ISO text."""
    columns = [combine(part[name]) for part in table.parts if name in part.column_names]
    if any(not holds_times(each.type) and not holds_text(each.type) for each in columns):
        return False
    if any(holds_times(each.type) for each in columns):
        return True
    texts = _texts(table, name)
    return len(texts) > 0 and bool(pc.all(pc.match_substring_regex(texts, ISO_DATE)).as_py())


def _share(values: pa.Array, among: pa.Array) -> float:
    """Return the share of values that are among others; 0 of none."""
    return float(pc.mean(pc.is_in(values, value_set=among).cast(pa.float64())).as_py() or 0)


def _texts(table: SampledTable, name: str) -> pa.Array:
    """Return the different values of a column; none where it is not there, or holds no text."""
    held = [combine(part[name]) for part in table.parts if name in part.column_names]
    texts = [each.cast(pa.large_string()) for each in held if holds_text(each.type)]
    return pc.unique(pa.chunked_array(texts, pa.large_string())).drop_null()


def _for_one(wrong: _Wrong, graph: GraphConfig) -> str | dict[str, str]:
    """Return the value of a key that names one table's column, and leaves other tables as they are."""
    if not graph.schema.is_typed:
        return wrong.meant
    key, tables = wrong.role, [*graph.node_tables] if wrong.table.is_nodes else [*map(str, graph.edge_tables)]
    asked = getattr(graph, key)
    held = {each: own_name(asked, each, default=key) or key for each in tables}
    held[tables[wrong.table.number]] = wrong.meant
    return {each: column for each, column in held.items() if column != key}


def _with_column(graph: GraphConfig, wrong: _Wrong) -> GraphConfig:
    """Return the section with the column that was meant."""
    relation = None if wrong.table.is_nodes else list(graph.edge_tables)[wrong.table.number]
    if wrong.role == "where":
        assert relation is not None, "only relations choose rows"
        own = _edge_table(graph, relation)
        where = {wrong.meant if name == wrong.column else name: held for name, held in (own.where or {}).items()}
        return _with_edge_table(graph, relation, where=where)
    if relation is not None and wrong.key == f"graph.edges.{relation}.{wrong.role}":
        return _with_edge_table(graph, relation, **{wrong.role: wrong.meant})
    return graph.model_copy(update={wrong.role: _for_one(wrong, graph)})


def _with_edge_table(graph: GraphConfig, relation: Relation, **update: object) -> GraphConfig:
    """Return the section with other keys of a relation's own table."""
    assert not isinstance(graph.edges, str), "a graph of relations"
    own = _edge_table(graph, relation).model_copy(update=update)
    return graph.model_copy(update={"edges": {**graph.edges, str(relation): own}})


def _edge_table(graph: GraphConfig, relation: Relation) -> EdgeTableConfig:
    own = graph.edge_table_of(relation)
    assert own is not None, "a relation with a table of its own"
    return own
