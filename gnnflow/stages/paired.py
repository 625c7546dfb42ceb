"""Finds by how much chance moves the difference between a model's score and a baseline's on the same test targets.

A target that is hard for both moves both scores alike, so their difference varies less than two intervals say. Each
target's influence on a metric is known for both; the difference of these is its influence on the difference of scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.labels import LABEL_KINDS, NOISE
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.storage.tables import read_artifact_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.stages.base import ArtifactResult
    from gnnflow.storage.graph_store import GraphStore

TEST_SCORES = "test.parquet"
"""File of the stage of baselines: the scored test targets `node`, their `label`, and a column of outputs for each."""
_MOST_NODES = 1_000_000  # of the graph, whose ids are read; the noise of larger ones is small
_FEWEST = 30  # targets: influences of fewer tell no interval, and of one they are 0
_LEAST = 1e-9  # a probability, before its logarithm


def paired_noise(store: GraphStore, scored: ArtifactResult, compared: ArtifactResult) -> dict[str, float]:
    """Return the noise of each difference on test by `<baseline>.test.<metric>_noise`; none where it is not known.

    scored, compared: the artifacts of infer and of baselines. Only where both scored all test targets.
    """
    from gnnflow.train.intervals import influences_of, noise_of

    facts = store.facts
    if facts.num_nodes > _MOST_NODES or TEST_SCORES not in {entry.name for entry in compared.manifest.files}:
        return {}
    table = read_artifact_table(compared.artifact, TEST_SCORES)
    if table.num_rows < _FEWEST or table.num_rows != facts.splits.get("test", 0):
        return {}
    logits = _scores(store, scored, to_numpy(table["node"]))
    if logits is None:
        return {}
    labels = to_numpy(table["label"])
    own = influences_of(logits, labels, label_kind=facts.label_kind)
    found: dict[str, float] = {}
    for kind in [name for name in table.column_names if name not in {"node", "label"}]:
        other = influences_of(to_matrix(table[kind]), labels, label_kind=facts.label_kind)
        found |= {f"{kind}.test.{name}{NOISE}": noise_of(own[name] - other[name]) for name in own.keys() & other.keys()}
    return dict(sorted(found.items()))


def _scores(store: GraphStore, scored: ArtifactResult, nodes: IntArray) -> FloatArray | None:
    """Return the model's outputs of some target nodes [N, C], up to a constant; None where one was not scored."""
    files = {int(entry.name.rsplit("-", 1)[-1].split(".")[0]): entry.name for entry in scored.manifest.files}
    owners, traits = store.book.owner(nodes), LABEL_KINDS[store.facts.label_kind]
    found: FloatArray | None = None
    for partition in np.unique(owners):
        if int(partition) not in files:
            return None
        known = store.nodes(int(partition), ["node", "id"], node_type=store.facts.target_type)
        predicted = read_artifact_table(scored.artifact, files[int(partition)])
        rows = np.flatnonzero(owners == partition)
        ids = known["id"].combine_chunks().take(pa.array(np.searchsorted(to_numpy(known["node"]), nodes[rows])))
        held = predicted["id"].combine_chunks()
        places = pc.index_in(ids.cast(held.type), value_set=held)
        if places.null_count:
            return None
        taken = predicted.take(places)
        scores = taken[traits.columns[-1]]
        values = np.log(np.maximum(to_matrix(scores), _LEAST)) if traits.has_classes else to_numpy(scores)[:, None]
        found = np.zeros((len(nodes), values.shape[1]), np.float32) if found is None else found
        found[rows] = values
    return found
