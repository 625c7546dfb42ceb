"""The targets that a published model was trained on, by the user's ids, from the graph store of its training.

The split of later tables says nothing about them: a draw puts most of next month's rows in train, though the model saw
none of them, and a row that it learned may be called test there. So metrics of scored tables leave out the ids that
training had, and nothing else. An edge is known by its two ends: the model learned the label of that pair.

Shapes: n targets.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config import STAGES
from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.stages.base import Artifact
from gnnflow.storage.columns import as_ids, combine, to_numpy
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.graph.arrays import BoolArray, IntArray
    from gnnflow.registry import Version

_TRAIN = SPLITS.index("train")


class TrainedTargets:
    """Targets that can be looked up by the columns of predictions that name them.

    ids: by column, `id` of nodes, or `src` and `dst` of edges.
    """

    def __init__(self, ids: Mapping[str, Any]) -> None:
        self._ids = {name: pc.unique(column) for name, column in ids.items()}
        self._keys = np.unique(self._numbered(ids))

    def among(self, predictions: pa.Table) -> BoolArray:
        """Return which predictions are of these targets [n]."""
        found = self._numbered({name: combine(predictions[name]) for name in self._ids})
        return np.isin(found, self._keys) & (found >= 0)

    def _numbered(self, ids: Mapping[str, Any]) -> IntArray:
        """Return one number for the ids of each target [n]; -1 where one of them is not known."""
        numbers: Any = np.zeros(1, np.int64)
        is_known: Any = np.ones(1, bool)
        for name, known in self._ids.items():
            place = pc.index_in(ids[name].cast(known.type), value_set=known)
            numbers = numbers * len(known) + to_numpy(place.fill_null(0)).astype(np.int64)
            is_known = is_known & to_numpy(pc.is_valid(place))
        return np.where(is_known, numbers, -1)


def trained_targets(version: Version) -> TrainedTargets | None:
    """Return the targets that a version was trained on; None where `training_store` finds none."""
    stored = training_store(version)
    if stored is None:
        return None
    store = GraphStore.of(stored.uri, stored.manifest)
    read = _train_edges if store.facts.targets == "edges" else _train_nodes
    parts = [read(store, partition) for partition in range(store.num_partitions)]
    return TrainedTargets({name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]})


def training_store(version: Version) -> Artifact | None:
    """Return the graph store of a version's training; None where it is gone, or of another version of gnnflow."""
    writers = [stage for stage in STAGES if STAGES[stage].writes_store and stage in version.artifacts]
    uri = version.artifacts[writers[-1]]
    if not committed(uri):
        return None
    with suppress(StorageError):
        stored = Artifact(uri, read_manifest(uri))
        stored.facts(GraphFacts)
        return stored
    return None


def _train_nodes(store: GraphStore, partition: int) -> dict[str, Any]:
    nodes = store.nodes(partition, ["id", "split"], node_type=store.facts.target_type)
    ids = as_ids(combine(nodes["id"]), store.facts.id_type_of_targets)
    return {"id": ids.filter(pa.array(to_numpy(nodes["split"]) == _TRAIN))}


def _train_edges(store: GraphStore, partition: int) -> dict[str, Any]:
    edges = store.pairs(partition, ["src", "dst", "split"])
    edges = edges.filter(pa.array(to_numpy(edges["split"]) == _TRAIN))
    ends = zip(("src", "dst"), store.facts.pair_types, store.facts.id_types_of_pairs, strict=True)
    return {name: _ids(store, to_numpy(edges[name]), node_type, id_type) for name, node_type, id_type in ends}


def _ids(store: GraphStore, nodes: IntArray, node_type: int, id_type: Any) -> Any:
    return as_ids(combine(store.take_nodes(nodes, ["id"], node_type=node_type)["id"]), id_type)
