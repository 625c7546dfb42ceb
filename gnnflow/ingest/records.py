"""The facts of the graph and the rows of each table, computed from the records of the rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np

from gnnflow.graph.encodings import EncodedColumn
from gnnflow.graph.facts import BadRows, ColumnCounts, FeatureFacts, GraphFacts, RelationFacts, RowCounts, TypeFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.labels import class_counts_of, label_unit_of, num_classes_of, split_class_counts_of
from gnnflow.ingest.moments import large_columns
from gnnflow.ingest.narrowing import errors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gnnflow.graph.book import PartitionBook
    from gnnflow.graph.narrow import ColumnRanges
    from gnnflow.graph.scales import ColumnScale
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.narrowing import Forms
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.ingest.tables import EdgeTable, NodeTable
    from gnnflow.mapreduce.rounds import TaskRecord
    from gnnflow.storage.writing import FileEntry


@dataclass(frozen=True)
class Rounded:
    """The bits that a column's numbers were rounded to, and the largest error."""

    bits: int
    lost: float


@dataclass(frozen=True)
class Records:
    """The records of every round, in their order.

    edges: a list for each round after the reading, the first empty where no edge visits its source (`owned_ids`).
    """

    job: IngestJob
    node_read: Sequence[TaskRecord]
    nodes: Sequence[TaskRecord]
    edge_read: Sequence[TaskRecord]
    edges: Sequence[Sequence[TaskRecord]]
    written: Sequence[TaskRecord]

    @property
    def tables(self) -> dict[str, RowCounts]:
        """The rows of each table; edges added in reverse are not counted."""
        tables, names = self.job.tables, self.job.table_names
        counts = node_row_counts(self.job, self.node_read, self.nodes)
        width = len(tables.edges)
        for number, (name, edges) in enumerate(zip(names.edges, tables.edges, strict=True)):
            read = _of(self.edge_read, edges.tasks)
            # a round after the second knows both ends of each edge, and sets none aside
            sources, known = (step[number::width] for step in self.edges[:2])
            counts[name] = _row_counts(name, read, known, [*read, *sources, *known])
        return counts

    @property
    def rounded(self) -> dict[str, dict[str, Rounded]]:
        """The columns whose numbers lost digits, by table; other tables are left out."""
        found: dict[str, dict[str, Rounded]] = {}
        for name, _, records in self._read_tables:
            for record in records:
                for column, (bits, lost) in record.counts.get("rounded", {}).items():
                    before = found.setdefault(name, {}).get(column, Rounded(bits, 0.0))
                    found[name][column] = Rounded(bits, max(lost, before.lost))
        return found

    @property
    def encodings(self) -> dict[str, tuple[EncodedColumn, ...]]:
        """The fitted columns of each table, with the missing and unknown values that the reading tasks counted."""
        found = {}
        for name, table, records in self._read_tables:
            columns = []
            for part in table.schema.parts:
                if part.state is not None:
                    counts = [record.counts["encoded"][part.name] for record in records]
                    columns.append(EncodedColumn(part.state, *(sum(each) for each in zip(*counts, strict=True))))
            if columns:
                found[name] = tuple(columns)
        return found

    @property
    def _read_tables(self) -> list[tuple[str, NodeTable | EdgeTable, Sequence[TaskRecord]]]:
        """Each table's name, the table, and the records of the tasks that read it."""
        names, tables = self.job.table_names, self.job.tables
        read: list[tuple[str, NodeTable | EdgeTable, Sequence[TaskRecord]]] = []
        read += [
            (name, each, _of(self.node_read, each.tasks)) for name, each in zip(names.nodes, tables.nodes, strict=True)
        ]
        read += [
            (name, each, _of(self.edge_read, each.tasks)) for name, each in zip(names.edges, tables.edges, strict=True)
        ]
        return read

    @property
    def targets(self) -> Sequence[TaskRecord]:
        """The records that count targets, their splits and labels."""
        return self.nodes if self.job.targets is None else self.edges[-1]

    @property
    def rows(self) -> RowCounts:
        """The rows of all tables."""
        counts = self.tables.values()
        return RowCounts(
            sum(each.rows_in for each in counts),
            sum(each.rows_out for each in counts),
            sum(each.rows_quarantined for each in counts),
        )

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file the rounds committed."""
        rounds = (self.node_read, self.nodes, self.edge_read, *self.edges, self.written)
        return tuple(entry for step in rounds for record in step for entry in record.files)


def node_row_counts(
    job: IngestJob, node_read: Sequence[TaskRecord], nodes: Sequence[TaskRecord]
) -> dict[str, RowCounts]:
    """Return the rows of each node table, by the records of reading and sorting them."""
    counts = {}
    for number, (name, table) in enumerate(zip(job.table_names.nodes, job.tables.nodes, strict=True)):
        read, sort = _of(node_read, table.tasks), nodes[number :: job.graph.num_types]
        if table.ends:  # the rows are the ids that edges have, each once
            distinct = total(sort, "rows_out")
            counts[name] = RowCounts(distinct, distinct, 0)
            continue
        counts[name] = _row_counts(name, read, sort, [*read, *sort])
    return counts


def _of(records: Sequence[TaskRecord], tasks: range) -> Sequence[TaskRecord]:
    return records[tasks.start : tasks.stop]


def facts_of(
    job: IngestJob,
    book: PartitionBook,
    steps: Records,
    *,
    columns: tuple[ColumnCounts, ...],
    scales: dict[str, ColumnScale],
    split_times: dict[str, str],
    forms: Forms,
) -> GraphFacts:
    """Return the facts of the graph store that the rounds wrote. forms: of the node rows."""
    labelled, nodes = job.tables.labelled.schema, job.tables.nodes
    edges = [table.schema for table in job.tables.edges]
    target = nodes[job.config.target_type].schema
    return GraphFacts(
        num_nodes=book.num_nodes,
        num_edges=total(steps.edges[-1], "edges"),
        offsets=tuple(book.offsets.tolist()),
        id_type=target.id_type,
        features=_features(job, target, forms.ranges[job.config.target_type]),
        attribute_width=max(schema.attribute_width for schema in edges),
        has_weight=any(schema.has_weight for schema in edges),
        label_kind=labelled.label_kind,
        num_classes=num_classes_of(steps.targets, job),
        class_names=labelled.class_names,
        labelled=total(steps.targets, "labelled"),
        splits=count_splits(steps.targets),
        degree_bins=_added(record.counts["degree_bins"] for record in steps.written),
        max_in_degree=max(record.counts["max_in_degree"] for record in steps.written),
        tables=steps.tables,
        columns=columns,
        copies_left_out=total(steps.edges[-1], "copies_left_out"),
        targets="nodes" if job.targets is None else "edges",
        has_time=any(schema.has_time for schema in edges),
        types=_type_facts(job, steps, forms) if job.graph.is_typed else (),
        relations=_relation_facts(job, steps) if job.graph.is_typed else (),
        target=job.graph.name_of(job.graph.types[job.config.target_type]),
        target_relation=job.graph.name_of(job.config.target_edges) if job.targets else "",
        label_unit=label_unit_of(steps.targets),
        large_columns=_large_columns(job, steps),
        scales=scales,
        columns_read=columns_read(job),
        class_counts=class_counts_of(steps.targets, job),
        train_class_counts=split_class_counts_of("train", steps.targets, job),
        valid_class_counts=split_class_counts_of("valid", steps.targets, job),
        encodings=steps.encodings,
        split_times=split_times,
        column_errors=errors_of(job, steps.written),
    )


def columns_read(job: IngestJob) -> dict[str, tuple[str, ...]]:
    """Return the columns that features or attributes are read from, by table, in their order."""
    nodes, edges = job.table_names
    read = [table.schema.stored_columns for table in job.tables.nodes]
    read += [table.schema.columns_read for table in job.tables.edges]
    return {name: columns for name, columns in zip((*nodes, *edges), read, strict=True) if columns}


def _large_columns(job: IngestJob, steps: Records) -> dict[str, tuple[str, ...]]:
    """Return the columns of large numbers, by the config key that would scale them."""
    types, relations = ([*map(job.graph.name_of, of)] for of in (job.graph.types, job.config.edge_tables))
    features = [table.schema.features for table in job.tables.nodes]
    attributes = [table.schema.attributes for table in job.tables.edges]
    found = {
        "graph.normalize": large_columns(types, features, steps.written),
        "graph.edge_normalize": large_columns(relations, attributes, steps.edges[0]),
    }
    return {key: columns for key, columns in found.items() if columns}


def _features(job: IngestJob, schema: NodeSchema, ranges: ColumnRanges | None) -> FeatureFacts:
    has_value = schema.sparse_has_value or (schema.sparse is not None and job.config.normalize == "row")
    kind: Literal["dense", "sparse"] = "sparse" if schema.is_sparse else "dense"
    storage = job.config.storage if schema.features or schema.degrees else "float32"
    return FeatureFacts(kind, schema.stored_width, has_value, storage, ranges)


def _type_facts(job: IngestJob, steps: Records, forms: Forms) -> tuple[TypeFacts, ...]:
    return tuple(
        TypeFacts(
            name,
            total(steps.nodes[number :: job.graph.num_types], "rows_out"),
            _features(job, table.schema, forms.ranges[number]) if table.schema.stored_columns else None,
            table.schema.id_type,
        )
        for number, (name, table) in enumerate(zip(job.graph.types, job.tables.nodes, strict=True))
    )


def _relation_facts(job: IngestJob, steps: Records) -> tuple[RelationFacts, ...]:
    found = []
    for number, relation in enumerate(job.graph.relations):
        schema = job.tables.table_of(number).schema
        # degree bins and the largest in-degree of each part that the relation leads to
        parts = steps.written[job.graph.target_types[number] :: job.graph.num_types]
        counted = [record.counts["relations"][str(number)] for record in parts]
        found.append(
            RelationFacts(
                str(relation),
                total(steps.edges[-1][number :: job.graph.num_relations], "edges"),
                schema.attribute_width,
                schema.has_weight,
                _added(bins for bins, _ in counted),
                max(largest for _, largest in counted),
                has_time=schema.has_time,
            )
        )
    return tuple(found)


def _added(bins: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*bins, fillvalue=0))


def total(records: Sequence[TaskRecord], key: str) -> int:
    """Return the sum of one of the records' counts; a record without it counts 0."""
    return sum(int(record.counts.get(key, 0)) for record in records)


