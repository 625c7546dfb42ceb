"""The operator of stage `score`."""

from __future__ import annotations

from operators.stage import StageOperator


class ScoreOperator(StageOperator):
    """Score the current graph with the model in service."""

    stage = "score"
