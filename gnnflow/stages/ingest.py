"""Ingest: user tables in, graph store out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graph.errors import TableError
from gnnflow.ingest.job import IngestJob, run_rounds
from gnnflow.ingest.schema import read_schema
from gnnflow.stages.base import Made
from gnnflow.stages.resolve import stamps_of
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.tables import scan

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun
    from gnnflow.stages.resolve import ResolvedRun


def work(run: StageRun) -> Made:
    """Turn the config's tables into the graph store. Raises TableError for tables that break their contract."""
    graph = run.config.graph
    nodes, edges = (scan(absolute(str(uri))) for uri in (graph.nodes, graph.edges))
    job = IngestJob(run.artifact, graph, read_schema(nodes, edges, graph), tuple(nodes), tuple(edges))
    result = run_rounds(job, run.rounds)
    _refuse_changed_tables(run.context.run)
    return Made(
        result.files,
        rows_in=result.rows.rows_in,
        rows_out=result.rows.rows_out,
        rows_quarantined=result.rows.rows_quarantined,
        facts=result.facts,
    )


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