def _row_counts(
    name: str, read: Sequence[TaskRecord], last: Sequence[TaskRecord], every: Sequence[TaskRecord]
) -> RowCounts:
    """Return the rows of a table. read, last, every: records that read, kept, and may have set aside its rows."""
    rows_in, rows_out, quarantined = (
        total(read, "rows_in"),
        total(last, "rows_out"),
        total(every, "rows_quarantined"),
    )
    assert rows_in == rows_out + quarantined, f"{name}: rows were lost: {rows_in} != {rows_out} + {quarantined}"
    return RowCounts(rows_in, rows_out, quarantined, _reasons(every), total(read, "labelled_in"))


def _reasons(records: Sequence[TaskRecord]) -> tuple[BadRows, ...]:
    """Return the number of rows that each reason set aside, the most frequent first."""
    counted: Counter[tuple[str, str]] = Counter()
    labelled: Counter[tuple[str, str]] = Counter()
    for record in records:
        for column, reason, rows, *targets in record.counts.get("reasons", ()):
            counted[column, reason] += rows
            labelled[column, reason] += sum(targets)  # records of an earlier version have none
    # equal counts by name, so the order of tasks does not matter
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    return tuple(BadRows(*name, rows, labelled[name]) for name, rows in ordered)


def count_splits(records: Sequence[TaskRecord]) -> dict[str, int]:
    """Return the number of targets of each split, and of targets without one as `none`."""
    counted = np.sum([record.counts["splits"] for record in records if "splits" in record.counts], axis=0)
    return dict(zip(("none", *SPLITS), (int(count) for count in counted), strict=True))
