"""What a sum or a mean over a sample estimates: on average a sum is that over all in-edges, whatever the fan-out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.batch import Block, sampled_block
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.direct import SelectJob, run_rounds
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from tests.fanouts import sampling_of
from tests.small_graphs import graph_config

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.sampling import SamplingKind

DRAWS = 6000
WEIGHT = np.array([0.05, 0.2, 0.5, 1, 1, 2, 4, 8, 0.7, 0.01], np.float32)
VALUE = np.array([9, -1, 4, 2, 0.5, 3, -2, 1, 6, 50], np.float32)
LARGEST = 6
STANDARD_ERRORS = 4


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    """DRAWS targets with the same in-neighbours and weights: as many independent samples."""
    folder, degree = tmp_path_factory.mktemp("star"), len(WEIGHT)
    ids = np.arange(DRAWS + degree)
    nodes = {
        "id": ids,
        "x": ids.astype(np.float32),
        "label": ids % 2,
        "split": np.array(["train", "valid", "test"])[ids % 3],
    }
    edges = {
        "src": np.tile(np.arange(degree), DRAWS),
        "dst": np.repeat(np.arange(DRAWS) + degree, degree),
        "weight": np.tile(WEIGHT, DRAWS),
    }
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    result = make_artifact(StageContext.of(graph_config(folder)), "ingest")
    return GraphStore.of(result.artifact, result.manifest)


def draws_of(store: GraphStore, folder: Path, kind: SamplingKind, fanout: int, **changes: Any) -> list[Block]:
    """Return a block per partition over the samples of one fan-out, cut from those of the largest."""
    job = SelectJob(str(folder / "selected"), store, kind, LARGEST, 3, changes.get("hub_threshold", 10**6))
    run_rounds(job, RoundRunner(str(folder / "work"), Synchronous()))
    neighbors = Neighbors(store, job.artifact, sampling_of((fanout,), kind))
    blocks = []
    for partition in range(store.num_partitions):
        edges, in_degree = neighbors.in_edges(partition), store.nodes(partition, ["in_degree"])["in_degree"].to_numpy()
        rows = np.flatnonzero(in_degree)
        picked = edges.prefix(rows, limit=fanout)
        kept = edges.take(picked.positions, offsets=picked.offsets)
        blocks.append(sampled_block(kept, num_sources=0, in_degree=in_degree[rows], sampling=kind))
    return blocks


def per_target(block: Block, per_edge: np.ndarray) -> np.ndarray:
    return np.add.reduceat(per_edge, block.edges.offsets[:-1])


def scaled_sums(store: GraphStore, blocks: list[Block], *, of_value: bool = True) -> np.ndarray:
    """Return each sample's sum of weight x value (or of the weights) with its scale [DRAWS]."""
    ids = np.concatenate([store.nodes(p, ["id"])["id"].to_numpy() for p in range(store.num_partitions)])
    sums = []
    for block in blocks:
        scale = block.edge_scale
        if scale is None:
            scale = np.repeat(block.sample_scale, block.edges.lengths)
        value = VALUE[ids[block.edges.sources]] if of_value else 1
        sums.append(per_target(block, scale * block.edges.weight.astype(np.float64) * value))
    return np.concatenate(sums)


@pytest.mark.table(2)
@pytest.mark.parametrize("fanout", [1, 2, 5, LARGEST])
@pytest.mark.parametrize("kind", ["uniform", "weighted"])
@pytest.mark.parametrize("hub_threshold", [5, 10**6])
def test_a_scaled_sum_is_on_average_that_of_all_in_edges(
    store: GraphStore, tmp_path: Path, kind: SamplingKind, fanout: int, hub_threshold: int
) -> None:
    sums = scaled_sums(store, draws_of(store, tmp_path, kind, fanout, hub_threshold=hub_threshold))
    assert len(sums) == DRAWS
    error = sums.std() / np.sqrt(DRAWS)
    assert abs(sums.mean() - float((WEIGHT * VALUE).sum())) < STANDARD_ERRORS * error


def test_a_weighted_mean_does_not_apply_weights_twice(store: GraphStore, tmp_path: Path) -> None:
    blocks = draws_of(store, tmp_path, "weighted", 5)
    wanted = float((WEIGHT * VALUE).sum() / WEIGHT.sum())
    scaled = (scaled_sums(store, blocks) / scaled_sums(store, blocks, of_value=False)).mean()
    bare = [Block(block.edges, 0, edge_scale=np.ones(block.num_edges, np.float32)) for block in blocks]
    twice = (scaled_sums(store, bare) / scaled_sums(store, bare, of_value=False)).mean()
    assert abs(scaled - wanted) < 0.2 * abs(twice - wanted)


def test_everything_kept_is_scaled_by_one(store: GraphStore, tmp_path: Path) -> None:
    job = SelectJob(str(tmp_path / "selected"), store, "weighted", len(WEIGHT), 3, 10**6)
    run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous()))
    edges = Neighbors(store, job.artifact, sampling_of((len(WEIGHT),), "weighted")).in_edges(0)
    block = sampled_block(edges, num_sources=0, in_degree=edges.lengths, sampling="weighted")
    assert block.num_edges
    assert np.all(block.edge_scale == 1)


def test_hubs_change_nothing_of_a_weighted_sample(store: GraphStore, tmp_path: Path) -> None:
    split, whole = (
        draws_of(store, tmp_path / str(threshold), "weighted", 4, hub_threshold=threshold) for threshold in (5, 10**6)
    )
    for ours, theirs in zip(split, whole, strict=True):
        assert np.array_equal(ours.edges.sources, theirs.edges.sources)
        assert np.array_equal(ours.edge_scale, theirs.edge_scale)
