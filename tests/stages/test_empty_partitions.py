"""A partition without a node, as few nodes in many partitions have: every strategy and kind of partitioning runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config, write_graph

TRAIN = {"epochs": 2, "lr": 0.05}
RUNS: dict[str, dict[str, Any]] = {
    "shards": {"train": TRAIN},
    "store": {"train": {**TRAIN, "source": "store"}},
    "global-batch": {"train": {**TRAIN, "strategy": "global-batch"}},
    "streamed": {"train": {**TRAIN, "strategy": "global-batch", "memory": "200MiB"}},
    "walks": {"train": TRAIN, "neighbors": {"kind": "walks", "walks": 3, "length": 2, "top_k": 3}},
}
for kind in ("metis", "louvain", "ldg", "range", "balanced"):
    clusters = {"clusters": 24} if kind in ("metis", "louvain") else {}
    train = {**TRAIN, "strategy": "cluster-batch", "clusters_per_batch": 1} if clusters else TRAIN
    RUNS[kind] = {"train": train, "partition": {"kind": kind, **clusters}}


@pytest.mark.table(10)
@pytest.mark.parametrize("sections", RUNS.values(), ids=RUNS.keys())
def test_a_partition_without_a_node_is_a_partition(tmp_path: Path, sections: dict[str, Any]) -> None:
    write_graph(tmp_path, num_nodes=12, num_edges=40)
    config = graph_config(tmp_path, graph={"partitions": 12}, model={"kind": "gcn", "hidden": 4}, **sections)
    ingested = make_artifact(StageContext.of(config), "ingest")
    sizes = np.diff(GraphStore.of(ingested.artifact, ingested.manifest).facts.book.offsets)
    assert 0 in sizes
    result = pipeline.run_quietly(config)
    assert result.stages["infer"].manifest.rows_out == 12
    assert result.metrics["infer.parity_max_difference"] < 1e-4
