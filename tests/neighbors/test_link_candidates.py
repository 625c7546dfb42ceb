"""How many candidates of held-out links are edges, against pairs counted one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnflow.neighbors.link_candidates import filtered_links, known_links, sample_links, share_of_edges
from gnnflow.storage.graph_store import GraphStore
from tests.small_links import config_of as links_of
from tests.small_links import write_groups
from tests.typed_graphs import typed_tables
from tests.typed_tasks import NEGATIVES, SENDS, config_of, store_of


def pairs_of(store: GraphStore, *, split: int | None = None) -> list[tuple[int, int]]:
    """The ends of all edges of the relation to predict, or of those of one split, as dense ids."""
    found = []
    for part in range(store.num_partitions):
        table = store.pairs(part, ["src", "dst", "split"]).to_pydict()
        ends = zip(table["src"], table["dst"], table["split"], strict=True)
        found += [(src, dst) for src, dst, code in ends if split in (None, code)]
    return found


def weights_of(store: GraphStore, power: float) -> dict[int, float]:
    """What each node that a link may lead to weighs as a candidate."""
    kind, relation, found = store.facts.pair_types.target, store.facts.pair_relation, {}
    for part in range(store.num_partitions):
        rows, degrees = store.book.rows(part, kind), store.degrees(part).relation(relation).in_degree
        for row in range(rows.start, rows.stop):
            found[store.book.start(part) + row] = float(degrees[row]) ** power
    return found


def links_config(folder: Path, negatives: dict[str, Any], *, typed: bool, **sections: Any) -> Any:
    if typed:
        return config_of(
            folder, typed_tables(num_edges=300), task={"negatives": {**NEGATIVES, **negatives}}, **sections
        )
    write_groups(folder)
    return links_of(folder, task={"negatives": {**NEGATIVES, **negatives}}, **sections)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("negatives", "power"), [({}, 0.0), ({"kind": "degree", "power": 0.5}, 0.5), ({"kind": "in_batch"}, 0.0)]
)
def test_the_share_of_edges_is_that_of_all_candidates_counted(
    tmp_path: Path, negatives: dict[str, Any], power: float, typed: bool
) -> None:
    config = links_config(tmp_path, negatives, typed=typed)
    store = store_of(config)
    edges, weights, shares = set(pairs_of(store)), weights_of(store, power), []
    for source, target in pairs_of(store, split=2):
        others = {node: weight for node, weight in weights.items() if node not in (source, target)}
        known = sum(weight for node, weight in others.items() if (source, node) in edges)
        shares.append(known / sum(others.values()))
    links = sample_links(store)
    found = share_of_edges(store, links, config.task, known=known_links(store, links.sources))
    assert found == pytest.approx(np.mean(shares))
    assert found > 0.01


def test_a_sample_of_links_is_the_same_whatever_the_partitions(tmp_path: Path) -> None:
    found = []
    for partitions in (1, 4):
        store = store_of(links_config(tmp_path, {}, typed=False, graph={"partitions": partitions}))
        links = sample_links(store, size=40)
        assert set(zip(links.sources.tolist(), links.targets.tolist(), strict=True)) <= set(pairs_of(store, split=2))
        found.append(links.keys.tolist())
    assert found[0] == found[1]
    assert len(found[0]) == 40


def test_links_are_of_the_valid_split_where_none_is_tested(tmp_path: Path) -> None:
    task = {"kind": "link", "split": {"kind": "random", "valid": 0.3, "test": 0.0}}
    links = sample_links(store_of(config_of(tmp_path, typed_tables(), task=task, target=SENDS)))
    assert links.split == "valid"
    assert len(links.sources)


@pytest.mark.parametrize("typed", [False, True])
def test_edges_are_known_in_every_split_and_no_other_pair_is(tmp_path: Path, typed: bool) -> None:
    config = links_config(tmp_path, {"filtered": True}, typed=typed)
    store = store_of(config)
    edges, known = set(pairs_of(store)), filtered_links(store, config.task)
    assert known is not None
    sources = {source for source, _ in pairs_of(store, split=1) + pairs_of(store, split=2)}
    asked = np.array([(source, node) for source in sources for node in weights_of(store, 0.0)], np.int64)
    told = known.are(asked[:, 0], asked[:, 1]).tolist()
    assert told == [tuple(pair) in edges for pair in asked.tolist()]
    assert filtered_links(store, links_config(tmp_path, {}, typed=typed).task) is None
