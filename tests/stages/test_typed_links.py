"""Links of one relation of a typed graph through every stage: what is held out, drawn, embedded and scored."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import TableError, TrainingError
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.shards import read_pair_shard
from gnnflow.layers import load_model
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.pairs import score_pairs
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.stages.running import make_artifact
from gnnflow.storage import manifest
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore, edges_file
from gnnflow.storage.tables import commit_table
from gnnflow.train.failed_batch import read_failed_batch
from gnnflow.train.minibatch import outputs_on_shards
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables

if TYPE_CHECKING:
    from gnnflow.config import Config

from tests.typed_tasks import (
    COLUMNS,
    LINK,
    NEGATIVES,
    PAYS,
    REVERSE,
    SENDS,
    SPLITS,
    USES,
    config_of,
    edges_of,
    ends_in,
    ids_of,
    pairs_of,
    predictions,
    store_of,
)


def test_held_out_edges_and_their_reverses_carry_nothing_and_other_relations_stay(tmp_path: Path) -> None:
    tables = typed_tables()
    store = store_of(config_of(tmp_path, tables))
    pairs, edges = pairs_of(store), edges_of(store)
    given = ends_in(tables[PAYS])
    assert set(pairs) == set(given)
    held = {pair for pair, split in pairs.items() if split > 0}
    assert held
    carrying = sorted(pair for pair in given if pair not in held)
    assert sorted(edges[PAYS]) == carrying
    assert sorted((a, b) for b, a in edges[REVERSE]) == carrying
    for relation in (USES, SENDS):
        assert sorted(edges[relation]) == sorted(ends_in(tables[relation]))
    assert store.facts.splits == {"none": 0, **{name: list(pairs.values()).count(code) for code, name in SPLITS}}


def test_the_same_edges_in_a_relation_of_ones_own_are_left_out_with_the_held_out_ones(tmp_path: Path) -> None:
    tables = typed_tables()
    pays = tables[PAYS]
    # what a careless user writes: every payment turned round, as a table of its own
    tables["merchant__paid_by__account"] = pa.table({"src": pays["dst"], "dst": pays["src"]})
    store = store_of(config_of(tmp_path, tables, graph={"reverse_edges": False}))
    held = {pair for pair, split in pairs_of(store).items() if split > 0}
    edges = edges_of(store)
    assert sorted(edges["merchant__paid_by__account"]) == sorted((b, a) for a, b in ends_in(pays) if (a, b) not in held)
    assert store.facts.copies_left_out == sum(pair in held for pair in ends_in(pays))


def test_relations_of_a_type_with_itself_lose_both_directions(tmp_path: Path) -> None:
    tables = typed_tables(num_edges=300)
    store = store_of(config_of(tmp_path, tables, target=SENDS))
    held = {frozenset(pair) for pair, split in pairs_of(store).items() if split > 0}
    edges = edges_of(store)
    for relation in (SENDS, "account__rev_sends__account"):
        assert not held & {frozenset(pair) for pair in edges[relation]}
    assert len(edges[PAYS]) == 300


@pytest.mark.parametrize("relation", [REVERSE, PAYS])
def test_training_stops_at_a_held_out_edge_planted_in_its_relation_or_the_reverse_one(
    tmp_path: Path, relation: str
) -> None:
    tables = typed_tables(parallel=False)
    config = config_of(tmp_path, tables)
    store, context = store_of(config), StageContext.of(config)
    plant(store, relation)
    with pytest.raises(TrainingError, match="is among the edges that its score is computed from"):
        perform(context, "run")


def plant(store: GraphStore, relation: str) -> None:
    """Let an edge of a relation join the ends of a held-out pair, as a fault of ingest would."""
    pairs = pa.concat_tables([store.pairs(part, ["src", "dst", "split"]) for part in range(store.num_partitions)])
    held = pairs.filter(pc.greater(pairs["split"], 0))
    ends = [held[name].to_pylist() for name in (("src", "dst") if relation == PAYS else ("dst", "src"))]
    number = [str(each) for each in store.schema.relations].index(relation)
    for part in range(store.num_partitions):
        table = store.edges(part, [*COLUMNS], relation=number)
        into = table["dst"].to_pylist()
        found = next(((a, into.index(b)) for a, b in zip(*ends, strict=True) if b in into), None)
        if found is not None:
            sources = table["src"].to_pylist()
            sources[found[1]] = found[0]
            planted = table.set_column(table.column_names.index("src"), "src", pa.array(sources))
            rewrite(store.artifact, edges_file(part, store.schema, relation=number), planted)
            return
    raise AssertionError("no node of a held-out pair has an in-edge")


def rewrite(artifact: str, name: str, table: pa.Table) -> None:
    """Replace a committed file, and what its manifest says of it."""
    held = manifest.read_manifest(artifact)
    entry = commit_table(artifact, name, table)
    files = tuple(entry if each.name == name else each for each in held.files)
    Path(artifact.removeprefix("file://"), "manifest.json").unlink()
    manifest.commit(artifact, replace(held, files=files))


@pytest.mark.table(2)
@pytest.mark.parametrize("negatives", ["uniform", "degree"])
def test_pools_hold_nodes_of_the_type_that_pairs_lead_to_alone(tmp_path: Path, negatives: str) -> None:
    tables = typed_tables()
    config = config_of(tmp_path, tables, task={"negatives": {"kind": negatives, "pool": 200}}, flat={"shard_size": 30})
    store, context = store_of(config), StageContext.of(config)
    flat = make_artifact(context, "flat")
    shards = flat.manifest.facts["shards"]
    assert len(shards) > 3
    merchant = store.schema.types.index("merchant")
    paid = {pair[1] for pair in edges_of(store)[PAYS]}
    ids = ids_of(store)
    seen = set()
    for entry in context.artifact("flat").facts(FlatFacts).shards:
        pairs = read_pair_shard(flat.artifact, entry)
        targets = pairs.shard.targets
        kinds = [set(store.book.type_of(targets[each]).tolist()) for each in (pairs.sources, pairs.targets, pairs.pool)]
        assert kinds == [{store.schema.types.index("account")}, {merchant}, {merchant}]
        seen |= {ids[node] for node in targets[pairs.pool].tolist()}
    # by degree those that nobody pays are never drawn, even where another relation leads to them
    assert seen <= paid if negatives == "degree" else len(seen) == tables["merchant"].num_rows


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Any, Path]:
    folder = tmp_path_factory.mktemp("linked")
    config = config_of(folder, typed_tables(), train={"baseline": True})
    return config, run_pipeline(StageContext.of(config)), folder


def test_links_give_embeddings_of_both_ends_with_the_users_ids(linked: tuple[Config, Any, Path]) -> None:
    _, result, folder = linked
    assert result.metrics["infer.parity_max_difference"] < 1e-5
    assert 0 < result.metrics["test.mrr"] <= 1
    assert 0 < result.metrics["baseline.test.mrr"] <= 1
    table = predictions(result)
    assert table.column_names == ["type", "id", "embedding"]
    found = sorted(zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True))
    nodes = {kind: pq.read_table(folder / f"{kind}.parquet")["id"].to_pylist() for kind in ("account", "merchant")}
    assert found == sorted((kind, each) for kind, ids in nodes.items() for each in ids)


def test_a_published_model_scores_from_every_edge_of_the_relation_and_its_reverse(
    linked: tuple[Config, Any, Path],
) -> None:
    config, result, folder = linked
    context = StageContext.of(config)
    assert publish.run(context).promoted
    scored = score.run(context)
    store = GraphStore.of(scored.reads[0], manifest.read_manifest(scored.reads[0]))
    edges, given = edges_of(store), ends_in(pq.read_table(folder / f"{PAYS}.parquet"))
    assert sorted(edges[PAYS]) == sorted(given) == sorted((a, b) for b, a in edges[REVERSE])
    before, after = (
        pq.read_table(uri).sort_by([("type", "ascending"), ("id", "ascending")])
        for uri in (result.predictions, scored.predictions)
    )
    assert before["id"].equals(after["id"])
    assert not before["embedding"].equals(after["embedding"])


@pytest.mark.slow
def test_ids_of_which_one_type_s_are_text_are_text_and_pairs_are_scored_all_the_same(tmp_path: Path) -> None:
    tables = typed_tables()
    config = config_of(tmp_path, tables, target=USES)
    result = run_pipeline(StageContext.of(config))
    table = predictions(result)
    assert set(table["id"].to_pylist()) == {
        str(each) for kind in ("account", "device") for each in tables[kind]["id"].to_pylist()
    }
    score_pairs(
        result.uri, str(tmp_path / f"{USES}.parquet"), out=str(tmp_path / "scored.parquet"), workspace=str(tmp_path)
    )
    assert pq.read_table(tmp_path / "scored.parquet").num_rows == tables[USES].num_rows


def test_pairs_are_scored_from_the_embedding_of_each_end_s_own_type(linked: tuple[Config, Any, Path]) -> None:
    _, result, folder = linked
    table = predictions(result)
    held = {
        (kind, each): row
        for kind, each, row in zip(
            table["type"].to_pylist(), table["id"].to_pylist(), to_matrix(table["embedding"]), strict=True
        )
    }
    pairs = pq.read_table(folder / f"{PAYS}.parquet")
    # accounts and merchants share some ids
    assert {kind for kind, each in held if each == 31} == {"account", "merchant"}
    score_pairs(result.uri, str(folder / f"{PAYS}.parquet"), out=str(folder / "scored.parquet"), workspace=str(folder))
    scored = pq.read_table(folder / "scored.parquet")
    expected = [held["account", a] @ held["merchant", b] for a, b in ends_in(pairs)]
    np.testing.assert_allclose(scored["score"].to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_pair_of_the_wrong_type_is_refused_with_the_type(linked: tuple[Config, Any, Path]) -> None:
    _, result, folder = linked
    # 1 is an account, and no merchant
    pq.write_table(pa.table({"src": [1], "dst": [1]}), folder / "wrong.parquet")
    with pytest.raises(TableError, match="id 1 of type merchant has no embedding"):
        score_pairs(result.uri, str(folder / "wrong.parquet"), out=str(folder / "out.parquet"), workspace=str(folder))


def test_training_scores_a_held_out_pair_as_the_embeddings_of_graphinfer_do(linked: tuple[Config, Any, Path]) -> None:
    config, result, _ = linked
    context = StageContext.of(config)
    model, flat, store = load_model(context.artifact("train").uri), context.artifact("flat"), store_of(config)
    entries = [entry for entry in flat.facts(FlatFacts).shards if entry.split == "test"]
    task: Any = config.task
    read = partial(read_pair_shard, flat.uri)
    made = outputs_on_shards(model, entries, read, sampling=EVERY_EDGE, train=config.train, task=task, seed=config.seed)
    table, ids = predictions(result), ids_of(store)
    named = zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True)
    rows = dict(zip(named, to_matrix(table["embedding"]), strict=True))
    expected = []
    for entry in entries:
        pairs = read_pair_shard(flat.uri, entry)
        nodes = pairs.shard.targets
        ends = zip(nodes[pairs.sources].tolist(), nodes[pairs.targets].tolist(), strict=True)
        expected += [rows["account", ids[a]] @ rows["merchant", ids[b]] for a, b in ends]
    np.testing.assert_allclose(made.logits[:, 0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.table(4)
@pytest.mark.parametrize("target", [None, "person__knows__person"])
def test_one_type_and_one_relation_give_the_bytes_of_a_graph_without_types(tmp_path: Path, target: str | None) -> None:
    write_graph(tmp_path, num_edges=500)
    nodes, edges = str(tmp_path / "nodes.parquet"), str(tmp_path / "edges.parquet")
    maps = {"nodes": {"person": nodes}, "edges": {"person__knows__person": edges}, "features": ["x"], "target": target}
    digests = []
    for name, graph in (("plain", {}), ("maps", maps)):
        config = graph_config(
            tmp_path,
            workspace=str(tmp_path / name),
            graph=graph,
            task={**LINK, "negatives": NEGATIVES},
            model={"kind": "sage", "hidden": 4},
            train={"epochs": 1, "metric": "mrr"},
        )
        stages = run_pipeline(StageContext.of(config)).stages
        digests.append({stage: made.digest for stage, made in stages.items()})
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_embeddings_of_a_relation_of_a_type_with_itself_name_no_type(tmp_path: Path) -> None:
    tables = typed_tables(num_edges=300)
    found = predictions(run_pipeline(StageContext.of(config_of(tmp_path, tables, target=SENDS))))
    assert found.column_names == ["id", "embedding"]
    assert sorted(found["id"].to_pylist()) == sorted(tables["account"]["id"].to_pylist())


def test_a_batch_that_failed_is_kept_with_the_ids_and_features_of_what_its_edges_lead_to(tmp_path: Path) -> None:
    tables = typed_tables()
    config = config_of(tmp_path, tables, train={"lr": 1e30, "optimizer": "sgd", "epochs": 9})
    with pytest.raises(TrainingError, match="the training loss is"):
        perform(StageContext.of(config), "run")
    (kept,) = tmp_path.glob("runs/failed/train/*/train.safetensors")
    batch = read_failed_batch(str(kept))
    merchants = {row["id"]: row["x_index"] for row in tables["merchant"].to_pylist()}
    offsets, index = (batch.tensors[f"features/{name}"].tolist() for name in ("offsets", "index"))
    for row, name in enumerate(batch.said["ids"]):
        assert index[offsets[row] : offsets[row + 1]] == merchants[name]


def one_merchant(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables with one merchant, to which every payment goes."""
    merchant, pays = tables["merchant"].slice(0, 1), tables[PAYS]
    column = pays.schema.get_field_index("dst")
    to_it = pays.set_column(column, "dst", pa.array(merchant["id"].to_pylist() * pays.num_rows))
    return {**tables, "merchant": merchant, PAYS: to_it}


