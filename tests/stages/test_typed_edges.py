"""Links and labels of the edges of one relation of a typed graph, through every stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict, load_config
from gnnflow.datasets import write_typed_payments
from gnnflow.graph.errors import ConfigError, RegistryError, TableError, TrainingError
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.graphfeature.pairs import read_pair_shard
from gnnflow.layers import load_model
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext, make_artifact
from gnnflow.stages.pairs import score_pairs
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.storage import manifest
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore, edges_file
from gnnflow.storage.tables import commit_table
from gnnflow.train.failed_batch import read_failed_batch
from gnnflow.train.minibatch import outputs_on_pairs
from tests.conftest import REPOSITORY
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from gnnflow.config import Config

PAYS, USES, SENDS = "account__pays__merchant", "account__uses__device", "account__sends__account"
REVERSE = "merchant__rev_pays__account"
LINK = {"kind": "link", "width": 8, "split": {"kind": "random", "valid": 0.2, "test": 0.2}}
NEGATIVES = {"kind": "uniform", "pool": 32, "evaluation": 10}
SPLITS = list(enumerate(("train", "valid", "test")))
COLUMNS = ("dst", "src", "edge_key", "weight", "attributes")
Ends = tuple[Any, Any]


def config_of(
    folder: Path,
    tables: dict[str, pa.Table],
    *,
    target: str = PAYS,
    task: dict[str, Any] | None = None,
    **sections: Any,
) -> Config:
    asked = {**LINK, **(task or {})}
    if asked["kind"] == "link":
        asked = {"negatives": NEGATIVES, **asked}
    metric = "mrr" if asked["kind"] == "link" else "accuracy"
    graph = {**write_tables(folder, tables), "target": target, "reverse_edges": True, **sections.pop("graph", {})}
    return config_from_dict(
        {
            "name": "typed-edges",
            "workspace": str(folder / "runs"),
            "graph": graph,
            "task": asked,
            "model": {"kind": "sage", "hidden": 8, "layers": 2, "dropout": 0.0, **sections.pop("model", {})},
            "train": {"epochs": 2, "batch_size": 32, "metric": metric, **sections.pop("train", {})},
            "infer": {"parity_samples": 20, **sections.pop("infer", {})},
            "cluster": {"kind": "synchronous"},
            **sections,
        }
    )


def store_of(config: Config) -> GraphStore:
    made = make_artifact(StageContext.of(config), "ingest")
    return GraphStore.of(made.artifact, made.manifest)


def ids_of(store: GraphStore) -> list[Any]:
    """The users' ids, by dense id."""
    every = range(store.num_partitions), range(store.schema.num_types)
    tables = (store.nodes(part, ["id"], node_type=kind) for part in every[0] for kind in every[1])
    return [each for table in tables for each in table["id"].to_pylist()]


def edges_of(store: GraphStore) -> dict[str, list[Ends]]:
    """The edges of every relation that carry messages, by the users' ids."""
    ids = ids_of(store)
    found: dict[str, list[Ends]] = {}
    for number, relation in enumerate(store.schema.relations):
        tables = [store.edges(part, ["src", "dst"], relation=number) for part in range(store.num_partitions)]
        ends = zip(*(pa.concat_tables(tables)[name].to_pylist() for name in ("src", "dst")), strict=True)
        found[str(relation)] = [(ids[a], ids[b]) for a, b in ends]
    return found


def pairs_of(store: GraphStore) -> dict[Ends, int]:
    ids = ids_of(store)
    table = pa.concat_tables([store.pairs(part, ["src", "dst", "split"]) for part in range(store.num_partitions)])
    rows = zip(*(table[name].to_pylist() for name in ("src", "dst", "split")), strict=True)
    return {(ids[a], ids[b]): split for a, b, split in rows}


def ends_in(table: pa.Table) -> list[Ends]:
    return list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True))


