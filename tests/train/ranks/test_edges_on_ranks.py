"""Labels of edges, and links of times, on two ranks: the same result run after run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from tests.conftest import ClusterOf
from tests.small_graphs import graph_config
from tests.stages.test_edge_labels import EDGE, SHARES, write_labelled

LINK = {
    "kind": "link",
    "width": 8,
    "split": {"kind": "random", "valid": 0.1, "test": 0.1, "earlier_only": True},
    "negatives": {"kind": "uniform", "pool": 32, "evaluation": 20},
}


@pytest.mark.distributed
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("task", "train"),
    [({**EDGE, "split": SHARES}, {"class_weight": "balanced"}), (LINK, {"metric": "mrr"})],
    ids=["edge", "link"],
)
@pytest.mark.parametrize("workers", [2], scope="session")
def test_ranks_give_the_same_bytes_run_after_run(
    tmp_path: Path, task: dict[str, Any], train: dict[str, Any], workers: int, cluster_of: ClusterOf
) -> None:
    write_labelled(tmp_path)
    config = graph_config(
        tmp_path,
        task=task,
        graph={"edge_features": ["amount"]},
        model={"kind": "sage", "hidden": 8},
        train={"epochs": 2, "batch_size": 256, "workers": 2, "start_seconds": 300, **train},
        cluster={"kind": "local", "workers": workers, "memory_limit": "2GiB"},
    )
    found = []
    cluster = cluster_of(config.cluster)
    for name in ("one", "other"):
        elsewhere = config.model_copy(update={"workspace": str(tmp_path / name)})
        result = pipeline.run(StageContext.of(elsewhere, cluster))
        found.append({stage: made.digest for stage, made in result.stages.items()})
    assert found[0] == found[1]
