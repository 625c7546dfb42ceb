"""Compares the columns of edges of two graph stores, as the columns of nodes are compared: attributes, weights, times.

Ingest counts the columns of nodes alone, so edges are read here, from whole partitions until there are enough of them:
a partition holds the edges into a random part of the nodes. Of labelled edges, which may carry no messages in training,
the table of pairs has all, though without weights. Attributes are compared as their tables have them, before
`normalize: standard`, whose figures are another table's. A later table has later times, so a time counts by its place
between the first and the last one: a month that lacks its last week, or has one date for all, differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.ingest.statistics import CODES, codes_of, counted_column, marked
from gnnflow.stages.column_drift import EDGE, CountedColumns, compare_columns
from gnnflow.stages.table_columns import edges_table, every_column
from gnnflow.storage.columns import to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from gnnflow.graph.arrays import Array
    from gnnflow.graph.facts import ColumnCounts
    from gnnflow.graph.scales import ColumnScale
    from gnnflow.ingest.statistics import Drift
    from gnnflow.storage.graph_store import GraphStore

WEIGHT, TIME = "graph.weight", "graph.timestamp"
"""The names of edges' weights and times, after the config's keys: their columns may be attributes too."""
_ENOUGH = 1 << 24  # numbers of a relation, which take 64 MiB
_ROUND = -20  # the power of two of a scale below which its numbers are rounding errors


def edge_drifts(new: GraphStore, old: GraphStore) -> tuple[dict[str, Drift], list[str]]:
    """Return the drift of each column of edges that both graphs have, and the names of the other columns.

    A name comes after its relation's, or after "edge". The same store is read once.
    """
    stores = {each.artifact: each for each in (new, old)}
    counted = {name: CountedColumns.of(each.facts, _counted(each), "edges") for name, each in stores.items()}
    return compare_columns(counted[new.artifact], counted[old.artifact])


def has_edge_columns(store: GraphStore) -> bool:
    """Return whether edges have columns that are compared."""
    return any(_columns_of(store, relation) for relation in range(len(store.facts.relations) or 1))


def _counted(store: GraphStore) -> Iterator[ColumnCounts]:
    columns = [each for each in every_column(store.facts) if each.of_edges]
    for relation in range(len(store.facts.relations) or 1):
        read = {name: _values(store, relation, name) for name in _columns_of(store, relation)}
        lead = edges_table(store.facts, relation).partition("/")[2] or EDGE
        if (weight := read.get("weight")) is not None:
            yield _count(marked(lead, WEIGHT), weight)
        if (time := read.get("time")) is not None:
            yield _count(marked(lead, TIME), (time - time.min()) / max(int(time.max() - time.min()), 1))
        if (attributes := read.get("attributes")) is None:
            continue
        table = edges_table(store.facts, relation)
        outputs = {marked(lead, each.state.name): each.state.outputs for each in store.facts.encodings.get(table, ())}
        scale = store.facts.scales.get(table)
        for each in (each for each in columns if each.owner == relation):
            names = [marked(lead, name) for name in outputs.get(each.name, ())]
            if not names:
                names = [f"{each.name}[{place}]" for place in range(len(each.parts))]
                names = [each.name] if len(names) == 1 else names
            for name, part in zip(names, each.parts, strict=True):
                yield _count(name, _unscaled(attributes[:, part], part, scale))


def _count(name: str, values: Array) -> ColumnCounts:
    codes = codes_of(np.ascontiguousarray(values, np.float32))
    return counted_column(name, np.bincount(codes, minlength=CODES))


def _unscaled(values: Array, column: int, scale: ColumnScale | None) -> Array:
    """Return numbers as their table has them. Those that rounding moved a little are again what they were: 1 is 1."""
    if scale is None:
        return values
    mean, deviation = scale.mean[column], scale.deviation[column]
    step = 2.0 ** (np.floor(np.log2(max(abs(mean), deviation))) + _ROUND)
    return np.asarray(np.rint((values.astype(np.float64) * deviation + mean) / step) * step)


def _columns_of(store: GraphStore, relation: int) -> Sequence[str]:
    """Return the columns of a relation's edges to compare; none of a reversed one, whose edges are another's."""
    facts = store.facts
    if facts.relations and edges_table(facts, relation) not in facts.tables:
        return ()
    if _are_pairs(store, relation):
        held = {*store.pair_columns, *({"weight"} & {*store.edge_columns_of(relation)})}
        return [name for name in ("weight", "attributes", "time") if name in held]
    return store.edge_columns_of(relation)


def _are_pairs(store: GraphStore, relation: int) -> bool:
    return store.facts.targets == "edges" and relation == store.facts.pair_relation


def _values(store: GraphStore, relation: int, name: str) -> Array | None:
    """Return a column of a relation's edges [E] or [E, W], of all or of enough; None without edges."""
    held, count = [], 0
    for piece in _pieces(store, relation, name):
        held.append(to_matrix(piece[name]) if name == "attributes" else to_numpy(piece[name]))
        count += held[-1].size
        if count >= _ENOUGH:
            break
    return np.concatenate(held) if count else None


def _pieces(store: GraphStore, relation: int, name: str) -> Iterator[pa.Table]:
    for partition in range(store.num_partitions):
        if _are_pairs(store, relation) and name in store.pair_columns:
            yield store.pairs(partition, [name])
        else:
            yield from store.iter_edges(partition, [name], relation=relation)
