"""GraphInfer on typed graphs equals the plain definition on the whole graph, and asks for a node where it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.executions import minibatch, reference
from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.batch import Block, Degrees, TypedFeatures, sampled_block
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.infer.choice import Exchange
from gnnflow.infer.job import InferJob
from gnnflow.infer.need import plan_need
from gnnflow.infer.run import run_rounds
from gnnflow.infer.states import layer_bytes
from gnnflow.layers import ModelInputs, TypedInputs, build_model
from gnnflow.layers.saved import encode_weights, save_model
from gnnflow.mapreduce.exchange import Inbox
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.storage.graph_store import features_of
from gnnflow.storage.tables import read_table
from tests.graphflat.test_typed import cut
from tests.neighbors.test_typed import selected
from tests.typed_stores import BIPARTITE, KNOWN, PAYMENTS, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.graph.sampling import Fanout
    from gnnflow.neighbors.selected import Neighbors

TOLERANCE = 1e-5
KINDS: dict[str, dict[str, Any]] = {
    "sage": {"kind": "sage"},
    "gcn": {"kind": "gcn"},
    "gat": {"kind": "gat", "heads": 2, "across": "mean"},
    "gat_e": {"kind": "gat_e", "heads": 2, "across": "max"},
    "rgcn": {"kind": "rgcn", "bases": 2},
    "han": {"kind": "han", "heads": 2},
    "hgt": {"kind": "hgt", "heads": 2},
}
RICH = {"kind": "sage", "head": "jumping", "layers": 3, "norm": "layer", "residual": True}
Sampling = tuple[str, "tuple[Fanout, ...] | None"]
SAMPLINGS: dict[str, Sampling] = {
    "none": ("none", None),
    "uniform": ("uniform", (3, 2, 2)),
    "by relation": ("uniform", ((2, 1, 3, 1, 2), (1, 2, 1, 4, 2), (1, 1, 2, 2, 1))),
    "weighted": ("weighted", (2, 3, 2)),
    "top_k": ("top_k", (3, 1, 2)),
}


def prepare(
    folder: Path,
    model: dict[str, Any],
    *,
    schema: Any = PAYMENTS,
    sampling: str = "none",
    partitions: int = 2,
    **changes: Any,
) -> InferJob:
    """Return the job that scores a random typed graph, with a node of each type that receives many edges."""
    store = write_store(folder / "store", random_tables(schema, 3, hub=2), partitions=partitions)
    config = model_from_dict({"hidden": 6, "dropout": 0.3, **model})
    facts = store.facts
    inputs = ModelInputs(
        feature_width=facts.features.width,
        num_outputs=2,
        attribute_width=facts.attribute_width,
        typed=TypedInputs.of(facts.schema, facts.features_of_types),
    )
    torch.manual_seed(1)
    save_model(str(folder / "model"), config, inputs, weights=encode_weights(build_model(config, inputs).state_dict()))
    kind, fanouts = SAMPLINGS[sampling]
    job = InferJob(
        artifact=str(folder / "artifact"),
        neighbors=selected(store, folder, kind, fanouts and fanouts[: config.layers]),
        model=str(folder / "model"),
        num_layers=config.layers,
        label_kind="single",
        targets="all",
        embeddings=False,
        parity_samples=0,
        seed=5,
    )
    return replace(job, **changes)


def predictions(job: InferJob, folder: Path) -> pa.Table:
    result = run_rounds(job, RoundRunner(str(folder / "work"), Synchronous()))
    return pa.concat_tables([read_table(f"{job.artifact}/{entry.name}") for entry in result.files])


def whole_block(neighbors: Neighbors, degrees: Degrees, fanout: Any) -> Block:
    """Return the first so many in-edges of every node of the graph in every relation."""
    store = neighbors.store
    taken = []
    for partition in range(store.num_partitions):
        edges = neighbors.in_edges(partition)
        picked = edges.prefix(np.arange(edges.num_targets), limit=fanout)
        taken.append(edges.take(picked.positions, offsets=picked.offsets))
    relations = range(store.schema.num_relations)
    return sampled_block(
        join_relations([_end_to_end([each.relation(number) for each in taken]) for number in relations]),
        num_sources=store.facts.num_nodes,
        in_degree=degrees.in_degree,
        sampling=neighbors.sampling.kind,
    )


def _end_to_end(parts: list[InEdges]) -> InEdges:
    columns = ("sources", "weight", "attributes", "next_arrival")
    joined = {
        name: None if getattr(parts[0], name) is None else np.concatenate([getattr(each, name) for each in parts])
        for name in columns
    }
    lengths = np.concatenate([each.lengths for each in parts])
    return InEdges(offsets=np.concatenate([[0], np.cumsum(lengths)]), **joined)


def by_definition(job: InferJob) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Return ids, probabilities and embeddings of all accounts in dense id order, from the whole graph in memory."""
    store = job.neighbors.store
    parts = range(store.num_partitions)
    each = [store.degrees(partition) for partition in parts]
    names = ("in_degree", "out_degree", "in_weight", "types")
    degrees = Degrees(*(np.concatenate([getattr(of, name) for of in each]) for name in names))
    features = []
    for number, facts in enumerate(store.facts.features_of_types):
        columns = ["id", *store.feature_columns_of(number)]
        table = pa.concat_tables([store.nodes(p, columns, node_type=number) for p in parts]).combine_chunks()
        features.append(features_of(table, facts) if facts else None)
        if store.schema.types[number] == "account":
            ids = table["id"].to_pylist()
    graph = WholeGraph(
        whole_block(job.neighbors, degrees, None), degrees, TypedFeatures(degrees.types, tuple(features))
    )
    sampled = [whole_block(job.neighbors, degrees, job.fanout(layer + 1)) for layer in range(job.num_layers)]
    accounts = np.flatnonzero(degrees.types == store.facts.target_type)
    with torch.no_grad():
        model = job.load_model()
        outputs = [rows[accounts] for rows in reference.layer_outputs(model, graph, sampled=sampled)]
        return ids, torch.softmax(model.predict(outputs), 1).numpy(), model.embedding(outputs).numpy()


