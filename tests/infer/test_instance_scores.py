"""Scores over a selection of instances equal the plain definition on the whole graph, however the graph is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gnnflow.executions import minibatch, reference
from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, NodeFeatures, TypedFeatures
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.infer.job import InferJob
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.graph_store import features_of
from tests.graphflat.test_instances import cut
from tests.infer.test_instances import MODELS, TOLERANCE, prepare
from tests.instance_stores import KINDS, Instance, Selection, instance_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.instance_stores import Kind

pytest.importorskip("gnnflow.layers.levels", reason="layers that read leaves")


def whole_graph(selection: Selection) -> WholeGraph:
    """The whole graph in memory, its edges written out from the instances and not from files."""
    store = selection.store
    facts, nodes = store.facts, range(store.facts.num_nodes)
    widths = [each.attribute_width for each in facts.relations] or [facts.attribute_width]
    relations = []
    for number, width in enumerate(widths):
        lists = [selection.instances.get((number, node), []) for node in nodes]
        flat = [each for of in lists for each in of]
        relations.append(_edges(lists, flat, width=width, has_weight=facts.has_weight))
    edges = join_relations(relations)
    parts = [store.degrees(partition) for partition in range(store.num_partitions)]
    columns = [[getattr(each, name) for each in parts] for name in ("in_degree", "out_degree", "in_weight", "types")]
    degrees = Degrees(*(None if of[0] is None else np.concatenate(of) for of in columns))  # type: ignore[arg-type]
    return WholeGraph(Block(edges, facts.num_nodes), degrees, _features(selection, degrees))


def _edges(lists: list[list[Instance]], flat: list[Instance], *, width: int, has_weight: bool) -> InEdges:
    return InEdges(
        offsets_of(np.array([len(of) for of in lists], np.int64)),
        np.array([leaf for each in flat for leaf in each.leaves], np.int64),
        weight=np.array([each.weight for each in flat], np.float32) if has_weight else None,
        attributes=np.array([each.attributes for each in flat], np.float32).reshape(-1, width) if width else None,
        leaves=offsets_of(np.array([len(each.leaves) for each in flat], np.int64)),
    )


def _features(selection: Selection, degrees: Degrees) -> NodeFeatures:
    store, found = selection.store, list[Features | None]()
    for number, facts in enumerate(store.facts.features_of_types):
        if facts is None:
            found.append(None)
            continue
        columns = store.feature_columns_of(number)
        tables = [store.nodes(partition, columns, node_type=number) for partition in range(store.num_partitions)]
        parts = [features_of(each.combine_chunks(), facts) for each in tables]
        if parts[0].dense is not None:
            found.append(Features(facts.width, dense=np.concatenate([each.dense for each in parts])))  # type: ignore[misc]
            continue
        lengths = np.concatenate([np.diff(each.offsets) for each in parts])  # type: ignore[arg-type]
        index = np.concatenate([each.index for each in parts])  # type: ignore[misc]
        found.append(Features(facts.width, offsets=offsets_of(lengths), index=index))
    if degrees.types is None:
        assert found[0] is not None
        return found[0]
    return TypedFeatures(degrees.types, tuple(found))


def by_definition(job: InferJob, selection: Selection) -> np.ndarray:
    """Return the accounts' probabilities in dense id order."""
    store = selection.store
    accounts = np.flatnonzero(store.book.type_of(np.arange(store.facts.num_nodes)) == store.facts.target_type)
    with torch.no_grad():
        model = job.load_model()
        outputs = [rows[accounts] for rows in reference.layer_outputs(model, whole_graph(selection))]
        return torch.softmax(model.predict(outputs), 1).numpy()


@pytest.mark.table(8)
@pytest.mark.parametrize(("model", "partitions"), [*((model, 2) for model in MODELS), ("sage", 1), ("gat", 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_over_instances_equal_reference(tmp_path: Path, kind: Kind, model: str, partitions: int) -> None:
    selection = instance_store(tmp_path, kind, 7, partitions=partitions)
    job = prepare(tmp_path, selection, MODELS[model], parity_samples=9)
    scored = run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous())).parity
    store = selection.store
    accounts = np.flatnonzero(store.book.type_of(np.arange(store.facts.num_nodes)) == store.facts.target_type)
    wanted = dict(zip(accounts.tolist(), by_definition(job, selection), strict=True))
    assert len(scored) == 9
    assert max(np.abs(wanted[node] - each).max() for node, each in scored.items()) < TOLERANCE
    assert np.ptp(list(wanted.values()), 0).max() > 0.01, "all nodes score alike, so that nothing is compared"


@pytest.mark.table(12)
@pytest.mark.parametrize("model", ["sage", "gat"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_cut_by_graphflat_scores_as_reference(tmp_path: Path, kind: Kind, model: str) -> None:
    selection = instance_store(tmp_path, kind, 8, partitions=2)
    job = prepare(tmp_path, selection, MODELS[model])
    store = selection.store
    accounts = np.flatnonzero(store.book.type_of(np.arange(store.facts.num_nodes)) == store.facts.target_type)
    wanted = dict(zip(accounts.tolist(), by_definition(job, selection), strict=True))
    for shard in cut(selection, tmp_path, num_hops=2):
        batch = build_minibatch(shard.neighborhood, shard.rows, sampling=EVERY_EDGE, num_layers=2)
        with torch.no_grad():
            found = torch.softmax(minibatch.forward(job.load_model(), batch), 1).numpy()
        assert np.abs(found - [wanted[node] for node in shard.targets.tolist()]).max() < TOLERANCE
