"""Shards hold as many targets as the config says, or as the memory of a task can take."""

from __future__ import annotations

import pytest

from gnnflow.graph.facts import FeatureFacts, GraphFacts
from gnnflow.graphflat.shard_plan import bounded_shard_size


def facts(num_nodes: int, num_edges: int, width: int) -> GraphFacts:
    return GraphFacts(
        num_nodes=num_nodes,
        num_edges=num_edges,
        offsets=(0, num_nodes),
        id_type="int64",
        features=FeatureFacts("dense", width, has_value=False),
        attribute_width=0,
        has_weight=False,
        label_kind="none",
        num_classes=0,
        class_names=(),
        labelled=0,
        splits={},
        degree_bins=(),
        max_in_degree=0,
        tables={},
    )


@pytest.mark.parametrize("hops", [1, 2, 5])
def test_a_graph_that_fits_never_makes_shards_smaller(hops: int) -> None:
    assert bounded_shard_size(facts(200_000, 4_000_000, 256), [None] * hops, shard_size=8192) == 8192


def test_wide_and_deep_neighbourhoods_make_shards_smaller() -> None:
    large = facts(100_000_000, 2_000_000_000, 1000)
    sizes = [bounded_shard_size(large, fanouts, shard_size=8192) for fanouts in ([5], [15, 10], [None] * 2, [None] * 6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 8192
    assert 100 < sizes[1] < 8192
    assert sizes[-1] == 1
