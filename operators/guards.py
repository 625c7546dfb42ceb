"""The operator of stage `guards`."""

from __future__ import annotations

from operators.stage import StageOperator


class GuardsOperator(StageOperator):
    """Stop the run, with a readable reason, where the tables are not what the last run's were."""

    stage = "guards"
