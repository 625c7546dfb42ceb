"""Ingest: user tables in, graph store out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.ingest.job import IngestJob, run_rounds
from gnnflow.ingest.schema import read_schema
from gnnflow.stages.base import FORMAT_VERSIONS, StageContext, StageResult, fingerprints, run_stage, timings_of
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.manifest import Manifest
from gnnflow.storage.tables import scan

if TYPE_CHECKING:
    from gnnflow.mapreduce.rounds import RoundRunner


def run(context: StageContext) -> StageResult:
    """Turn the config's tables into the graph store. Raises TableError for tables that break their contract."""

    def work(artifact: str, runner: RoundRunner) -> Manifest:
        graph = context.config.graph
        nodes, edges = (scan(absolute(str(uri))) for uri in (graph.nodes, graph.edges))
        task = IngestJob(artifact, graph, read_schema(nodes, edges, graph), tuple(nodes), tuple(edges))
        result = run_rounds(task, runner)
        return Manifest(
            stage="ingest",
            fingerprint=fingerprints(context.config)["ingest"],
            format_version=FORMAT_VERSIONS["ingest"],
            files=result.files,
            inputs={},
            rows_in=result.rows_in,
            rows_out=result.rows_out,
            rows_quarantined=result.rows_quarantined,
            details=result.details,
            timings=timings_of(runner.timings),
        )

    return run_stage(context, "ingest", work)
