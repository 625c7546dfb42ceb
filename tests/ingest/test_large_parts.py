"""A partition that is sorted in runs on the disk gives the bytes of one that is sorted in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.ingest import edge_rounds, large_parts
from gnnflow.ingest.checks import separate
from gnnflow.ingest.job import IngestJob
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from tests.small_graphs import graph_config

NODES, EDGES = 60, 40_000


def _tables(folder: Path, *, text: bool) -> None:
    """Write few nodes with many parallel edges, a hub and edges of unknown ends, in small row groups."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(10 * NODES)[: NODES + 1]
    src, dst = (ids[np.minimum(rng.integers(0, 2 * NODES, EDGES) // k, NODES - 1)] for k in (2, 3))
    src[:: EDGES // 3] = ids[-1]  # no node
    as_id = (lambda values: [f"id {value}" for value in values]) if text else list
    x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(NODES * 2, np.float32)), 2)
    split = pa.array(["train", "valid"] * (NODES // 2))
    nodes = {"id": as_id(ids[:NODES]), "x": x, "label": np.arange(NODES) % 3, "split": split}
    edges = {"src": as_id(src), "dst": as_id(dst), "weight": rng.random(EDGES).astype(np.float32) * 1e6}
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table(edges), folder / "edges.parquet", row_group_size=2_000)


@pytest.mark.parametrize(("text", "reverse"), [(False, False), (True, False), (False, True)])
def test_runs_on_the_disk_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bool, reverse: bool
) -> None:
    _tables(tmp_path, text=text)
    graph: dict[str, Any] = {"partitions": 2, "on_bad_rows": "quarantine", "reverse_edges": reverse}
    monkeypatch.setattr(edge_rounds, "_ROW_GROUP", 5_000)
    monkeypatch.setattr(large_parts, "_STEP", 16)
    read, part = list[int](), large_parts.EdgeRuns._part

    def counted(self: large_parts.EdgeRuns, *bounds: Any) -> pa.Table:
        read.append(1)
        assert not any(Path(tempfile.gettempdir()).glob("gnnflow-*"))  # nothing that a killed worker would leave
        return part(self, *bounds)

    monkeypatch.setattr(large_parts.EdgeRuns, "_part", counted)
    made = []
    for run_bytes in (1 << 30, 200_000):
        assert not read
        monkeypatch.setattr(IngestJob, "run_bytes", property(lambda _, size=run_bytes: size))
        config = graph_config(tmp_path, graph=graph, workspace=str(tmp_path / f"ws{run_bytes}"))
        result = make_artifact(StageContext.of(config), "ingest")
        made.append((result.manifest.files, result.manifest.facts))
    assert len(read) > 8
    assert made[0] == made[1]


def test_a_run_without_faults_is_not_kept_by_what_is_set_aside() -> None:
    rows = pa.table({"src": np.arange(10_000)})
    found = separate(rows, [], chunks=[], place=np.arange(rows.num_rows), policy="fail")
    assert found.bad.get_total_buffer_size() < 100  # runs were held to the end of their partition