def predictions(result: Any) -> pa.Table:
    parts = sorted(Path(result.predictions.removeprefix("file://")).glob("*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in parts])


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
        run_pipeline(context)


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


def test_ids_of_which_one_type_s_are_text_are_text_and_pairs_are_scored_all_the_same(tmp_path: Path) -> None:
    tables = typed_tables()
    config = config_of(tmp_path, tables, target=USES)
    result = run_pipeline(StageContext.of(config))
    table = predictions(result)
    assert set(table["id"].to_pylist()) == {
        str(each) for kind in ("account", "device") for each in tables[kind]["id"].to_pylist()
    }
    score_pairs(result.uri, str(tmp_path / f"{USES}.parquet"), out=str(tmp_path / "scored.parquet"))
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
    score_pairs(result.uri, str(folder / f"{PAYS}.parquet"), out=str(folder / "scored.parquet"))
    scored = pq.read_table(folder / "scored.parquet")
    expected = [held["account", a] @ held["merchant", b] for a, b in ends_in(pairs)]
    np.testing.assert_allclose(scored["score"].to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_pair_of_the_wrong_type_is_refused_with_the_type(linked: tuple[Config, Any, Path]) -> None:
    _, result, folder = linked
    # 1 is an account, and no merchant
    pq.write_table(pa.table({"src": [1], "dst": [1]}), folder / "wrong.parquet")
    with pytest.raises(TableError, match="id 1 of type merchant has no embedding"):
        score_pairs(result.uri, str(folder / "wrong.parquet"), out=str(folder / "out.parquet"))


def labelled(*, seed: int = 0, times: bool = False) -> dict[str, pa.Table]:
    """Tables whose payments have a label that their amount gives, which is null for some, and perhaps times."""
    tables = typed_tables(seed=seed, num_edges=400)
    rng = np.random.default_rng(seed + 1)
    pays = tables[PAYS]
    amount = pays["amount"].to_numpy()
    illicit = pa.array((amount > 0).astype(np.int64), mask=rng.random(len(amount)) < 0.1)
    tables[PAYS] = pays.append_column("illicit", illicit)
    if times:
        for relation in (PAYS, SENDS):
            stamps = pa.array(rng.permutation(tables[relation].num_rows))
            tables[relation] = tables[relation].append_column("timestamp", stamps)
    return tables


EDGE = {"kind": "edge", "decoder": {"kind": "mlp", "hidden": 16}}
EDGE_GRAPH = {"label": "illicit", "edge_features": {PAYS: ["amount"]}}


def test_labels_of_a_relation_are_learned_and_every_edge_gets_a_row(tmp_path: Path) -> None:
    tables = labelled()
    config = config_of(tmp_path, tables, task=EDGE, graph=EDGE_GRAPH, train={"epochs": 20, "lr": 0.02})
    result = run_pipeline(StageContext.of(config))
    assert result.metrics["test.accuracy"] > 0.85
    assert result.metrics["infer.parity_max_difference"] < 1e-5
    found = predictions(result)
    assert found.column_names == ["src", "dst", "prediction", "probabilities"]
    assert sorted(ends_in(found)) == sorted(ends_in(tables[PAYS]))
    page = Path(result.report.removeprefix("file://")).read_text()
    assert f"{PAYS}, scored" in page
    assert "ROC" in page


def test_ids_of_edges_keep_the_types_of_both_tables(tmp_path: Path) -> None:
    tables = labelled()
    uses = tables[USES]
    tables[USES] = uses.append_column("illicit", pa.array(np.arange(uses.num_rows) % 2))
    tables[PAYS] = tables[PAYS].drop_columns(["illicit"])
    config = config_of(
        tmp_path, tables, target=USES, task={**EDGE, "decoder": {"kind": "distmult"}}, graph={"label": "illicit"}
    )
    found = predictions(run_pipeline(StageContext.of(config)))
    assert sorted(ends_in(found)) == sorted(ends_in(uses))


def test_the_decoder_reads_the_attributes_of_its_own_relation_alone(tmp_path: Path) -> None:
    tables = labelled()
    sends = tables[SENDS]
    for name in ("a", "b", "c"):
        sends = sends.append_column(name, pa.array(np.zeros(sends.num_rows, np.float32)))
    tables[SENDS] = sends
    graph = {"label": "illicit", "edge_features": {PAYS: ["amount"], SENDS: ["a", "b", "c"]}}
    config = config_of(tmp_path, tables, task=EDGE, graph=graph, model={"kind": "gat_e", "heads": 2})
    context = StageContext.of(config)
    assert run_pipeline(context).metrics["infer.parity_max_difference"] < 1e-5
    assert context.artifact("ingest").facts(GraphFacts).pair_attribute_width == 1


@pytest.mark.parametrize("messages", [True, False])
def test_partitions_do_not_change_which_edges_are_held_out(tmp_path: Path, messages: bool) -> None:
    tables = labelled()
    found = []
    for parts in (1, 4):
        graph = {**EDGE_GRAPH, "partitions": parts}
        store = store_of(config_of(tmp_path, tables, task={**EDGE, "messages": messages}, graph=graph))
        found.append((pairs_of(store), {name: sorted(edges) for name, edges in edges_of(store).items()}))
    assert found[0] == found[1]
    assert (sorted(found[0][1][PAYS]) == sorted(ends_in(tables[PAYS]))) == messages


def test_by_time_no_relation_has_an_edge_as_late_as_a_held_out_one(tmp_path: Path) -> None:
    tables = labelled(times=True)
    task = {"split": {"kind": "time", "valid": 0.15, "test": 0.15}}
    config = config_of(tmp_path, tables, task=task, graph={"edge_features": ["amount"]}, train={"epochs": 1})
    store = store_of(config)
    timed = [relation.has_time for relation in store.facts.relations]
    assert timed == [USES.split("__")[1] not in relation.name for relation in store.facts.relations]
    parts = range(store.num_partitions)
    pairs = pa.concat_tables([store.pairs(part, ["split", "time"]) for part in parts])
    first = pc.min(pairs.filter(pc.greater(pairs["split"], 0))["time"]).as_py()
    for number, relation in enumerate(store.schema.relations):
        if relation.name.endswith("uses"):
            # edges without times are older than all, and stay
            assert sum(store.edges(part, ["src"], relation=number).num_rows for part in parts) == 400
            continue
        held = pa.concat_tables([store.edges(part, ["time"], relation=number) for part in parts])
        assert 0 < held.num_rows < 400
        assert pc.max(held["time"]).as_py() < first
    metrics = run_pipeline(StageContext.of(config)).metrics
    assert metrics["infer.parity_max_difference"] < 1e-5


def test_scores_by_time_do_not_change_with_the_batch(tmp_path: Path) -> None:
    tables = labelled(times=True)
    task = {**EDGE, "split": {"kind": "random", "valid": 0.2, "test": 0.2, "earlier_only": True}}
    config = config_of(tmp_path, tables, task=task, graph=EDGE_GRAPH)
    context = StageContext.of(config)
    run_pipeline(context)
    model, flat = load_model(context.artifact("train").uri), context.artifact("flat")
    entries = [entry for entry in flat.facts(FlatFacts).shards if entry.split == "test"]
    found = [
        outputs_on_pairs(
            model,
            entries,
            artifact=flat.uri,
            fanouts=None,
            train=config.train.model_copy(update={"eval_batch_size": size}),
            task=config.task,  # type: ignore[arg-type]
            seed=config.seed,
        ).logits
        for size in (3, 1000)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_a_model_of_a_relation_is_published_and_scores_its_own_relation_alone(tmp_path: Path) -> None:
    tables = labelled()
    sends = tables[SENDS]
    tables[SENDS] = sends.append_column("illicit", pa.array(np.arange(sends.num_rows) % 2))
    config = config_of(tmp_path, tables, task=EDGE, graph=EDGE_GRAPH)
    context = StageContext.of(config)
    run_pipeline(context)
    assert publish.run(context).promoted
    assert pq.read_table(score.run(context).predictions).num_rows == tables[PAYS].num_rows
    other = config_of(tmp_path, tables, target=SENDS, task=EDGE, graph={**EDGE_GRAPH})
    make_artifact(StageContext.of(other), "ingest")
    with pytest.raises(RegistryError, match=f"target is {SENDS}, the model was trained on {PAYS}"):
        score.run(StageContext.of(other))


def test_the_example_learns_which_payments_are_illicit(tmp_path: Path) -> None:
    section = write_typed_payments(str(tmp_path), num_nodes=1000, num_edges=10_000)
    config = load_config((REPOSITORY / "configs" / "payments_typed_edges.yaml").read_text(), environment={})
    content = config.model_dump(mode="json", exclude_none=True)
    content["graph"] |= {name: section[name] for name in ("nodes", "edges")} | {"partitions": 2}
    content |= {"workspace": str(tmp_path / "runs"), "cluster": {"kind": "synchronous"}}
    result = run_pipeline(StageContext.of(config_from_dict(content)))
    assert result.metrics["test.roc_auc"] > 0.85
    test = {"valid", "test"}
    assert set(content["infer"]["targets"]) == test


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"target": "account"}, r"graph.target: 'account' is a type of nodes, where task.kind is link"),
        ({"target": REVERSE}, rf"graph.target: '{REVERSE}' is not known: graph.edges has"),
        ({"task": {"kind": "node"}}, r"graph.target: 'account__pays__merchant' is a relation, and where task.kind is"),
        ({"task": EDGE, "graph": {"edge_features": ["label"]}}, r"graph.edge_features: 'label' is the column of"),
    ],
)
def test_a_target_that_is_not_of_the_task_is_refused(tmp_path: Path, sections: dict[str, Any], problem: str) -> None:
    if sections.get("task") == {"kind": "node"}:
        graph = {**write_tables(tmp_path, typed_tables()), "target": PAYS}
        with pytest.raises(ConfigError, match=problem):
            config_from_dict({"name": "bad", "graph": graph})
        return
    with pytest.raises(ConfigError, match=problem):
        config_of(tmp_path, typed_tables(), **sections)


