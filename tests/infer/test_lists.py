"""Lists of items against brute force: ties, seen items, few items, users without edges, any cut into blocks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config import model_from_dict
from gnnflow.infer import lists
from gnnflow.infer.best import BestItems, SharedList, UserItems, places_in_lists
from gnnflow.infer.lists import LINKS, LISTS, ListJob, popular_places, run_rounds
from gnnflow.layers import ModelInputs, build_model, save_model
from gnnflow.layers.decoders import DecoderInputs
from gnnflow.layers.saved import encode_weights
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import from_matrix
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import Manifest, commit
from gnnflow.storage.tables import commit_table
from tests.budget import examples
from tests.small_links import config_of, write_groups
from tests.typed_graphs import typed_tables
from tests.typed_tasks import PAYS, SENDS, edges_of, ids_of, pairs_of, store_of
from tests.typed_tasks import config_of as typed_config

WIDTH = 3


def cut(total: int, draw: st.DataObject) -> list[int]:
    """Borders of pieces of a range, its ends included."""
    inner = draw.draw(st.lists(st.integers(0, total), max_size=4))
    return sorted({0, total, *inner})


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), st.integers(0, 5), st.integers(1, 30), st.integers(1, 8), st.integers(1, 4))
def test_best_items_are_those_of_a_sort_however_they_are_offered(data, users, items, top, levels) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    scores = rng.integers(0, levels, (users, items)).astype(np.float32)  # few levels: many ties
    scores[rng.random(scores.shape) < 0.3] = -np.inf
    best = BestItems(users, top)
    for (a, b), (c, d) in itertools.product(itertools.pairwise(cut(items, data)), itertools.pairwise(cut(users, data))):
        best.offer(c, a, np.ascontiguousarray(scores[c:d, a:b]))
    for user in range(users):
        order = [item for item in np.lexsort((np.arange(items), -scores[user])) if np.isfinite(scores[user, item])]
        expected = order[:top]
        assert best.items[user].tolist() == expected + [-1] * (top - len(expected))
        assert best.scores[user, : len(expected)].tolist() == scores[user, expected].tolist()


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 12), st.integers(1, 14))
def test_places_in_a_shared_list_are_those_of_each_user_s_own(seed, users, items, top) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 4, items)
    is_seen = rng.random((users, items)) < rng.random()
    seen = UserItems.of(*np.nonzero(is_seen), num_items=items)
    shared = SharedList(popular_places(degrees), seen, users, top)
    order = sorted(range(items), key=lambda item: (-degrees[item], item))
    own = [[item for item in order if not is_seen[user, item]][:top] for user in range(users)]
    asked = UserItems.of(*np.nonzero(~is_seen), num_items=items)
    expected = [own[u].index(i) if i in own[u] else top for u, i in zip(asked.users, asked.items, strict=True)]
    assert shared.places_of(asked).tolist() == expected
    assert [order[place] for place in shared.shown_places()] == [i for i in order if any(i in each for each in own)]
    padded = np.array([each + [-1] * (top - len(each)) for each in own])
    assert places_in_lists(asked, padded).tolist() == expected


def job_of(folder: Path, store: GraphStore, rows: np.ndarray, **options: Any) -> ListJob:
    """The job on a store whose nodes have these embeddings, by dense id, and a decoder of products."""
    config, inputs = model_from_dict({"kind": "gcn", "hidden": 4}), ModelInputs(2, WIDTH, decoder=DecoderInputs("dot"))
    weights = encode_weights(build_model(config, inputs).state_dict())
    save_model(str(folder / "model"), config, inputs, weights=weights)
    scored, entries = str(folder / "scored"), []
    for part in range(store.num_partitions):
        targets = [store.book.rows(part, each) for each in store.facts.target_types]
        own = np.concatenate([store.book.start(part) + np.arange(each.start, each.stop) for each in targets])
        table = pa.table({"embedding": from_matrix(rows[own])})
        entries.append(commit_table(scored, f"predictions/part-{part:05d}.parquet", table))
    commit(scored, Manifest("infer", "x", 1, tuple(entries), {}, 0, 0))
    sizes = {name: options.pop(name) for name in ("block_items", "users_at_once") if name in options}
    asked: dict[str, Any] = {"top": 4, "exclude_seen": True, **options}
    places = {"artifact": str(folder / "lists"), "model": str(folder / "model"), "scored": scored}
    return replace(ListJob.of(store, memory=1 << 30, **places, **asked), **sizes)


def made_by(job: ListJob, folder: Path) -> tuple[list[str], pa.Table, pa.Table]:
    """The digests of the files, the lists and the held-out links."""
    runner = RoundRunner(str(folder / "work"), Synchronous(), artifact=job.artifact)
    files = [entry for record in run_rounds(job, runner) for entry in record.files]
    read = {
        name: pa.concat_tables(
            [pq.read_table(Path(job.artifact) / each.name) for each in files if each.name.startswith(name)]
        )
        for name in (LISTS, LINKS)
    }
    return [each.sha256 for each in files], read[LISTS], read[LINKS]


def store_of_kind(kind: str, folder: Path) -> GraphStore:
    """A small store whose links are predicted; nodes of one type have text for ids, the others numbers."""
    if kind == "one type":
        write_groups(folder, num_nodes=40)
        return store_of(config_of(folder))
    relation = {"two types": PAYS, "a type to itself": SENDS}[kind]
    return store_of(typed_config(folder, typed_tables(), target=relation))


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("kind", ["one type", "two types", "a type to itself"])
def test_lists_and_ranks_are_those_of_brute_force(kind: str, exclude_seen: bool, tmp_path: Path) -> None:
    store = store_of_kind(kind, tmp_path)
    ids, types = ids_of(store), store.facts.pair_types
    kinds = store.book.type_of(np.arange(store.book.num_nodes))
    users, items = (np.flatnonzero(kinds == each) for each in types)
    # whole numbers, so that every order of sums gives the same scores, and many of them are equal
    rows = np.random.default_rng(0).integers(-1, 2, (len(ids), WIDTH)).astype(np.float32)
    edges = edges_of(store)[str(store.schema.relations[store.facts.pair_relation])]
    seen = set(edges) if exclude_seen else set()
    by_id = {(kinds[node], ids[node]): node for node in range(len(ids))}
    degree = dict.fromkeys(items, 0)
    for _, target in edges:
        degree[by_id[types[1], target]] += 1
    for top in (3, len(items) + 2):
        (tmp_path / str(top)).mkdir()
        job = job_of(tmp_path / str(top), store, rows, top=top, exclude_seen=exclude_seen)
        _, table, links = made_by(job, tmp_path / str(top))
        lists_of: dict[object, list[tuple[object, float]]] = {ids[user]: [] for user in users}
        for row in table.to_pylist():
            lists_of[row["user"]].append((row["item"], row["score"]))
            assert row["rank"] == len(lists_of[row["user"]])
        ranks, popular = {}, {}
        for user in users:
            allowed = [item for item in items if item != user and (ids[user], ids[item]) not in seen]
            best = sorted(allowed, key=lambda item: (-float(rows[user] @ rows[item]), ids[item]))[:top]
            assert lists_of[ids[user]] == [(ids[item], float(rows[user] @ rows[item])) for item in best]
            ranks |= {(ids[user], ids[item]): place + 1 for place, item in enumerate(best)}
            best = sorted(allowed, key=lambda item: (-degree[item], ids[item]))[:top]
            popular |= {(ids[user], ids[item]): place + 1 for place, item in enumerate(best)}
        held = {pair: split for pair, split in pairs_of(store).items() if split > 0 and pair not in seen}
        assert len(held) == links.num_rows > 0
        for row in links.to_pylist():
            pair = row["user"], row["item"]
            assert row["split"] == ("train", "valid", "test")[held[pair]]
            assert (row["rank"], row["popularity_rank"]) == (ranks.get(pair), popular.get(pair))


def test_cuts_by_memory_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that round: only tiles of one shape keep them apart from the sizes of blocks and runs."""
    monkeypatch.setattr(lists, "TILE_ITEMS", 8)
    monkeypatch.setattr(lists, "TILE_USERS", 4)
    monkeypatch.setattr(lists, "_WRITTEN_ROWS", 10)
    store = store_of_kind("one type", tmp_path)
    rows = np.random.default_rng(1).standard_normal((store.book.num_nodes, WIDTH)).astype(np.float32)
    found = []
    for number, (block, at_once) in enumerate(((8, 4), (16, 8), (24, 40), (80, 80))):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(made_by(job_of(folder, store, rows, block_items=block, users_at_once=at_once), folder)[0])
    assert all(each == found[0] for each in found[1:])


def test_blocks_follow_the_memory_of_a_worker(tmp_path: Path) -> None:
    store = store_of_kind("two types", tmp_path)
    rows = np.zeros((store.book.num_nodes, WIDTH), np.float32)
    job = job_of(tmp_path, store, rows)
    others: dict[str, Any] = {"artifact": "", "model": "", "top": 10, "exclude_seen": True}
    small, large = (ListJob.of(store, scored=job.scored, memory=memory, **others) for memory in (1, 1 << 31))
    assert (small.block_items, small.users_at_once) == (lists.TILE_ITEMS, lists.TILE_USERS)
    assert large.block_items % lists.TILE_ITEMS == large.users_at_once % lists.TILE_USERS == 0
    assert large.block_items * (4 * WIDTH + 64) <= (1 << 31) // 8
    assert job.num_blocks == 1
