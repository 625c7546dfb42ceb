"""Measures what needs the scores of a model and of a baseline for the same test targets.

A target that is hard for both moves both scores alike, so their difference varies less than two intervals say. Each
target's influence on a metric is known for both; the difference of these is its influence on the difference of scores.
A model's links are scored once more, by its embeddings and its decoder, among the candidates that the baselines ranked:
so both show how many distinct targets they rank high.

Shapes: N test targets, C outputs (of links the candidates of each, its own target first).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config.task_section import measured_class
from gnnflow.graph.arrays import find_places
from gnnflow.graph.labels import LABEL_KINDS, NOISE
from gnnflow.graph.splits import SPLITS
from gnnflow.report.judging import PREFIX
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.storage.tables import read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gnnflow.config import Config
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.stages.base import ArtifactResult
    from gnnflow.storage.graph_store import GraphStore

TEST_SCORES = "test.parquet"
"""File of the stage of baselines: the scored test targets, and a column of outputs for each baseline.

Targets are a `node`, or `part` and `row` of an edge, each with its `label`; or `src` and `candidates` of a link.
"""
_MOST_NODES = 1_000_000  # of the graph, whose ids are read; the noise of larger ones is small
_LEAST = 1e-9  # a probability, before its logarithm
_SAME = 1e-3  # relative difference of a score that is computed twice, where rounding moves some ranks


def measure_pairs(
    config: Config, store: GraphStore, results: Mapping[str, ArtifactResult], metrics: Mapping[str, float]
) -> dict[str, float]:
    """Return more metrics of a run with baselines, by their keys.

    `baseline.<name>.test.<metric>_noise` is the noise of the difference on test, only where both scored all test
    targets. `test.items_at_10` are the distinct targets that a model of links ranks high, as the baselines have it.
    """
    from gnnflow.train.baselines import ITEMS_SHOWN, items_shown
    from gnnflow.train.intervals import influences_of
    from gnnflow.train.metrics import metrics_of
    from gnnflow.train.paired import paired_noise

    compared, facts = results["baselines"], store.facts
    if facts.num_nodes > _MOST_NODES or TEST_SCORES not in {entry.name for entry in compared.manifest.files}:
        return {}
    table = read_artifact_table(compared.artifact, TEST_SCORES)
    is_whole = table.num_rows == facts.splits.get("test", 0)
    kind, found = facts.label_kind, dict[str, float]()
    if config.task.kind == "link":
        logits, labels = _link_scores(store, results, table), np.zeros(table.num_rows, np.int64)
        found[f"test.{ITEMS_SHOWN}"] = items_shown(logits, to_matrix(table["candidates"], np.int64))
        # the run's own score may be among other candidates, or of embeddings without later edges
        again = metrics_of(logits, labels, label_kind=kind, names=["mrr"]).values["mrr"]
        is_whole = is_whole and math.isclose(again, metrics["test.mrr"], rel_tol=_SAME)
    elif is_whole:
        scored = _edge_scores if config.task.kind == "edge" else _node_scores
        held = scored(config, store, results["infer"], table)
        if held is None:
            return {}
        logits, labels = held, to_numpy(table["label"])
    if not is_whole:
        return found
    positive = measured_class(config.task, kind, facts.every_class_name)
    own = influences_of(logits, labels, label_kind=kind, positive=positive)
    for name in table.column_names:
        if name in {"node", "part", "row", "label", "src", "candidates"}:
            continue
        other = influences_of(to_matrix(table[name]), labels, label_kind=kind, positive=positive)
        noise = {metric: paired_noise(own[metric], other[metric]) for metric in sorted(own.keys() & other.keys())}
        found |= {f"{PREFIX}{name}.test.{metric}{NOISE}": each for metric, each in noise.items() if each is not None}
    return found


def _node_scores(config: Config, store: GraphStore, scored: ArtifactResult, table: pa.Table) -> FloatArray | None:
    """Return the model's outputs of test nodes [N, C], up to a constant; None where one was not scored."""
    nodes = to_numpy(table["node"])

    def places(partition: int, rows: IntArray, predicted: pa.Table) -> IntArray:
        known = store.nodes(partition, ["node", "id"], node_type=store.facts.target_type)
        ids = known["id"].combine_chunks().take(pa.array(np.searchsorted(to_numpy(known["node"]), nodes[rows])))
        held = predicted["id"].combine_chunks()
        return to_numpy(pc.fill_null(pc.index_in(ids.cast(held.type), value_set=held), -1))

    return _predicted(store, scored, store.book.owner(nodes), places)


def _edge_scores(config: Config, store: GraphStore, scored: ArtifactResult, table: pa.Table) -> FloatArray | None:
    """Return the model's outputs of test edges [N, C], up to a constant; None where one was not scored."""
    from gnnflow.infer.pairs import scored_edges

    asked = config.infer.targets
    targets = asked if asked == "all" else tuple(SPLITS.index(split) for split in asked)
    stored = to_numpy(table["row"])

    def places(partition: int, rows: IntArray, predicted: pa.Table) -> IntArray:
        return find_places(scored_edges(store.pairs(partition, ["split"]), targets), stored[rows])

    return _predicted(store, scored, to_numpy(table["part"]), places)


def _predicted(
    store: GraphStore,
    scored: ArtifactResult,
    owners: IntArray,
    places: Callable[[int, IntArray, pa.Table], IntArray],
) -> FloatArray | None:
    """Return the outputs in the predictions of targets that lie in these partitions [N]; None where one has none.

    places: the rows of a partition's predictions that some targets have, -1 for none.
    """
    files = {int(entry.name.rsplit("-", 1)[-1].split(".")[0]): entry.name for entry in scored.manifest.files}
    traits, found = LABEL_KINDS[store.facts.label_kind], None
    for partition in np.unique(owners).tolist():
        if partition not in files:
            return None
        predicted = read_artifact_table(scored.artifact, files[partition])
        rows = np.flatnonzero(owners == partition)
        at = places(partition, rows, predicted)
        if (at < 0).any():
            return None
        scores = predicted.take(pa.array(at))[traits.columns[-1]]
        values = np.log(np.maximum(to_matrix(scores), _LEAST)) if traits.has_classes else to_numpy(scores)[:, None]
        found = np.zeros((len(owners), values.shape[1]), np.float32) if found is None else found
        found[rows] = values
    return found


def _link_scores(store: GraphStore, results: Mapping[str, ArtifactResult], table: pa.Table) -> FloatArray:
    """Return the model's scores of the candidates of test links [N, C]."""
    from gnnflow.infer.lists import embeddings_of
    from gnnflow.infer.pairs import pair_logits
    from gnnflow.layers.saved import load_model

    sources, candidates = to_numpy(table["src"]), to_matrix(table["candidates"], np.int64)
    ends = [np.repeat(sources, candidates.shape[1]), candidates.ravel()]
    vectors, rows, first = [], [], 0
    for end, node_type in zip(ends, store.facts.pair_types, strict=True):
        nodes, place = np.unique(end, return_inverse=True)  # ascending, as partitions own them
        for partition, _, local in store.places_of(nodes, node_type=node_type):
            vectors.append(embeddings_of(store, results["infer"].artifact, partition, node_type)[local])
        rows.append(first + place)
        first += len(nodes)
    return pair_logits(load_model(results["train"].artifact), np.concatenate(vectors), rows).reshape(candidates.shape)
