"""The operator of stage `train`."""

from __future__ import annotations

from operators.stage import StageOperator


class TrainOperator(StageOperator):
    """Train the model on GraphFlat's shards; a run that was killed continues at its checkpoint."""

    stage = "train"
