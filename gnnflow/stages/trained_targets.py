"""The targets that a published model was trained on or chosen by, by the user's ids, from its training's graph store.

The split of later tables says nothing about them: a draw puts most of next month's rows in train, though the model saw
none of them, and a row that it learned may be called test there. So metrics of scored tables leave out the ids that
training had in train, and the ones in valid where others have labels. An edge is known by its two ends: the model
learned the label of that pair.

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

    from gnnflow.graph.arrays import IntArray
    from gnnflow.registry import Version

TRAIN, VALID = SPLITS.index("train"), SPLITS.index("valid")


class TrainedTargets:
    """The targets of train and valid, which can be looked up by the columns of predictions that name them.

    ids: by column, `id` of nodes, or `src` and `dst` of edges. splits: of each target, as a place in SPLITS.
    """

    def __init__(self, ids: Mapping[str, Any], splits: IntArray) -> None:
        self._ids = {name: pc.unique(column) for name, column in ids.items()}
        numbers = self._numbered(ids)
        # of a pair in both splits the first counts: it was learned
        order = np.lexsort((splits, numbers))
        self._keys, first = np.unique(numbers[order], return_index=True)
        self._splits = splits[order][first]

    def splits_of(self, predictions: pa.Table) -> IntArray:
        """Return the split that training had each prediction's target in [n]: TRAIN, VALID, or -1 for neither."""
        found = self._numbered({name: combine(predictions[name]) for name in self._ids})
        if not len(self._keys):
            return np.full(len(found), -1)
        at = np.minimum(np.searchsorted(self._keys, found), len(self._keys) - 1)
        return np.where(self._keys[at] == found, self._splits[at], -1)

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
    """Return the targets that a version was trained on or chosen by; None where `training_store` finds none."""
    stored = training_store(version)
    if stored is None:
        return None
    store = GraphStore.of(stored.uri, stored.manifest)
    read = _seen_edges if store.facts.targets == "edges" else _seen_nodes
    ids, splits = zip(*(read(store, partition) for partition in range(store.num_partitions)), strict=True)
    return TrainedTargets(
        {name: pa.concat_arrays([part[name] for part in ids]) for name in ids[0]}, np.concatenate(splits)
    )


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


def _seen_nodes(store: GraphStore, partition: int) -> tuple[dict[str, Any], IntArray]:
    """Return the ids of a partition's targets of train and valid, and their splits."""
    nodes, splits = _seen(store.nodes(partition, ["id", "split"], node_type=store.facts.target_type))
    return {"id": as_ids(combine(nodes["id"]), store.facts.id_type_of_targets)}, splits


def _seen_edges(store: GraphStore, partition: int) -> tuple[dict[str, Any], IntArray]:
    """Return the ends of a partition's edges of train and valid, and their splits."""
    edges, splits = _seen(store.pairs(partition, ["src", "dst", "split"]))
    ends = zip(("src", "dst"), store.facts.pair_types, store.facts.id_types_of_pairs, strict=True)
    return {name: _ids(store, to_numpy(edges[name]), node_type, id_type) for name, node_type, id_type in ends}, splits


def _seen(targets: pa.Table) -> tuple[pa.Table, IntArray]:
    splits = to_numpy(targets["split"]).astype(np.int64)
    is_seen = np.isin(splits, (TRAIN, VALID))
    return targets.filter(pa.array(is_seen)), splits[is_seen]


def _ids(store: GraphStore, nodes: IntArray, node_type: int, id_type: Any) -> Any:
    return as_ids(combine(store.take_nodes(nodes, ["id"], node_type=node_type)["id"]), id_type)