@pytest.mark.parametrize("kind", ["uniform", "degree", "in_batch"])
def test_a_type_of_one_node_is_refused_by_ingest(tmp_path: Path, kind: str) -> None:
    config = config_of(tmp_path, one_merchant(typed_tables()), task={"negatives": {**NEGATIVES, "kind": kind}})
    with pytest.raises(TableError, match=r"merchant has 1 node: no negative exists.* at least 2 nodes"):
        store_of(config)


def test_labels_of_edges_to_one_node_need_no_negative(tmp_path: Path) -> None:
    tables = one_merchant(typed_tables())
    labels = pa.array(np.arange(tables[PAYS].num_rows) % 2)
    tables[PAYS] = tables[PAYS].append_column("illicit", labels)
    task = {"kind": "edge", "decoder": {"kind": "mlp"}, "split": LINK["split"]}
    assert store_of(config_of(tmp_path, tables, task=task, graph={"label": "illicit"})).facts.target == "merchant"


@pytest.mark.parametrize("kind", ["degree", "in_batch"])
def test_a_single_node_with_in_edges_is_refused_where_negatives_have_in_edges(tmp_path: Path, kind: str) -> None:
    tables = {**typed_tables(), PAYS: one_merchant(typed_tables())[PAYS]}
    config = config_of(tmp_path, tables, task={"negatives": {**NEGATIVES, "kind": kind}})
    with pytest.raises(TableError, match=r"leads to one merchant.*task.negatives.kind: uniform"):
        store_of(config)
    assert store_of(config_of(tmp_path, tables)).facts.num_nodes
