"""The operator of stage `ingest`."""

from __future__ import annotations

from operators.stage import StageOperator


class IngestOperator(StageOperator):
    """Turn the tables into the graph store."""

    stage = "ingest"
