"""Graphs to divide into partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.small_graphs import write_graph
from tests.stages.test_partition import KINDS
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=KINDS)
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A graph with a hub and parallel edges, or one with three types, as the graph section of a config."""
    if request.param == "one type":
        write_graph(tmp_path, num_nodes=90, num_edges=1200, hub=7)
        return {"edge_features": ["amount", "hour"], "partitions": 4}
    return {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 4}
