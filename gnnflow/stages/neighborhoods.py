"""Cuts the neighbourhoods of some nodes out of a completed run's graph, as its training would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config import Config, config_from_dict
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import SelectFacts
from gnnflow.graphfeature.blocks import extract_rows
from gnnflow.graphfeature.neighborhood import Neighborhood, merge
from gnnflow.graphfeature.shards import read_shard
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds
from gnnflow.ingest.checks import near_id
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from gnnflow.progress import Silent
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import read_run
from gnnflow.storage.verified import expect_files

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray

AT_ONCE = 4096
"""Nodes whose neighbourhoods are cut in one pass over the partitions."""
_MOST_SHOWN = 10


@dataclass(frozen=True)
class RunGraph:
    """The graph of a completed run: its config and its neighbours."""

    config: Config
    neighbors: Neighbors

    @staticmethod
    def of(run: str) -> RunGraph:
        """Return the graph of the run in a folder. Raises StorageError where the run or its graph is not there."""
        record = read_run(run)
        config, artifacts = config_from_dict(record["config"]), record["artifacts"]
        select = artifacts["select"]
        kept = read_facts(select, read_manifest(select), SelectFacts).kept is not None
        store = GraphStore.of_run(artifacts[record["store"]], select)
        return RunGraph(config, Neighbors(store, select if kept else "", config.sampling))

    @cached_property
    def _held(self) -> list[pa.Array]:
        """The users' ids of the nodes of the target type, partition by partition."""
        store, kind = self.neighbors.store, self.config.graph.target_type
        return [combine(store.nodes(part, ["id"], node_type=kind)["id"]) for part in range(store.num_partitions)]

    def read_ids(self, ids: Sequence[Any]) -> pa.Array:
        """Return ids as the graph holds them. Raises TableError where they are of another type."""
        return _as_type(ids, self._held[0].type)

    def find(self, ids: Sequence[Any]) -> IntArray:
        """Return the dense id of each of the user's ids, of the target type.

        Raises TableError for ids that the graph does not have.
        """
        store, kind = self.neighbors.store, self.config.graph.target_type
        asked = self.read_ids(ids)
        found = np.full(len(asked), -1, np.int64)
        for part, own in enumerate(self._held):
            # the row of each asked id in this partition [n], null where it is elsewhere
            rows = pc.index_in(asked, value_set=own)
            here = to_numpy(pc.is_valid(rows))
            first = store.book.start(part) + store.book.rows(part, kind).start
            found[here] = first + to_numpy(rows.drop_null())
        missing = asked.filter(pa.array(found < 0))
        if len(missing):
            raise self._unknown(missing)
        return found

    def _unknown(self, missing: pa.Array) -> TableError:
        near = "" if pa.types.is_integer(missing.type) else near_id(missing.slice(0, 1), iter(self._held))
        shown = ", ".join(map(repr, missing.slice(0, _MOST_SHOWN).to_pylist()))
        more = f" and {len(missing) - _MOST_SHOWN} others" if len(missing) > _MOST_SHOWN else ""
        return TableError(
            f"{'id' if len(missing) == 1 else 'ids'} {shown}{more}: not in the graph",
            where="ids",
            fix=near or "Give ids of the node table.",
        )

    def cut(self, targets: IntArray) -> tuple[Neighborhood, Array | None]:
        """Return the merged neighbourhood of distinct nodes, given by dense ids, and their labels, if any."""
        order = np.argsort(targets)
        with TemporaryDirectory(prefix="gnnflow-") as folder:
            runner = RoundRunner(folder, Synchronous(), Silent(), artifact=folder)
            job = FlatJob(folder, self.neighbors, self.config.model.layers, "shared", targets[order])
            result = run_rounds(job, runner, shard_size=len(targets))
            expect_files(folder, result.files)
            shards = [read_shard(folder, entry) for entry in result.facts.shards]
        whole = merge([shard.neighborhood for shard in shards])
        # the place of each target among the targets of all shards [T]
        held = np.concatenate([shard.targets for shard in shards])
        places = np.argsort(held)[np.argsort(order)]
        labels = [shard.labels for shard in shards if shard.labels is not None]
        roots = np.searchsorted(whole.node_ids, targets)
        return replace(whole, roots=roots), np.concatenate(labels)[places] if labels else None


@dataclass(frozen=True)
class Cut:
    """The merged neighbourhood of a batch of B nodes, its roots, with their ids and labels [B, ...], if any."""

    graph: RunGraph
    ids: Sequence[Any]
    neighborhood: Neighborhood
    labels: Array | None


def cut_batches(run: str, ids: Sequence[Any], *, batch_size: int) -> Iterator[Cut]:
    """Yield the neighbourhoods of nodes, batch by batch in the order given. A repeated id counts once.

    Partitions are read once for many batches. Raises TableError for an id that the graph does not have.
    """
    graph = RunGraph.of(run)
    asked = list(dict.fromkeys(ids))
    targets = graph.find(asked)
    size = max(1, AT_ONCE // batch_size) * batch_size
    for start in range(0, len(asked), size):
        whole, labels = graph.cut(targets[start : start + size])
        for first in range(0, len(whole.roots), batch_size):
            own = slice(first, first + batch_size)
            rows = whole.roots[own]
            parts = extract_rows(whole, rows, sampling=graph.neighbors.sampling, num_layers=graph.config.model.layers)
            named = asked[start + first : start + first + len(rows)]
            yield Cut(graph, named, merge([parts.neighborhood]), None if labels is None else labels[own])


def _as_type(ids: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return ids in a type. Raises TableError where they are not of it."""
    try:
        given = pa.array(list(ids))
        # an id of a command line is text
        if pa.types.is_integer(given.type) or pa.types.is_string(given.type) or not pa.types.is_integer(kind):
            return given.cast(kind)
    except (pa.ArrowException, TypeError):
        pass
    raise TableError(f"the ids are not {kind}, as in the graph", where="ids", fix="Give them as the node table does.")