def test_the_table_of_the_relation_must_have_what_the_task_reads(tmp_path: Path) -> None:
    config = config_of(tmp_path, labelled(times=True), target=USES, task={"split": {"kind": "time"}})
    with pytest.raises(TableError, match=r"account__uses__device.parquet.*no column 'timestamp'"):
        store_of(config)


def test_training_scores_a_held_out_pair_as_the_embeddings_of_graphinfer_do(linked: tuple[Config, Any, Path]) -> None:
    config, result, _ = linked
    context = StageContext.of(config)
    model, flat, store = load_model(context.artifact("train").uri), context.artifact("flat"), store_of(config)
    entries = [entry for entry in flat.facts(FlatFacts).shards if entry.split == "test"]
    task: Any = config.task
    made = outputs_on_pairs(
        model, entries, artifact=flat.uri, fanouts=None, train=config.train, task=task, seed=config.seed
    )
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


def test_embeddings_of_a_relation_of_a_type_with_itself_name_no_type(tmp_path: Path) -> None:
    tables = typed_tables(num_edges=300)
    found = predictions(run_pipeline(StageContext.of(config_of(tmp_path, tables, target=SENDS))))
    assert found.column_names == ["id", "embedding"]
    assert sorted(found["id"].to_pylist()) == sorted(tables["account"]["id"].to_pylist())


