"""Held-out and later edges: no score may come from the edge that it predicts, or from edges that come after it.

A pair and an edge between the same ends meet at the owner of the edge's target, so held-out pairs are read for some
partitions at a time: as many as keep them within `_MOST_HELD`.

Shapes: H held-out pairs in either direction, E edges of a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import find_places
from gnnflow.graph.findings import Finding
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.targets import EdgeTargets
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.verified import remedy

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.stages.audit_findings import AuditedRun
    from gnnflow.storage.graph_store import GraphStore

HELD_OUT, LATER = "held-out edges", "later edges"
_MOST_HELD = 20_000_000  # pairs with their times in memory: 320 MB, and as much again while they are put in order
_TRAIN = SPLITS.index("train")
_BY_NODE_TIME = (
    "task.split divides nodes by time, but hides no edges, and the store has no times of nodes: a target may see edges "
    "that are later than itself"
)
_BEFORE_TARGETS = "Compare with a run on edge tables that end before the first node of valid or test."
_SET_MESSAGES = "With task.messages: false each edge is scored as if it were not in the graph yet."
_CUT_LATER = (
    "each target is scored from edges before its own time, which is done where its neighbourhood is read: the store "
    "rightly has later ones"
)


def check_held_out(run: AuditedRun) -> Finding:
    """Look for held-out pairs of valid and test among the edges that carry messages, in either direction."""
    targets, facts = _targets_of(run), run.base.facts
    held = sum(facts.splits.get(name, 0) for name in SPLITS[1:])
    why = _not_held_out(targets, held)
    if targets is None or why:
        looked = "no edge" if targets is None else f"{held:,} held-out edges"
        return Finding(HELD_OUT, "not checked", looked, why, "" if targets is None or not held else _SET_MESSAGES)
    found = _Copies()
    for group in _groups(run.base.num_partitions, held):
        pairs = _read_held(run.base, group)
        for partition in group:
            for relation in range(run.base.schema.num_relations):
                found += _copies_in(run.base, partition, relation, pairs)
    looked = f"{held:,} held-out edges among {found.edges:,} edges that carry messages"
    if facts.copies_left_out:
        looked += f"; ingest left out {facts.copies_left_out:,} copies of edges of a later split"
    if targets.have_times:
        looked += f"; {found.earlier:,} earlier edges join the same ends, which is allowed"
    if not found.others:
        return Finding(HELD_OUT, "holds", looked)
    told = f"{found.others:,} edges that carry messages join the ends of a held-out edge"
    if targets.hides_copies:
        return Finding(HELD_OUT, "broken", looked, told, remedy(run.base.artifact))
    told += " and are not earlier than it"
    if targets.by_time:
        return Finding(HELD_OUT, "broken", looked, told, remedy(run.base.artifact))
    return Finding(HELD_OUT, "not checked", looked, f"{told}; {_CUT_LATER}")


def check_later(run: AuditedRun) -> Finding:
    """Look for edges that carry messages and are as late as the first held-out edge of a split by time."""
    targets, facts = _targets_of(run), run.base.facts
    if why := _not_by_time(run, targets):
        return Finding(LATER, "not checked", "no edge", why, _BEFORE_TARGETS if why is _BY_NODE_TIME else "")
    bound = _first_held(run.base)
    if bound is None:
        return Finding(LATER, "not checked", "no edge", "no edge is in valid or test")
    edges, late, untimed = 0, 0, 0
    for relation, has_time in enumerate(_have_times(facts)):
        for partition in range(run.base.num_partitions):
            for piece in run.base.iter_edges(partition, ["time"] if has_time else ["dst"], relation=relation):
                edges += piece.num_rows
                late += int(np.count_nonzero(to_numpy(piece["time"]) >= bound)) if has_time else 0
                untimed += 0 if has_time else piece.num_rows
    begins = ", ".join(f"{name} from {facts.split_times[name]}" for name in SPLITS if name in facts.split_times)
    looked = f"{edges:,} edges that carry messages against the first time that is held out ({begins})"
    if untimed:
        looked += f"; {untimed:,} of them have no time and are taken to be older than all"
    if not late:
        return Finding(LATER, "holds", looked)
    told = f"{late:,} edges that carry messages are as late as held-out ones"
    return Finding(LATER, "broken", looked, told, remedy(run.base.artifact))


def _targets_of(run: AuditedRun) -> EdgeTargets | None:
    return EdgeTargets.of(run.config.task, run.config.graph, seed=run.config.seed)


def _not_held_out(targets: EdgeTargets | None, held: int) -> str:
    """Return why no held-out edge is looked for; empty where one is."""
    if targets is None:
        return "targets are nodes"
    if targets.held_out_carry:
        return "task.messages is true: edges of valid and test carry messages, and only their labels are held out"
    return "" if held else "no edge is in valid or test"


def _not_by_time(run: AuditedRun, targets: EdgeTargets | None) -> str:
    """Return why edges are not compared with the first time that is held out; empty where they are."""
    if targets is None:
        return _BY_NODE_TIME if run.config.task.split.kind == "time" else "targets are nodes, and have no times"
    if not targets.have_times:
        return "edges have no times that the task reads (task.split.kind: time, or task.split.earlier_only)"
    return "" if targets.by_time and not targets.held_out_carry else _CUT_LATER


def _have_times(facts: GraphFacts) -> tuple[bool, ...]:
    """Return whether the edges of each relation have times."""
    return tuple(each.has_time for each in facts.relations) or (facts.has_time,)


def _first_held(store: GraphStore) -> int | None:
    """Return the first time of a held-out edge; None where there is none."""
    found: int | None = None
    for partition in range(store.num_partitions):
        pairs = store.pairs(partition, ["split", "time"])
        times = to_numpy(pairs["time"])[to_numpy(pairs["split"]) > _TRAIN]
        if len(times):
            found = int(times.min()) if found is None else min(found, int(times.min()))
    return found


def _groups(partitions: int, held: int) -> list[list[int]]:
    """Return the partitions in groups whose held-out pairs, in both directions, are in memory together."""
    count = min(partitions, 1 + 2 * held // _MOST_HELD)
    return [group.tolist() for group in np.array_split(np.arange(partitions), count)]


@dataclass(frozen=True)
class _Held:
    """Held-out pairs by direction: ends as one integer, ascending [H], and the time of each, if any.

    Of equal pairs the earliest comes first. joins: the types of source and target of the pair.
    """

    joins: tuple[int, int]
    keys: IntArray
    times: IntArray | None


def _read_held(store: GraphStore, group: list[int]) -> list[_Held]:
    """Return the held-out pairs that lead to some partitions, and the reverses that do."""
    source_type, target_type = store.facts.pair_types
    has_time, book = "time" in store.pair_columns, store.book
    found: dict[tuple[int, int], list[tuple[IntArray, IntArray]]] = {}
    for partition in range(store.num_partitions):
        pairs = store.pairs(partition, ["src", "dst", "split", *(["time"] if has_time else [])])
        held = to_numpy(pairs["split"]) > _TRAIN
        src, dst = (to_numpy(pairs[name])[held].astype(np.int64) for name in ("src", "dst"))
        times = to_numpy(pairs["time"])[held].astype(np.int64) if has_time else np.zeros(len(src), np.int64)
        for joins, ends in (((source_type, target_type), (src, dst)), ((target_type, source_type), (dst, src))):
            own = np.isin(book.owner(ends[1]), group)
            found.setdefault(joins, []).append((_keys(store, *(each[own] for each in ends)), times[own]))
    return [_in_order(joins, pieces, has_time=has_time) for joins, pieces in found.items()]


def _in_order(joins: tuple[int, int], pieces: list[tuple[IntArray, IntArray]], *, has_time: bool) -> _Held:
    keys, times = (np.concatenate(each) for each in zip(*pieces, strict=True))
    order = np.lexsort((times, keys))
    return _Held(joins, keys[order], times[order] if has_time else None)


def _keys(store: GraphStore, src: IntArray, dst: IntArray) -> IntArray:
    keys: IntArray = dst * store.book.num_nodes + src
    return keys


@dataclass(frozen=True)
class _Copies:
    """Edges that were looked at, and the ones between the ends of a held-out pair: earlier ones, and all others."""

    edges: int = 0
    earlier: int = 0
    others: int = 0

    def __add__(self, other: _Copies) -> _Copies:
        return _Copies(self.edges + other.edges, self.earlier + other.earlier, self.others + other.others)


def _copies_in(store: GraphStore, partition: int, relation: int, pairs: list[_Held]) -> _Copies:
    """Count the edges of a relation in a partition that join the ends of a held-out pair."""
    schema, found = store.schema, _Copies()
    joins = schema.source_types[relation], schema.target_types[relation]
    held = next((each for each in pairs if each.joins == joins), None)
    has_time = _have_times(store.facts)[relation]
    for piece in _pieces(store, partition, relation, has_time=has_time and held is not None):
        if held is None:
            found += _Copies(piece.num_rows)
            continue
        place = find_places(held.keys, _keys(store, to_numpy(piece["src"]), to_numpy(piece["dst"])))
        copies = np.flatnonzero(place >= 0)
        earlier = 0
        if held.times is not None:  # edges of a table without times are older than all
            is_earlier = to_numpy(piece["time"])[copies] < held.times[place[copies]] if has_time else copies >= 0
            earlier = int(np.count_nonzero(is_earlier))
        found += _Copies(piece.num_rows, earlier, len(copies) - earlier)
    return found


def _pieces(store: GraphStore, partition: int, relation: int, *, has_time: bool) -> Iterator[pa.Table]:
    return store.iter_edges(partition, ["dst", "src", *(["time"] if has_time else [])], relation=relation)
