"""Counts of links against a plain computation, and candidates against the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.sampling import pairs as sampling
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train import heads
from gnnflow.train.baselines import links
from gnnflow.train.heads import PairRule
from tests.small_links import config_of, write_groups

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def drawn(tmp_path: Path) -> tuple[GraphStore, links.RankedLinks, PairRule]:
    write_groups(tmp_path, num_nodes=40)
    config = config_of(tmp_path)
    made = make_artifact(StageContext.of(config), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    rule = PairRule(config.task, config.seed)
    return store, links.draw_links(store, rule, "test"), rule


def train_edges(store: GraphStore) -> set[tuple[int, int]]:
    found = list(links._train_edges(store, ["src", "dst"]))
    return {pair for each in found for pair in zip(each["src"].tolist(), each["dst"].tolist(), strict=True)}


def test_item_knn_is_the_sum_of_cosines(drawn: tuple[GraphStore, links.RankedLinks, PairRule]) -> None:
    store, ranked, _ = drawn
    edges = train_edges(store)
    holders = {node: {src for src, dst in edges if dst == node} for node in range(store.book.num_nodes)}
    expected = np.zeros(ranked.candidates.shape)
    for row, source in enumerate(ranked.sources.tolist()):
        own = [dst for src, dst in edges if src == source]
        for column, item in enumerate(ranked.candidates[row].tolist()):
            expected[row, column] = sum(
                len(holders[item] & holders[other]) / np.sqrt(len(holders[item]) * len(holders[other]))
                for other in own
                if other != item and holders[item]
            )
    assert np.allclose(links._item_knn(store, ranked), expected)
    assert expected.any()


def test_popularity_counts_training_edges_alone(drawn: tuple[GraphStore, links.RankedLinks, PairRule]) -> None:
    store, ranked, _ = drawn
    ends = np.concatenate([each["dst"] for each in links._train_edges(store, ["dst"])])
    assert len(ends) == store.facts.splits["train"]
    expected = np.bincount(ends, minlength=store.book.num_nodes)[ranked.candidates]
    assert np.array_equal(links._popularity(store, ranked), expected)


def test_fewer_links_are_the_first_ones_of_all(drawn: tuple[GraphStore, links.RankedLinks, PairRule]) -> None:
    store, ranked, rule = drawn
    fewer = links.draw_links(store, rule, "test", most=5)
    assert np.array_equal(fewer.candidates, ranked.candidates[:5])


def test_the_most_recent_candidate_is_the_one_with_the_last_training_edge(tmp_path: Path) -> None:
    """By ranks, since float32 does not tell the seconds of these times apart; a node without an edge comes last."""
    write_groups(tmp_path, num_nodes=40)
    edges = pq.read_table(tmp_path / "edges.parquet")
    times = 1_700_000_000 + np.random.default_rng(1).permutation(edges.num_rows)
    pq.write_table(edges.append_column("time", pa.array(times)), tmp_path / "edges.parquet")
    task = {"split": {"kind": "time", "valid": 0.1, "test": 0.1}}
    config = config_of(tmp_path, task=task, graph={"timestamp": "time"})
    made = make_artifact(StageContext.of(config), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    ranked = links.draw_links(store, PairRule(config.task, config.seed), "test")
    last: dict[int, int] = {}
    for each in links._train_edges(store, ["dst", "time"]):
        for node, time in zip(each["dst"].tolist(), each["time"].tolist(), strict=True):
            last[node] = max(time, last.get(node, 0))
    expected = np.array([[last.get(node, -1) for node in row] for row in ranked.candidates.tolist()])
    found = links._most_recent(store, ranked)
    assert np.array_equal(np.argsort(found.ravel(), kind="stable"), np.argsort(expected.ravel(), kind="stable"))
    assert (np.diff(np.unique(found)) == 1).all()


def test_candidates_are_the_models_own_where_it_trains_from_the_store(tmp_path: Path, monkeypatch) -> None:
    write_groups(tmp_path, num_nodes=40)
    config = config_of(tmp_path, train={"source": "store", "epochs": 1})
    drawn: list[np.ndarray] = []

    def keep(*given: Any, epoch: int, **keys: Any) -> Any:
        found = sampling.draw_negatives(*given, epoch=epoch, **keys)
        if epoch == sampling.EVALUATION:
            drawn.append(np.concatenate([given[1][:, None], given[2][:, None], found], axis=1))
        return found

    monkeypatch.setattr(heads, "draw_negatives", keep)
    result = pipeline.run_quietly(config)
    seen = {tuple(row) for part in drawn for row in part.tolist()}
    drawn.clear()
    store = GraphStore.of(result.stages["ingest"].artifact, result.stages["ingest"].manifest)
    for split in ("valid", "test"):
        ranked = links.draw_links(store, PairRule(config.task, config.seed), split)
        rows = np.concatenate([ranked.sources[:, None], ranked.candidates], axis=1)
        assert {tuple(row) for row in rows.tolist()} <= seen
