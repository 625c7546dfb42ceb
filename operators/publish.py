"""The operator of stage `publish`."""

from __future__ import annotations

from operators.stage import StageOperator


class PublishOperator(StageOperator):
    """Register the run's model, and promote it only if it is at least as good as the one in service."""

    stage = "publish"
