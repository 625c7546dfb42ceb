"""A published model, and the scores of the day that it gives."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.storage.columns import to_matrix


def run_published(context: StageContext) -> StageContext:
    """Run all stages and publish the model."""
    pipeline.run(context)
    publish.run(context)
    return context


def probabilities(context: StageContext) -> Any:
    """Score with the model in service and return the probabilities by id."""
    return to_matrix(pq.read_table(score.run(context).predictions).sort_by("id")["probabilities"])