def assert_as_defined(job: InferJob, table: pa.Table) -> None:
    ids, scores, _ = by_definition(job)
    assert table["id"].to_pylist() == ids
    assert np.abs(to_matrix(table["probabilities"]) - scores).max() < TOLERANCE
    assert np.ptp(scores, 0).max() > 0.01, "all nodes score alike, so that nothing is compared"


@pytest.mark.table(46)
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("sampling", ["none", "uniform"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer_equals_reference(tmp_path: Path, kind: str, sampling: str, partitions: int) -> None:
    job = prepare(tmp_path, KINDS[kind], sampling=sampling, partitions=partitions)
    assert_as_defined(job, predictions(job, tmp_path))


@pytest.mark.table(10)
@pytest.mark.parametrize("sampling", ["by relation", "weighted", "top_k"])
@pytest.mark.parametrize("kind", ["sage", "hgt"])
def test_every_way_of_sampling_equals_reference(tmp_path: Path, kind: str, sampling: str) -> None:
    job = prepare(tmp_path, KINDS[kind], sampling=sampling, partitions=3)
    assert_as_defined(job, predictions(job, tmp_path))


@pytest.mark.table(10)
@pytest.mark.parametrize("sampling", ["none", "uniform"])
@pytest.mark.parametrize("schema", [BIPARTITE, KNOWN], ids=["one relation", "one type"])
@pytest.mark.parametrize("kind", ["sage", "gat", "rgcn", "hgt"])
def test_one_relation_or_one_type_equals_reference(tmp_path: Path, kind: str, schema: Any, sampling: str) -> None:
    job = prepare(tmp_path, KINDS[kind], schema=schema, sampling=sampling, partitions=3)
    assert_as_defined(job, predictions(job, tmp_path))


@pytest.mark.table(4)
@pytest.mark.parametrize("sampling", ["none", "by relation"])
def test_a_split_is_scored_alone_with_its_embeddings(tmp_path: Path, sampling: str) -> None:
    job = prepare(tmp_path, RICH, sampling=sampling, partitions=3, targets=(1, 2), embeddings=True)
    table = predictions(job, tmp_path)
    ids, scores, embeddings = by_definition(job)
    store = job.neighbors.store
    split = np.concatenate([to_numpy(store.nodes(p, ["split"], node_type=0)["split"]) for p in range(3)])
    rows = np.flatnonzero(np.isin(split, (1, 2)))
    assert table["id"].to_pylist() == [ids[row] for row in rows]
    assert np.abs(to_matrix(table["probabilities"]) - scores[rows]).max() < TOLERANCE
    assert np.abs(to_matrix(table["embedding"]) - embeddings[rows]).max() < TOLERANCE


@pytest.mark.table(6)
@pytest.mark.parametrize("kind", ["sage", "han", "hgt"])
def test_it_scores_as_a_batch_of_the_same_neighbourhoods(tmp_path: Path, kind: str) -> None:
    job = prepare(tmp_path, KINDS[kind], sampling="by relation", partitions=3, parity_samples=9)
    scored = run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous())).parity
    assert len(scored) == 9
    for shard in cut(job.neighbors, tmp_path, targets=np.array(sorted(scored))):
        batch = build_minibatch(shard.neighborhood, shard.rows, sampling=job.neighbors.sampling, num_layers=2)
        with torch.no_grad():
            again = torch.softmax(minibatch.forward(job.load_model(), batch), 1).numpy()
        assert np.abs(again - [scored.pop(node) for node in shard.targets.tolist()]).max() < TOLERANCE
    assert not scored


