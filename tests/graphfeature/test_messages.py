"""Shards as protobuf messages: what a reader outside gnnflow finds in them, in both layouts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature import GraphFeature, read_graph_features
from gnnflow.graphfeature.shards import write_shard
from tests.conftest import REPOSITORY
from tests.train.planted import planted

if TYPE_CHECKING:
    from gnnflow.graph.facts import Layout

GRAPH = planted().neighborhood
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write(folder: Path, layout: Layout, name: str = "train-00000", targets: tuple[int, ...] = (7, 3)) -> str:
    """Write a shard of some targets of the graph, and return the folder of shards."""
    rows = pa.table(
        {
            "node": np.array(targets),
            "id": [f"account {node}" for node in targets],
            "split": np.zeros(len(targets), np.int8),
            "label": np.array(targets) % 3,
        }
    )
    graph = GRAPH.__class__(np.array(targets), GRAPH.node_ids, GRAPH.degrees, GRAPH.features, GRAPH.edges)
    write_shard(str(folder), graph, rows, name=name, split="train", layout=layout, sampling=EVERY_EDGE, num_hops=1)
    return str(folder / "shards")


def roots(messages: list[GraphFeature]) -> list[list[int]]:
    return [np.frombuffer(each.node_ids, "<i8")[np.frombuffer(each.roots, "<i4")].tolist() for each in messages]


def test_a_shared_shard_is_one_message_of_all_its_targets(tmp_path: Path) -> None:
    shards = write(tmp_path, "shared")
    for name in ("train-00000.parquet", "train-00000.graph.parquet"):
        (message,) = read_graph_features(f"{shards}/{name}")
        assert roots([message]) == [[7, 3]]
        assert message.dense == GRAPH.features.dense.tobytes()


def test_an_inline_shard_is_one_message_a_target(tmp_path: Path) -> None:
    shards = write(tmp_path, "inline")
    messages = list(read_graph_features(f"{shards}/train-00000.parquet"))
    assert roots(messages) == [[7], [3]]
    sources = GRAPH.edges.sources[slice(*GRAPH.edges.offsets[[3, 4]])]
    ids = np.frombuffer(messages[1].node_ids, "<i8")
    assert ids[np.frombuffer(messages[1].sources, "<i4")].tolist() == sources.tolist()


@pytest.mark.parametrize("layout", ["shared", "inline"])
def test_a_folder_is_its_shards_by_name_without_their_pairs(tmp_path: Path, layout: Layout) -> None:
    shards = write(tmp_path, layout, "valid-00000", (5,))
    write(tmp_path, layout, "train-00001", (2,))
    write(tmp_path, layout, "train-00000", (1,))
    for other in ("pairs", "pool"):
        pq.write_table(pa.table({"target": [0]}), f"{shards}/train-00000.{other}.parquet")
    assert roots(list(read_graph_features(shards))) == [[1], [2], [5]]


def test_what_is_no_shard_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"artifact.*: holds no shards\. Name the folder `shards`"):
        list(read_graph_features(str(tmp_path / "artifact")))
    with pytest.raises(StorageError, match=r"missing\.parquet: no such file"):
        list(read_graph_features(str(tmp_path / "missing.parquet")))
    pq.write_table(pa.table({"target": [0]}), tmp_path / "train-00000.pool.parquet")
    with pytest.raises(StorageError, match=r"pool\.parquet: has no column graph_feature"):
        list(read_graph_features(str(tmp_path / "train-00000.pool.parquet")))


@pytest.mark.parametrize(
    "damaged", [b"PAR1 and more bytes", b"", None, GraphFeature(roots=b"1234").SerializeToString()]
)
def test_bytes_that_are_no_message_are_refused_with_their_row(tmp_path: Path, damaged: bytes | None) -> None:
    good = GraphFeature(format=1).SerializeToString()
    pq.write_table(pa.table({"graph_feature": pa.array([good, damaged], pa.large_binary())}), tmp_path / "a.parquet")
    messages = read_graph_features(str(tmp_path / "a.parquet"))
    assert next(messages).format == 1
    with pytest.raises(StorageError, match=r"a\.parquet: row 1 is truncated, or not a GraphFeature\. Delete"):
        next(messages)


def test_the_page_reads_a_shard_without_gnnflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "shared")
    monkeypatch.chdir(tmp_path)
    for block in BLOCK.findall((REPOSITORY / "docs/shards.md").read_text()):
        exec(compile(block, "docs/shards.md", "exec"), {})
    sources = GRAPH.edges.sources[slice(*GRAPH.edges.offsets[[7, 8]])]
    assert capsys.readouterr().out == f"1 GraphFeatures\naccount 7 aggregates {sources.tolist()}\n"
