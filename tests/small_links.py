"""A small graph of groups and a config that predicts its links, shared by tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.config import Config
from gnnflow.stages.base import StageContext
from gnnflow.stages.pipeline import run as run_pipeline
from tests.small_graphs import graph_config

TASK = {"kind": "link", "width": 8, "split": {"kind": "random", "valid": 0.15, "test": 0.15}}


def write_groups(folder: Path, *, num_nodes: int = 90) -> None:
    """Write a graph whose edges join nodes of one of three groups, which the features show; ids are text."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, num_nodes)
    src, dst = rng.integers(0, num_nodes, (2, 4000))
    kept = groups[src] == groups[dst]
    x = rng.normal(0, 0.5, (num_nodes, 6)).astype(np.float32)
    x[:, :3] += np.eye(3, dtype=np.float32)[groups]
    ids = np.array([f"n{number}" for number in range(num_nodes)])
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"id": ids, "x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 6)}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    pq.write_table(pa.table({"src": ids[src[kept]], "dst": ids[dst[kept]]}), folder / "edges.parquet")


def config_of(folder: Path, *, task: dict[str, Any] | None = None, **sections: Any) -> Config:
    train = {"epochs": 6, "batch_size": 256, "lr": 0.02, "metric": "mrr", **sections.pop("train", {})}
    negatives = {"kind": "uniform", "pool": 64, "evaluation": 30}
    return graph_config(
        folder,
        task={**TASK, "negatives": negatives, **(task or {})},
        model={"kind": "sage", "hidden": 12, "dropout": 0.0},
        train=train,
        **sections,
    )


def run_groups(folder: Path) -> tuple[Config, Any, Path]:
    """Write the graph and run its config, and return that, what the run gave, and the folder."""
    write_groups(folder)
    config = config_of(folder)
    return config, run_pipeline(StageContext.of(config)), folder
