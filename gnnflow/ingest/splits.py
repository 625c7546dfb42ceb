"""The rounds that find the bounds of splits by time or by class, of nodes and of edges.

Each row has a key in a group: its time in one group of all, or a hash of its ids in its class. The smallest keys of a
group are train, the largest test, and rows of one key are in one split. A round counts the rows of each key and sends
each key where its hash says, so that no task holds more than its share of the distinct keys. Rounds of counts by
intervals of keys then narrow the interval of each searched rank, until it has one key. Ranks are exact, and depend on
neither chunks nor order.

Keys of nodes are sent before any row is ingested, by `splits_read`, which reads ids, labels and times once; keys of
edges by the round that finds their sources. Rows that are set aside before that do not count; a repeated id counts each
time.
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
from gnnflow.ingest.times import time_text
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.sampling.pairs import SplitKeys
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.user_tables import read_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.ingest.tables import EdgeTable, NodeTable, Tables
    from gnnflow.ingest.targets import DrawnSplit
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.sampling.pairs import SplitBounds

_KEYS = "split_keys"
_INTERVALS = 1 << 14  # of all searches of a round: their counts are JSON in the tasks' records
_FEWEST_INTERVALS = 16


class _Search(NamedTuple):
    """A search for the key of a rank in a group: it is from low to high, and `below` rows have keys below low."""

    group: int
    rank: int
    low: int
    high: int
    below: int = 0


class _Found(NamedTuple):
    """A key, and the number of rows in its group with smaller keys."""

    key: int
    below: int


@dataclass(frozen=True)
class _Group:
    """The rows of a group: their number, their smallest and their largest key."""

    rows: int
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
    bounds = _bounds_of(read, table, table.schema.drawn, _Rounds(runner, config.partitions, read="splits_read"))
    found = replace(table, schema=replace(table.schema, drawn=replace(table.schema.drawn, groups=bounds)))
    return replace(tables, nodes=tuple(found if each is table else each for each in tables.nodes))


def find_edge_bounds(
    records: Sequence[TaskRecord], tables: Tables, runner: RoundRunner, *, partitions: int, read: str, tasks: range
) -> SplitBounds:
    """Return the keys that divide the edges that are targets, by time or by class.

    records: of the tasks of the round `read` that sent keys. Raises TableError where there are too many classes.
    """
    targets = tables.targets
    assert targets is not None
    assert targets.drawn is not None
    return _bounds_of(records, tables.labelled, targets.drawn, _Rounds(runner, partitions, read=read, tasks=tasks))


def _bounds_of(
    records: Sequence[TaskRecord], table: NodeTable | EdgeTable, drawn: DrawnSplit, rounds: _Rounds
) -> SplitBounds:
    """Return the keys that divide the rows of a table."""
    groups = _groups_of([record.counts["groups"] for record in records])
    if len(groups) > MOST_CLASSES:
        raise TableError(
            f"column {table.config.label_column!r} holds more than {MOST_CLASSES:,} classes, too many to be stratified",
            where=table.uri,
            fix="Set task.split to {kind: random}.",
        )
    return _divided(groups, drawn, rounds.find)


def bounds_of_keys(group: IntArray, key: KeyArray, drawn: DrawnSplit) -> SplitBounds:
    """Return the keys that divide rows whose groups and keys [R] are all in memory."""
    order = np.lexsort((key, group))
    group, key = group[order], key[order]

    def find(searches: Sequence[_Search]) -> list[_Found]:
        found = []
        for search in searches:
            begin, end = np.searchsorted(group, [search.group, search.group + 1])
            wanted = key[begin + search.rank]
            found.append(_Found(int(wanted), int(np.searchsorted(key[begin:end], wanted))))
        return found

    return _divided(_groups_of([list(_summaries(group, key))]), drawn, find)


def split_times(schema: NodeSchema | EdgeSchema, bounds: SplitBounds) -> dict[str, str]:
    """Return the first times of valid and of test as text, where a split is by time. bounds: of edges that are targets.

    A split without a share has none.
    """
    if isinstance(schema, EdgeSchema):
        drawn, unit = None if schema.targets is None else schema.targets.drawn, schema.time
    else:
        drawn, unit = schema.drawn, "" if schema.drawn is None else schema.drawn.unit
        bounds = () if drawn is None else drawn.groups
    if drawn is None or drawn.kind != "time" or not bounds:
        return {}
    ((_, keys),) = bounds
    of_splits = zip(SPLITS[1:], keys, (drawn.valid, drawn.test), strict=True)
    return {name: time_text(key - FIRST_TIME, unit) for name, key, share in of_splits if share}


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
    return send_keys(*ranked_keys(rows, columns, schema.drawn), destinations=destinations)


def send_keys(group: IntArray, key: KeyArray, *, destinations: int) -> TaskOutput:
    """Count rows by group and key [R], and send each key where its hash says."""
    order = np.lexsort((key, group))
    group, key = group[order], key[order]
    first = _firsts(group, key)
    sent = pa.table({"group": group[first], "key": key[first], "rows": np.diff(np.append(first, len(key)))})
    home = (mix(key[first].copy()) % np.uint64(destinations)).astype(np.int64)
    return TaskOutput(emits=(Emit(_KEYS, sent, home),), counts={"groups": list(_summaries(group, key))})


def _firsts(*sorted_by: IntArray | KeyArray) -> IntArray:
    """Return the places where sorted rows have another value than the row before."""
    size = len(sorted_by[0])
    differs = np.ones(size, bool)
    differs[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in sorted_by])
    return np.flatnonzero(differs)


def _summaries(group: IntArray, key: KeyArray) -> Iterator[list[int]]:
    """Yield for each group its number, its rows, and its smallest and largest key. Rows are sorted by both."""
    first = _firsts(group)
    for begin, end in zip(first[: MOST_CLASSES + 1], np.append(first[1:], len(group)), strict=False):
        yield [int(group[begin]), int(end - begin), int(key[begin]), int(key[end - 1])]


def _groups_of(summaries: Sequence[Sequence[Sequence[int]]]) -> dict[int, _Group]:
    """Return the groups of all tasks, ascending. summaries: the groups of each task."""
    found: dict[int, _Group] = {}
    for of_task in summaries:
        for group, rows, low, high in of_task:
            own = found.get(group, _Group(0, low, high))
            found[group] = _Group(own.rows + rows, min(own.low, low), max(own.high, high))
    return dict(sorted(found.items()))


def _divided(
    groups: dict[int, _Group], drawn: DrawnSplit, find: Callable[[Sequence[_Search]], list[_Found]]
) -> SplitBounds:
    """Return the first keys of valid and of test of each group."""
    searches: list[_Search] = []
    for group, own in groups.items():
        for held in _held_out(own.rows, drawn):
            rank = min(own.rows - held, own.rows - 1)
            searches.append(_Search(group, rank, own.low, own.high))
    found = iter(find(searches))
    divided: dict[int, tuple[_Found, _Found]] = {}
    for group, own in groups.items():
        valid, test = (
            next_found if held else _Found(own.high + 1, own.rows)
            for held, next_found in zip(_held_out(own.rows, drawn), found, strict=False)
        )
        divided[group] = valid, test
    # groups where rows of one key took all of valid, which then begins at the key before
    taken = [
        group
        for group, (valid, test) in divided.items()
        if valid.key == test.key and test.below and drawn.valid and _asks_for_valid(groups[group], drawn)
    ]
    before = [_Search(each, divided[each][1].below - 1, groups[each].low, groups[each].high) for each in taken]
    divided |= {group: (valid, divided[group][1]) for group, valid in zip(taken, find(before), strict=True)}
    return tuple((group, _keys_of(groups[group], found, drawn)) for group, found in divided.items())


def _asks_for_valid(group: _Group, drawn: DrawnSplit) -> bool:
    held, test = _held_out(group.rows, drawn)
    return drawn.kind == "time" or held > test


def _keys_of(group: _Group, found: tuple[_Found, _Found], drawn: DrawnSplit) -> SplitKeys:
    """Return the keys that divide a group; of a class the rows with the smallest key are train, however many."""
    least = 0 if drawn.kind == "time" else group.low + 1
    largest = int(np.iinfo(np.uint64).max)
    valid, test = (min(max(each.key, least), largest) for each in found)
    return SplitKeys(valid, test)


def _held_out(rows: int, drawn: DrawnSplit) -> tuple[int, int]:
    """Return the rows of a group that are valid or test, and that are test; by class at least one of each is asked.

    Of a class of two rows one is train and one valid; a single row is train.
    """
    if drawn.kind == "time":
        return round((drawn.valid + drawn.test) * rows), round(drawn.test * rows)
    valid, test = (max(round(share * rows), int(share > 0)) for share in (drawn.valid, drawn.test))
    while valid + test >= rows and valid + test > 0:
        valid, test = (valid, test - 1) if test >= valid else (valid - 1, test)
    return valid + test, test


@dataclass
class _Rounds:
    """The rounds that search keys among those that tasks of the round `read` sent; None: all of its tasks."""

    runner: RoundRunner
    partitions: int
    read: str
    tasks: range | None = None
    done: int = 0

    def find(self, searches: Sequence[_Search]) -> list[_Found]:
        """Return the key of each search."""
        found: dict[int, _Found] = {}
        is_open = dict(enumerate(searches))
        while is_open:
            task = partial(count_intervals, searches=tuple(is_open.values()), tasks=self.tasks)
            step = Round(f"splits_{self.done}", self.partitions, 1, task, {_KEYS: self.read})
            self.done += 1
            records = self.runner.run(step)
            for place, (number, search) in enumerate(tuple(is_open.items())):
                narrower = _narrowed(search, [record.counts["intervals"][place] for record in records])
                is_open[number] = narrower
                if narrower.low == narrower.high:
                    found[number] = _Found(narrower.low, narrower.below)
                    del is_open[number]
        return [found[number] for number in range(len(searches))]


def count_intervals(
    index: int, inbox: Inbox, *, searches: Sequence[_Search], tasks: Sequence[int] | None = None
) -> TaskOutput:
    """Count the rows whose keys are here by the intervals of each search, with the bounds of their keys."""
    sent = inbox.read(_KEYS, tasks=tasks).combine_chunks()
    group, key, rows = (to_numpy(sent[name]) for name in ("group", "key", "rows"))
    order = np.lexsort((key, group))
    group, key, rows = group[order], key[order], rows[order]
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
        total = np.add.reduceat(rows[inside], first) if len(first) else first
        columns = (interval[first], total, held[first], held[last])
        counted.append([column.tolist() for column in columns])
    return TaskOutput(counts={"intervals": counted})


def _narrowed(search: _Search, counted: Sequence[Sequence[Sequence[int]]]) -> _Search:
    """Return a search within the interval that has its rank. counted: of each task, by interval."""
    rows: Counter[int] = Counter()
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    for columns in counted:
        for interval, total, smallest, largest in zip(*columns, strict=True):
            rows[interval] += total
            low[interval] = min(low.get(interval, smallest), smallest)
            high[interval] = max(high.get(interval, largest), largest)
    below = search.below
    for interval in sorted(rows):
        if below + rows[interval] > search.rank:
            return search._replace(low=low[interval], high=high[interval], below=below)
        below += rows[interval]
    raise AssertionError("a rank is among the rows of its group")
