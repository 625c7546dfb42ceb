"""The operator of stage `infer`."""

from __future__ import annotations

from operators.stage import StageOperator


class InferOperator(StageOperator):
    """Score nodes layer by layer, and certify that the scores are those of the trained model."""

    stage = "infer"
