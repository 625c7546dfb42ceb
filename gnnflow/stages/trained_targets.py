"""The targets that a published model was trained on or chosen by, from the graph store of its training.

The split of later tables says nothing about them: a draw puts most of next month's rows in train, though the model saw
none of them, and a row that it learned may be called test there. So metrics of scored tables leave out the ids that
training had in train, and the ones in valid where others have labels. An edge is known by its two ends, and by its time
and its attributes where the graph has them: the next payment between the same accounts is another target.

Shapes: n targets.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config import STAGES
from gnnflow.graph.errors import StorageError
from gnnflow.graph.hashing import combine as hash_pairs
from gnnflow.graph.hashing import hash_bytes, hash_integers
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.columns import as_ids, combine, to_matrix, to_numpy
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.registry import Version

TRAIN, VALID = SPLITS.index("train"), SPLITS.index("valid")


class TrainedTargets:
    """The targets of train and valid, which can be looked up by the columns of predictions that name them.

    ids: by column, `id` of nodes, or `src` and `dst` of edges. splits: of each target, as a place in SPLITS. values: of
    each edge, as `SeenValues` has them; None for nodes.
    """

    def __init__(self, ids: Mapping[str, Any], splits: IntArray, values: KeyArray | None = None) -> None:
        self._ids = {name: pc.unique(column) for name, column in ids.items()}
        keys = _keys(self._numbered(ids), values)
        # of a target in both splits the first counts: it was learned
        order = np.lexsort((splits, keys))
        self._keys, first = np.unique(keys[order], return_index=True)
        self._splits = splits[order][first]

    def splits_of(self, predictions: pa.Table, values: KeyArray | None = None) -> IntArray:
        """Return the split that training had each prediction's target in [n]: TRAIN, VALID, or -1 for neither."""
        numbers = self._numbered({name: combine(predictions[name]) for name in self._ids})
        if not len(self._keys):
            return np.full(len(numbers), -1)
        found = _keys(numbers, values)
        at = np.minimum(np.searchsorted(self._keys, found), len(self._keys) - 1)
        return np.where((self._keys[at] == found) & (numbers >= 0), self._splits[at], -1)

    def _numbered(self, ids: Mapping[str, Any]) -> IntArray:
        """Return one number for the ids of each target [n]; -1 where one of them is not known."""
        numbers: Any = np.zeros(1, np.int64)
        is_known: Any = np.ones(1, bool)
        for name, known in self._ids.items():
            place = pc.index_in(ids[name].cast(known.type), value_set=known)
            numbers = numbers * len(known) + to_numpy(place.fill_null(0)).astype(np.int64)
            is_known = is_known & to_numpy(pc.is_valid(place))
        return np.where(is_known, numbers, -1)


def _keys(numbers: IntArray, values: KeyArray | None) -> KeyArray:
    keys = hash_integers(numbers)
    return keys if values is None else hash_pairs(keys, values)


@dataclass(frozen=True)
class SeenValues:
    """The times and attributes of scored edges, by which two edges of the same ends differ.

    targets: the splits whose edges are scored, as `infer.targets` has them. columns: of these values, which the graph
    of training has too.
    """

    store: GraphStore
    targets: Literal["all"] | tuple[str, ...]
    columns: tuple[str, ...]

    def of(self, file: str) -> KeyArray | None:
        """Return a key of each row in a file of predictions; None where the targets are nodes."""
        from gnnflow.infer.pairs import scored_edges

        if self.store.facts.targets != "edges":
            return None
        partition = int(file.rsplit("-", 1)[-1].partition(".")[0])
        pairs = self.store.pairs(partition, ["split", *self.columns])
        asked = self.targets if self.targets == "all" else tuple(SPLITS.index(split) for split in self.targets)
        return _value_keys(pairs.take(pa.array(scored_edges(pairs, asked))))


def value_columns(*stores: GraphStore) -> tuple[str, ...]:
    """Return the columns by which edges of the same ends differ, that all of these graphs have."""
    return tuple(name for name in ("time", "attributes") if all(name in store.pair_columns for store in stores))


def _value_keys(pairs: pa.Table) -> KeyArray:
    """Return a hash of each edge's time and attributes, the same for all where it has none."""
    columns = []
    if "time" in pairs.column_names:
        columns.append(to_numpy(pairs["time"])[:, None])
    if "attributes" in pairs.column_names:
        columns.append(to_matrix(pairs["attributes"]))
    # the bytes of each row [n, B]
    parts = [np.ascontiguousarray(each).view(np.uint8).reshape(pairs.num_rows, -1) for each in columns]
    content = np.concatenate([np.zeros((pairs.num_rows, 0), np.uint8), *parts], axis=1)
    return hash_bytes(content.ravel(), np.arange(pairs.num_rows + 1) * content.shape[1])


def trained_targets(store: GraphStore, columns: Sequence[str]) -> TrainedTargets:
    """Return the targets that a model was trained on or chosen by. store: of training; columns: of edges' values."""
    are_edges = store.facts.targets == "edges"
    parts = [
        _seen_edges(store, partition, columns) if are_edges else _seen_nodes(store, partition)
        for partition in range(store.num_partitions)
    ]
    ids = {name: pa.concat_arrays([part.ids[name] for part in parts]) for name in parts[0].ids}
    values = [part.values for part in parts if part.values is not None]
    splits = np.concatenate([part.splits for part in parts])
    return TrainedTargets(ids, splits, np.concatenate(values) if values else None)


def training_store(version: Version) -> GraphStore | None:
    """Return the graph store of a version's training; None where it is gone, or of another version of gnnflow."""
    writers = [stage for stage in STAGES if STAGES[stage].writes_store and stage in version.artifacts]
    uri = version.artifacts[writers[-1]]
    if not committed(uri):
        return None
    with suppress(StorageError):
        return GraphStore.of(uri, read_manifest(uri))
    return None


@dataclass(frozen=True)
class _Seen:
    """A partition's targets of train and valid: the ids by column, the splits, and of edges the keys of values."""

    ids: dict[str, Any]
    splits: IntArray
    values: KeyArray | None = None


def _seen_nodes(store: GraphStore, partition: int) -> _Seen:
    nodes, splits = _seen(store.nodes(partition, ["id", "split"], node_type=store.facts.target_type))
    return _Seen({"id": as_ids(combine(nodes["id"]), store.facts.id_type_of_targets)}, splits)


def _seen_edges(store: GraphStore, partition: int, columns: Sequence[str]) -> _Seen:
    edges, splits = _seen(store.pairs(partition, ["src", "dst", "split", *columns]))
    ends = zip(("src", "dst"), store.facts.pair_types, store.facts.id_types_of_pairs, strict=True)
    ids = {name: _ids(store, to_numpy(edges[name]), node_type, id_type) for name, node_type, id_type in ends}
    return _Seen(ids, splits, _value_keys(edges))


def _seen(targets: pa.Table) -> tuple[pa.Table, IntArray]:
    splits = to_numpy(targets["split"]).astype(np.int64)
    is_seen = np.isin(splits, (TRAIN, VALID))
    return targets.filter(pa.array(is_seen)), splits[is_seen]


def _ids(store: GraphStore, nodes: IntArray, node_type: int, id_type: Any) -> Any:
    return as_ids(combine(store.take_nodes(nodes, ["id"], node_type=node_type)["id"]), id_type)
