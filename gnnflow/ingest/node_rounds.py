"""The rounds of ingest over nodes: reads, sorts and writes one chunk or part. Pure but for the files a task commits.

The hash of a node's id chooses its partition, and nodes are numbered in id order, so dense ids depend on neither file
nor row order. Tasks are numbered as `gnnflow.ingest.edge_rounds` says.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import degree_bins
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.made_features import ROWS_PER_ID, degree_features, embedding_rows
from gnnflow.ingest import edge_rounds
from gnnflow.ingest.checks import Fault, id_faults, input_positions
from gnnflow.ingest.labels import label_counts
from gnnflow.ingest.moments import count_numbers, scaled
from gnnflow.ingest.narrowing import column_errors, count_range
from gnnflow.ingest.owned_ids import kept_ids
from gnnflow.ingest.source import (
    node_column_names,
    node_columns,
    node_faults,
    node_number_types,
    read_rows,
    separate_arrived,
    take_kept,
)
from gnnflow.ingest.statistics import count_rows
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.native import stable_order
from gnnflow.storage.columns import combine, from_ragged, from_rows, id_keys, order_rows, to_matrix, to_numpy
from gnnflow.storage.graph_store import degree_column, nodes_file
from gnnflow.storage.tables import commit_table
from gnnflow.storage.user_tables import read_chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.narrow import NarrowRows
    from gnnflow.graph.scales import Scales
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.tables import NodeTable
    from gnnflow.mapreduce.exchange import Inbox


_FEATURES = ("x", "x_index", "x_value")


def read_nodes(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Read one chunk of nodes, check its rows, and send each to its home partition, apart from its features."""
    node_type, source = job.node_table(index)
    if source.ends:
        return _read_ids(index - source.first, source, node_type, job=job)
    schema, config = source.schema, source.config

    def send(rows: pa.Table, place: IntArray) -> Iterable[Emit]:
        columns = node_columns(rows, schema, config)
        home = job.home_of(columns["id"]) * job.graph.num_types + node_type
        features = {name: columns.pop(name) for name in _FEATURES if name in columns}
        yield Emit("nodes", pa.table({**columns, "place": place}), home)
        if features:
            yield Emit("features", pa.table(features), home)

    scale = job.given_scales.get(job.table_names.nodes[node_type])
    coming = read_rows(
        source,
        index - source.first,
        job,
        names=node_column_names(schema, config),
        numbers=node_number_types(schema, config),
        faults=partial(node_faults, schema=schema, config=config, scale=scale),
        send=send,
    )
    return TaskOutput(coming=coming)


def _read_ids(number: int, source: NodeTable, node_type: int, *, job: IngestJob) -> TaskOutput:
    """Read the ids of a type without a table from a chunk of an edge table; bad ones are left to the edges' round."""
    edges, column = source.ends[number]
    table = job.tables.edges[edges]
    rows = read_chunk(source.chunks[number], edge_rounds.end_columns(table))
    if table.chosen is not None:
        rows = take_kept(rows, np.flatnonzero(edge_rounds.are_edges(rows, source=table)))
    bad = [fault.rows for fault in id_faults(rows, column)]
    rows = take_kept(rows, np.setdiff1d(np.arange(rows.num_rows), np.concatenate(bad)))
    ids = pa.table({source.config.id_column: pc.unique(combine(rows[column]))})
    columns = node_columns(ids, source.schema, source.config)
    place = input_positions(number, np.arange(ids.num_rows))
    home = job.home_of(columns["id"]) * job.graph.num_types + node_type
    return TaskOutput(emits=(Emit("nodes", pa.table({**columns, "place": place}), home),))


