"""The rounds that find the bounds of splits by time or by class, before any row is ingested.

Each node has a key in a group: its time in one group of all, or a hash of its id in its class. The smallest keys of a
group are train, the largest test, and nodes of one key are in one split. `splits_read` reads ids, labels and times
once, counts the nodes of each key and sends each key where its hash says, so that no task holds more than its share of
the distinct keys. Rounds of counts by intervals of keys then narrow the interval of each searched rank, until it has
one key. Ranks are exact, and depend on neither chunks nor order.

Rows that are set aside for their id, label or time do not count; a repeated id counts each time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.graph.hashing import mix
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.checks import id_faults
from gnnflow.ingest.classes import MOST_CLASSES
from gnnflow.ingest.labels import is_labelled, label_column, label_faults
from gnnflow.ingest.schema import EdgeSchema
from gnnflow.ingest.source import FIRST_TIME, ids_of, ranked_keys, split_time_faults
from gnnflow.ingest.targets import SplitKeys
from gnnflow.ingest.times import time_text
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.sampling.pairs import TimeBounds
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.user_tables import read_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.ingest.tables import NodeTable, Tables
    from gnnflow.ingest.targets import DrawnSplit
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord

_KEYS = "split_keys"
_INTERVALS = 1 << 14  # of all searches of a round: their counts are JSON in the tasks' records
_FEWEST_INTERVALS = 16


class _Search(NamedTuple):
    """A search for the key of a rank in a group: it is from low to high, and `below` nodes have keys below low."""

    group: int
    rank: int
    low: int
    high: int
    below: int = 0


class _Found(NamedTuple):
    """A key, and the number of nodes in its group with smaller keys."""

    key: int
    below: int


@dataclass(frozen=True)
class _Group:
    """The nodes of a group: their number, their smallest and their largest key."""

    nodes: int
    low: int
    high: int


def find_splits(tables: Tables, config: GraphConfig, runner: RoundRunner) -> Tables:
    """Return the tables with the keys that divide the labelled nodes, where the task's split is by rank.

    Raises TableError where there are too many classes.
    """
    table = next((each for each in tables.nodes if each.schema.drawn is not None), None)
    if table is None or table.schema.drawn is None or table.schema.drawn.kind == "random":
        return tables
    assert config.partitions is not None, "a resolved run has a number of partitions"
    task = partial(read_keys, table=table, destinations=config.partitions)
    read = runner.run(Round("splits_read", len(table.chunks), config.partitions, task))
    groups = _groups_of(read)
    if len(groups) > MOST_CLASSES:
        raise TableError(
            f"column {table.config.label_column!r} holds more than {MOST_CLASSES:,} classes, too many to be stratified",
            where=table.uri,
            fix="Set task.split to {kind: random}.",
        )
    rounds = _Rounds(runner, config.partitions)
    drawn = replace(table.schema.drawn, groups=_divided(groups, table.schema.drawn, rounds))
    found = replace(table, schema=replace(table.schema, drawn=drawn))
    return replace(tables, nodes=tuple(found if each is table else each for each in tables.nodes))


def split_times(schema: NodeSchema | EdgeSchema, bounds: TimeBounds | None) -> dict[str, str]:
    """Return the first times of valid and of test as text, where a split is by time. bounds: of edges that are targets.

    A split without a share has none.
    """
    found = bounds
    unit, shares = "", (1.0, 1.0)
    if isinstance(schema, EdgeSchema):
        unit = schema.time
        if schema.targets is not None and schema.targets.task.split.kind == "time":
            shares = schema.targets.task.split.valid, schema.targets.task.split.test
    elif schema.drawn is not None and schema.drawn.kind == "time" and schema.drawn.groups:
        ((_, keys),) = schema.drawn.groups
        unit, shares = schema.drawn.unit, (schema.drawn.valid, schema.drawn.test)
        found = TimeBounds(*(key - FIRST_TIME for key in keys))
    if found is None:
        return {}
    of_splits = zip(SPLITS[1:], found, shares, strict=True)
    return {name: time_text(time, unit) for name, time, share in of_splits if share}


def read_keys(index: int, inbox: Inbox, *, table: NodeTable, destinations: int) -> TaskOutput:
    """Count the labelled nodes of one chunk by group and key, and send each key where its hash says."""
    schema, config = table.schema, table.config
    assert schema.drawn is not None
    names = dict.fromkeys([config.id_column, config.label_column, *schema.drawn.columns])
    rows = read_chunk(table.chunks[index], list(names))
    faults = [*id_faults(rows, config.id_column), *label_faults(rows, schema, config)]
    bad = [fault.rows for fault in (*faults, *split_time_faults(rows, schema, config))]
    kept = np.setdiff1d(np.flatnonzero(is_labelled(rows, schema, config)), np.concatenate(bad))
    rows = take_rows(rows.combine_chunks(), kept)
    columns = {"id": ids_of(rows, schema, config), "label": label_column(rows, schema, config)}
    group, key = ranked_keys(rows, columns, schema.drawn)
    order = np.lexsort((key, group))
    group, key = group[order], key[order]
    first = _firsts(group, key)
    sent = pa.table({"group": group[first], "key": key[first], "nodes": np.diff(np.append(first, len(key)))})
    home = (mix(key[first].copy()) % np.uint64(destinations)).astype(np.int64)
    return TaskOutput(emits=(Emit(_KEYS, sent, home),), counts={"groups": list(_summaries(group, key))})


def _firsts(*sorted_by: IntArray | KeyArray) -> IntArray:
    """Return the places where sorted rows have another value than the row before."""
    size = len(sorted_by[0])
    differs = np.ones(size, bool)
    differs[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in sorted_by])
    return np.flatnonzero(differs)


def _summaries(group: IntArray, key: KeyArray) -> Iterator[list[int]]:
    """Yield for each group its number, its nodes, and its smallest and largest key. Rows are sorted by both."""
    first = _firsts(group)
    for begin, end in zip(first[: MOST_CLASSES + 1], np.append(first[1:], len(group)), strict=False):
        yield [int(group[begin]), int(end - begin), int(key[begin]), int(key[end - 1])]


def _groups_of(records: Sequence[TaskRecord]) -> dict[int, _Group]:
    """Return the groups of all chunks, ascending."""
    found: dict[int, _Group] = {}
    for record in records:
        for group, nodes, low, high in record.counts["groups"]:
            own = found.get(group, _Group(0, low, high))
            found[group] = _Group(own.nodes + nodes, min(own.low, low), max(own.high, high))
    return dict(sorted(found.items()))


def _divided(groups: dict[int, _Group], drawn: DrawnSplit, rounds: _Rounds) -> tuple[tuple[int, SplitKeys], ...]:
    """Return the first keys of valid and of test of each group."""
    searches: list[_Search] = []
    for group, own in groups.items():
        for held in _held_out(own.nodes, drawn):
            rank = min(own.nodes - held, own.nodes - 1)
            searches.append(_Search(group, rank, own.low, own.high))
    found = iter(rounds.find(searches))
    divided = []
    for group, own in groups.items():
        keys = [
            next_found if held else _Found(own.high + 1, own.nodes)
            for held, next_found in zip(_held_out(own.nodes, drawn), found, strict=False)
        ]
        valid, test = keys
        if drawn.kind == "time" and drawn.valid and valid.key == test.key and test.below:  # ties took all of valid
            (valid,) = rounds.find([_Search(group, test.below - 1, own.low, own.high)])
        largest = int(np.iinfo(np.uint64).max)
        divided.append((group, SplitKeys(min(valid.key, largest), min(test.key, largest))))
    return tuple(divided)


def _held_out(nodes: int, drawn: DrawnSplit) -> tuple[int, int]:
    """Return the nodes of a group that are valid or test, and that are test; by class at least one of each is asked.

    Of a class of two nodes one is train and one valid; a single node is train.
    """
    if drawn.kind == "time":
        return round((drawn.valid + drawn.test) * nodes), round(drawn.test * nodes)
    valid, test = (max(round(share * nodes), int(share > 0)) for share in (drawn.valid, drawn.test))
    while valid + test >= nodes and valid + test > 0:
        valid, test = (valid, test - 1) if test >= valid else (valid - 1, test)
    return valid + test, test


@dataclass
class _Rounds:
    """The rounds that search keys among those that were sent."""

    runner: RoundRunner
    partitions: int
    done: int = 0

    def find(self, searches: Sequence[_Search]) -> list[_Found]:
        """Return the key of each search."""
        found: dict[int, _Found] = {}
        is_open = dict(enumerate(searches))
        while is_open:
            task = partial(count_intervals, searches=tuple(is_open.values()))
            step = Round(f"splits_{self.done}", self.partitions, 1, task, {_KEYS: "splits_read"})
            self.done += 1
            records = self.runner.run(step)
            for place, (number, search) in enumerate(tuple(is_open.items())):
                narrower = _narrowed(search, [record.counts["intervals"][place] for record in records])
                is_open[number] = narrower
                if narrower.low == narrower.high:
                    found[number] = _Found(narrower.low, narrower.below)
                    del is_open[number]
        return [found[number] for number in range(len(searches))]


def count_intervals(index: int, inbox: Inbox, *, searches: Sequence[_Search]) -> TaskOutput:
    """Count the nodes whose keys are here by the intervals of each search, with the bounds of their keys."""
    rows = inbox.read(_KEYS).combine_chunks()
    group, key, nodes = (to_numpy(rows[name]) for name in ("group", "key", "nodes"))
    order = np.lexsort((key, group))
    group, key, nodes = group[order], key[order], nodes[order]
    size = max(_FEWEST_INTERVALS, _INTERVALS // len(searches))
    counted = []
    for search in searches:
        begin, end = np.searchsorted(group, [search.group, search.group + 1])
        own = key[begin:end]
        # the group's keys from low to high, and the number of the interval of each, ascending
        inside = slice(
            begin + np.searchsorted(own, np.uint64(search.low), side="left"),
            begin + np.searchsorted(own, np.uint64(search.high), side="right"),
        )
        width = -(-(search.high - search.low + 1) // size)
        held = key[inside]
        interval = (held - np.uint64(search.low)) // np.uint64(width)
        first = _firsts(interval)
        last = np.append(first, len(held))[1:] - 1
        total = np.add.reduceat(nodes[inside], first) if len(first) else first
        columns = (interval[first], total, held[first], held[last])
        counted.append([column.tolist() for column in columns])
    return TaskOutput(counts={"intervals": counted})


def _narrowed(search: _Search, counted: Sequence[Sequence[Sequence[int]]]) -> _Search:
    """Return a search within the interval that has its rank. counted: of each task, by interval."""
    nodes: Counter[int] = Counter()
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    for columns in counted:
        for interval, total, smallest, largest in zip(*columns, strict=True):
            nodes[interval] += total
            low[interval] = min(low.get(interval, smallest), smallest)
            high[interval] = max(high.get(interval, largest), largest)
    below = search.below
    for interval in sorted(nodes):
        if below + nodes[interval] > search.rank:
            return search._replace(low=low[interval], high=high[interval], below=below)
        below += nodes[interval]
    raise AssertionError("a rank is among the nodes of its group")
