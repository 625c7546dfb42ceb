"""The operator of stage `run`."""

from __future__ import annotations

from operators.stage import StageOperator


class CompleteRunOperator(StageOperator):
    """Commit the run: predictions under the user's ids, metrics and report in one folder."""

    stage = "run"