def sort_nodes(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Sort a part's nodes by id, set repeated ids aside, and count what the next rounds need.

    Only ids and the order are sent on: `write_nodes` reads the rows where they lie. Features are read here only where
    their numbers say how they are stored, or where a row is set aside.
    """
    partition, node_type = divmod(index, job.graph.num_types)
    source = job.tables.nodes[node_type]
    rows = inbox.read("nodes", tasks=source.tasks)
    # rows of one id stay in input order, in which they come
    order = _order_of(combine(rows["id"]))
    rows = order_rows(rows, order)
    ids = combine(rows["id"])
    # rows with the same id as the row before them
    repeated = 1 + np.flatnonzero(to_numpy(pc.equal(ids[1:], ids[:-1]))) if len(ids) > 1 else np.zeros(0, np.int64)
    fault = replace(repeated_id_fault(repeated, column=source.config.id_column), held_in="id")
    if source.ends:
        kept = np.setdiff1d(np.arange(len(ids)), repeated)
        rows, order, fault = take_kept(rows, kept), order[kept], replace(fault, rows=np.zeros(0, np.int64))
    if source.schema.has_features and (len(fault.rows) or _is_stored_by_counts(node_type, job)):
        features = order_rows(inbox.read("features", tasks=source.tasks), order)
        rows = pa.table({**_columns(rows.drop_columns(["place"])), **_columns(features), "place": rows["place"]})
    found = separate_arrived(rows, fault, source=source, job=job)
    rows = take_kept(rows, found.kept)
    sources = {table.source for table in job.tables.edges}
    return TaskOutput(
        emits=(
            Emit("node_ids", rows.select(["id"]), np.full(rows.num_rows, index)),
            Emit("node_order", pa.table({"row": order[found.kept]}), np.full(rows.num_rows, index)),
            *([kept_ids(combine(rows["id"]))] if job.maps_ids and node_type in sources else []),
        ),
        files=job.set_aside(f"{source.stem}-sort-{partition:05d}", found.bad),
        counts={"rows_out": rows.num_rows, **found.counts, **_node_counts(rows, node_type, job)},
    )


def _columns(table: pa.Table) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _order_of(ids: pa.Array) -> IntArray:
    """Return the stable order of ids without nulls."""
    if not len(ids) or not pa.types.is_int64(ids.type):
        return to_numpy(pc.sort_indices(ids)).astype(np.int64)
    values = to_numpy(ids)
    # as distances from the smallest, which int64 may not hold
    return stable_order(values.view(np.uint64) - values.min().view(np.uint64))


def repeated_id_fault(rows: IntArray, *, column: str) -> Fault:
    """Return the fault of rows whose id an earlier row has."""
    return Fault("id appears more than once", column, rows, "Keep one row per id.")


def _node_counts(rows: pa.Table, node_type: int, job: IngestJob) -> dict[str, Any]:
    schema, counts = job.tables.nodes[node_type].schema, dict[str, Any]()
    if schema.is_target:
        counts["splits"] = np.bincount(to_numpy(rows["split"]) + 1, minlength=4).tolist()
        counts["labelled"] = int(to_numpy(rows["labelled"]).sum())
    if schema.has_labels:
        counts |= label_counts(rows, schema.label_kind)
    if _is_scaled_by_counts(node_type, job):
        counts |= count_numbers(rows["x"], job.config.normalize, in_order=True)
    if schema.features and job.config.storage != "float32":
        counts |= count_range(rows["x"])
    return counts


def _is_scaled_by_counts(node_type: int, job: IngestJob) -> bool:
    """Return whether the numbers of a type are scaled by what is counted of them first."""
    is_given = job.table_names.nodes[node_type] in job.given_scales
    return bool(job.tables.nodes[node_type].schema.features) and job.config.normalize == "standard" and not is_given


def _is_stored_by_counts(node_type: int, job: IngestJob) -> bool:
    """Return whether the rows of a type are stored by what is counted of their numbers first."""
    is_narrow = bool(job.tables.nodes[node_type].schema.features) and job.config.storage != "float32"
    return is_narrow or _is_scaled_by_counts(node_type, job)


def write_nodes(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales, forms: Sequence[NarrowRows | None]
) -> TaskOutput:
    """Write a part's node rows with their degrees, and count their numbers.

    scales: of dense features, by table. forms: of each type's rows.
    """
    partition, node_type = divmod(index, job.graph.num_types)
    source, schema = job.tables.nodes[node_type], job.tables.nodes[node_type].schema
    order = to_numpy(inbox.read("node_order", tasks=[index])["row"])
    channels = ("nodes", "features") if schema.has_features else ("nodes",)
    tables = [order_rows(inbox.read(channel, tasks=source.tasks), order) for channel in channels]
    rows = pa.table({name: column for each in tables for name, column in _columns(each).items() if name != "place"})
    degrees = _degrees(index, inbox, job=job, book=book)
    columns: dict[str, Any] = {
        "id": combine(rows["id"]),
        "node": book.start(index) + np.arange(book.size(index)),
        "key": id_keys(rows["id"]),
        **{name: degree_column(held, job.graph) for name, held in degrees.items()},
        **{name: combine(rows[name]) for name in rows.column_names if name != "id"},
    }
    if (scale := scales.get(job.table_names.nodes[node_type])) is not None:
        columns["x"] = scaled(rows["x"], scale)
    lost: dict[str, Any] = {}
    if schema.features and job.config.normalize == "none":
        lost |= count_numbers(rows["x"], job.config.normalize, in_order=True)
    dense = [to_matrix(columns["x"])] if "x" in columns else []
    if schema.degrees:
        dense.append(degree_features(degrees["in_degree"], degrees["out_degree"]))
    if dense:
        stored = matrix = np.concatenate(dense, axis=1) if len(dense) > 1 else dense[0]
        if (form := forms[node_type]) is not None:
            stored = form.encode(matrix)
            lost |= column_errors(matrix, form.decode(stored))
        # Parquet notes the levels of each number of a list, which takes four times as long as the row as one value
        columns["x"] = from_rows(stored.view(np.uint8))
    if embeddings := schema.embeddings:
        read = embedding_rows(columns["key"], embeddings)
        columns["x_index"] = from_ragged(np.arange(len(read) + 1) * ROWS_PER_ID, read.ravel().astype(np.int32))
    entry = commit_table(job.artifact, nodes_file(partition, job.graph, node_type=node_type), pa.table(columns))
    in_degree = degrees["in_degree"]
    total = in_degree.sum(1)
    counts = {
        **lost,
        "degree_bins": degree_bins(total),
        "max_in_degree": int(total.max(initial=0)),
        # by number, only the relations that lead to this type
        "relations": {
            str(relation): [degree_bins(in_degree[:, relation]), int(in_degree[:, relation].max(initial=0))]
            for relation in job.graph.relations_into(node_type)
        },
    }
    counted = count_rows(rows, schema, partitions=job.partitions, first=job.first_column(node_type))
    return TaskOutput(emits=(counted,), files=(entry,), counts=counts)


def _degrees(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> dict[str, Array]:
    """Return in-degree, out-degree and sum of in-weights of a part's nodes, each [N, R]; zeros in other relations."""
    partition, node_type = divmod(index, job.graph.num_types)
    num_relations, shape = job.graph.num_relations, (book.size(index), job.graph.num_relations)
    in_degree, out_degree = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    in_weight = np.zeros(shape, np.float32)
    for relation, source_type in enumerate(job.graph.source_types):
        if source_type == node_type:
            # out-edges of each node here, added up over the partitions that hold them [N]
            tasks = range(relation, job.partitions * num_relations, num_relations)
            sent = inbox.read("out_degree", tasks=tasks)
            local = to_numpy(sent["node"]) - book.start(index)
            out_degree[:, relation] = np.bincount(local, to_numpy(sent["count"]), minlength=shape[0])
        if job.graph.target_types[relation] == node_type:
            held = inbox.read("in_degree", tasks=[partition * num_relations + relation])
            in_degree[:, relation], in_weight[:, relation] = to_numpy(held["in_degree"]), to_numpy(held["in_weight"])
    return {"in_degree": in_degree, "out_degree": out_degree, "in_weight": in_weight}
