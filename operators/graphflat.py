"""The operator of stage `flat`."""

from __future__ import annotations

from operators.stage import StageOperator


class GraphFlatOperator(StageOperator):
    """Cut the graph store into shards of k-hop neighbourhoods."""

    stage = "flat"
