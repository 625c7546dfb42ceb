"""Compares the columns of edges of two graph stores, as the columns of nodes are compared.

Ingest counts the columns of nodes alone, so attributes are read here, from whole partitions until there are enough of
them: a partition holds the edges into a random part of the nodes. Of labelled edges, which may carry no messages in
training, the table of pairs has all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.ingest.statistics import CODES, codes_of, counted_column, drift_of
from gnnflow.stages.table_columns import every_column
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from gnnflow.graph.arrays import FloatArray
    from gnnflow.graph.facts import ColumnCounts
    from gnnflow.ingest.statistics import Drift
    from gnnflow.storage.graph_store import GraphStore

_ENOUGH = 1 << 24  # numbers of a relation, which take 64 MiB


def edge_drifts(new: GraphStore, old: GraphStore) -> dict[str, Drift]:
    """Return the drift of each column of edges that both graphs have, by its name after its relation's."""
    before, after = _counted(old), _counted(new)
    return {name: drift_of(before[name], held) for name, held in after.items() if name in before}


def _counted(store: GraphStore) -> dict[str, ColumnCounts]:
    columns = [each for each in every_column(store.facts) if each.of_edges]
    found = {}
    for relation in dict.fromkeys(each.owner for each in columns):
        attributes = _attributes(store, relation)
        if attributes is None:
            continue
        for each in (each for each in columns if each.owner == relation):
            for place, part in enumerate(each.parts):
                name = each.name if len(each.parts) == 1 else f"{each.name}[{place}]"
                codes = codes_of(np.ascontiguousarray(attributes[:, part], np.float32))
                found[name] = counted_column(name, np.bincount(codes, minlength=CODES))
    return found


def _attributes(store: GraphStore, relation: int) -> FloatArray | None:
    """Return attributes of a relation's edges [E, W], of all or of enough; None without edges."""
    held, count = [], 0
    for piece in _pieces(store, relation):
        held.append(to_matrix(piece["attributes"]))
        count += held[-1].size
        if count >= _ENOUGH:
            break
    return np.concatenate(held) if count else None


def _pieces(store: GraphStore, relation: int) -> Iterator[pa.Table]:
    facts = store.facts
    are_pairs = facts.targets == "edges" and relation == facts.pair_relation and "attributes" in store.pair_columns
    for partition in range(store.num_partitions):
        if are_pairs:
            yield store.pairs(partition, ["attributes"])
        else:
            yield from store.iter_edges(partition, ["attributes"], relation=relation)
