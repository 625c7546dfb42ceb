"""Ingest: user tables in, graph store out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import metrics_to_choose
from gnnflow.ingest.job import IngestJob, run_rounds
from gnnflow.ingest.schema import read_schema
from gnnflow.ingest.targets import EdgeTargets
from gnnflow.ingest.text import edge_source, node_source, settle_text
from gnnflow.stages.base import Made
from gnnflow.stages.resolve import FEWEST_PARTITIONS, stamps_of
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.user_tables import scan

if TYPE_CHECKING:
    from gnnflow.ingest.schema import SourceSchema
    from gnnflow.ingest.text import SourceTable
    from gnnflow.stages.base import StageRun
    from gnnflow.stages.resolve import ResolvedRun


def work(run: StageRun) -> Made:
    """Turn the config's tables into the graph store. Raises TableError for tables that break their contract."""
    graph, tell = run.config.graph, run.context.progress.message
    found = {name: find_table_files(absolute(str(getattr(graph, name)))) for name in ("nodes", "edges")}
    for name, files in found.items():
        tell(f"{name}: {files.summary}")
    targets = EdgeTargets.of(run.config.task, seed=run.config.seed)
    also = () if targets is None else targets.columns(graph)
    sources = [node_source(scan(found["nodes"]), graph), edge_source(scan(found["edges"]), graph, also=also)]
    nodes, edges = settle_text(sources, run.rounds)
    schema = read_schema(nodes, edges, graph, targets=targets)
    _check_partitions(run, nodes)
    _check_metric(run, schema)
    if schema.label_kind == "regression":
        tell(f"column {graph.label!r} holds floats: numbers to predict. For classes set graph.num_classes.")
    result = run_rounds(IngestJob(run.artifact, graph, schema, nodes.chunks, edges.chunks), run.rounds)
    _refuse_changed_tables(run.context.run)
    return Made(
        result.files,
        rows_in=result.rows.rows_in,
        rows_out=result.rows.rows_out,
        rows_quarantined=result.rows.rows_quarantined,
        facts=result.facts,
    )


def _check_partitions(run: StageRun, nodes: SourceTable) -> None:
    """Raise TableError where there are more partitions than nodes: each costs a task and a file in every round."""
    partitions, rows = run.config.graph.partitions, sum(chunk.num_rows or 0 for chunk in nodes.chunks)
    assert partitions is not None, "a resolved run has a number of partitions"
    if partitions > max(rows, FEWEST_PARTITIONS):
        raise TableError(
            f"graph.partitions is {partitions}, the node table has {rows} rows",
            where=str(run.config.graph.nodes),
            fix="Lower graph.partitions, or leave it out: it then follows from the size of the tables.",
        )


def _check_metric(run: StageRun, schema: SourceSchema) -> None:
    """Raise TableError for a metric that the labels do not define, before anything is computed for it."""
    metric, kind = run.config.train.metric, schema.label_kind
    table = run.config.graph.edges if schema.has_edge_labels else run.config.graph.nodes
    if not (schema.has_labels or schema.has_edge_labels) or metric in metrics_to_choose(kind):
        return
    label, choices = run.config.graph.label, " or ".join(metrics_to_choose(kind))
    if kind == "regression":
        found = f"column {label!r} holds floats, numbers to predict, and train.metric is {metric}, a metric of classes"
        fix = f"For classes set graph.num_classes, or write them as integers; for numbers set train.metric: {choices}."
    else:
        found, fix = f"{metric} is not defined for {kind} labels", f"Set train.metric: {choices}."
    raise TableError(found, where=str(table), fix=fix)


def _refuse_changed_tables(run: ResolvedRun) -> None:
    """Raise TableError where a table is no longer what it was when the run was resolved: rows of both may be mixed."""
    now = stamps_of(run.config.graph)
    for name, stamps in run.tables.items():
        if now[name] != stamps:
            changed = sorted({each.name for each in {*now[name]} ^ {*stamps}})
            raise TableError(
                f"the table changed while it was read ({', '.join(changed)})",
                where=str(getattr(run.config.graph, name)),
                fix="Run again once nothing writes to it.",
            )