def test_a_batch_that_failed_is_kept_with_the_ids_and_features_of_what_its_edges_lead_to(tmp_path: Path) -> None:
    tables = typed_tables()
    config = config_of(tmp_path, tables, train={"lr": 1e30, "optimizer": "sgd", "epochs": 9})
    with pytest.raises(TrainingError, match="the training loss is"):
        run_pipeline(StageContext.of(config))
    (kept,) = tmp_path.glob("runs/failed/train/*/train.safetensors")
    batch = read_failed_batch(str(kept))
    merchants = {row["id"]: row["x_index"] for row in tables["merchant"].to_pylist()}
    offsets, index = (batch.tensors[f"features/{name}"].tolist() for name in ("offsets", "index"))
    for row, name in enumerate(batch.said["ids"]):
        assert index[offsets[row] : offsets[row + 1]] == merchants[name]


def test_by_time_a_table_that_may_list_the_same_edges_must_have_times(tmp_path: Path) -> None:
    tables = labelled(times=True)
    pays = tables[PAYS]
    tables["merchant__paid_by__account"] = pa.table({"src": pays["dst"], "dst": pays["src"]})
    graph = {"reverse_edges": False}
    config = config_of(tmp_path, tables, task={"split": {"kind": "time"}}, graph=graph)
    with pytest.raises(TableError, match=r"paid_by__account.parquet: has no column 'timestamp'.*once more"):
        store_of(config)
