"""Small graphs as tables and configs, shared by tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.config import Config, config_from_dict
from gnnflow.storage.columns import to_rows

if TYPE_CHECKING:
    from pathlib import Path


def write_graph(
    folder: Path,
    *,
    num_nodes: int = 60,
    num_edges: int = 400,
    seed: int = 0,
    string_ids: bool = False,
    hub: int | None = None,
    width: int = 5,
) -> None:
    """Write a random graph with weights, edge attributes and splits; node `hub` receives a third of the edges."""
    rng = np.random.default_rng(seed)
    ids: Any = rng.permutation(num_nodes) * 3 + 1
    if string_ids:
        ids = np.array([f"node-{number}" for number in ids])
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    if hub is not None:
        dst[: num_edges // 3] = hub
    x = rng.standard_normal((num_nodes, width)).astype(np.float32)
    label = (x[:, 0] > 0).astype(np.int64) + 2 * (rng.random(num_nodes) > 0.5)
    split = np.array(["train", "valid", "test", None], dtype=object)[np.arange(num_nodes) % 4]
    folder.mkdir(parents=True, exist_ok=True)
    nodes = pa.table(
        {
            "id": ids,
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width),
            "label": label,
            "split": pa.array(split, pa.string()),
        }
    )
    edges = pa.table(
        {
            "src": ids[src],
            "dst": ids[dst],
            "weight": rng.random(num_edges).astype(np.float32) + 0.1,
            "amount": rng.standard_normal(num_edges).astype(np.float32),
            "hour": rng.random(num_edges).astype(np.float32),
        }
    )
    pq.write_table(nodes, folder / "nodes.parquet")
    pq.write_table(edges, folder / "edges.parquet", row_group_size=max(1, num_edges // 3))


def stored_x(column: pa.ChunkedArray) -> np.ndarray:
    """Return the dense features of a store's nodes [N, F]."""
    return to_rows(column).view(np.float32)


def graph_config(folder: Path, **sections: Any) -> Config:
    """Return a config for a graph written by `write_graph`; sections override or add keys."""
    graph = {"nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet"), "partitions": 3}
    content: dict[str, Any] = {
        "name": "small",
        "workspace": str(folder / "runs"),
        "graph": {**graph, **sections.pop("graph", {})},
        "cluster": {"kind": "synchronous"},
    }
    return config_from_dict({**content, **sections})