@pytest.mark.slow
def test_partitions_may_lack_nodes_of_a_type_or_any(tmp_path: Path) -> None:
    job = prepare(tmp_path, KINDS["hgt"], sampling="uniform", partitions=16)
    sizes = np.diff(job.neighbors.store.facts.offsets).reshape(16, 3)
    assert (sizes.sum(1) == 0).any()
    assert ((sizes[:, 0] == 0) & (sizes.sum(1) > 0)).any()
    assert_as_defined(job, predictions(job, tmp_path))


def test_predictions_are_of_the_same_nodes_whatever_the_partitions(tmp_path: Path) -> None:
    found = []
    for partitions in (1, 3):
        job = prepare(tmp_path / str(partitions), KINDS["rgcn"], sampling="uniform", partitions=partitions)
        table = predictions(job, tmp_path / str(partitions)).sort_by("id")
        found.append((table["id"].to_pylist(), to_matrix(table["probabilities"])))
    assert found[0][0] == found[1][0]
    assert np.abs(found[0][1] - found[1][1]).max() < TOLERANCE


def test_a_source_is_asked_for_once_in_each_relation_that_reads_it(tmp_path: Path) -> None:
    job = prepare(tmp_path, KINDS["sage"], partitions=3, targets=(1,))
    store = job.neighbors.store
    layers = layer_bytes(job.load_model(), leaves=store.facts.leaves_of_relations, columns=job.edge_columns)
    job = replace(job, exchange=Exchange(layers=layers))
    for partition in range(3):
        output = plan_need(partition, Inbox(str(tmp_path), partition, {}), job=job, layer=job.num_layers)
        asked, rows, _ = output.emits
        split = to_numpy(store.nodes(partition, ["split"], node_type=0)["split"])
        assert rows.rows["row"].to_pylist() == np.flatnonzero(split == 1).tolist()
        wanted = set()
        for relation in range(store.schema.num_relations):
            table = store.edges(partition, ["dst", "src"], relation=relation).to_pydict()
            for target, source in zip(table["dst"], table["src"], strict=True):
                own = [store.book.start(partition) + row for row in rows.rows["row"].to_pylist()]
                if target in own and source not in own:
                    wanted.add((relation, source))
        pairs = list(zip(asked.rows["relation"].to_pylist(), asked.rows["node"].to_pylist(), strict=True))
        assert pairs == sorted(wanted)
        assert asked.destination.tolist() == store.book.owner(to_numpy(asked.rows["node"])).tolist()
