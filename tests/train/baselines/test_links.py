"""Counts of links against a plain computation, and candidates against the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
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
    return store, links._draw_links(store, rule, "test"), rule


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


def test_fewer_links_are_the_first_ones_of_all(
    drawn: tuple[GraphStore, links.RankedLinks, PairRule], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ranked, rule = drawn
    monkeypatch.setattr(links, "MOST_LINKS", 5)
    fewer = links._draw_links(store, rule, "test")
    assert np.array_equal(fewer.candidates, ranked.candidates[:5])
