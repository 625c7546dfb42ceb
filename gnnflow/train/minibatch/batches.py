"""The plan of an epoch: which targets each step trains on, from (seed, epoch, shards, batch size) alone.

Nothing is drawn from a stream, so step s of epoch e is known without the steps before it: a resumed run asks
for the step it stopped at. Everything is planned from the manifest's entries alone, before a shard is read,
so every rank knows how many steps the others take.

1. Each shard is cut into batches; a batch never spans shards. A tail below a quarter of a batch joins the
   batch before it.
2. The cuts, in manifest order, are dealt to the ranks in runs of equal length. Where their number does not
   divide by the ranks, the largest cuts are halved. The deal never changes, so a rank reads the same shards
   in every epoch.
3. Per epoch the targets of a shard are permuted, and so is the order of a rank's shards. Shards hold targets
   that live close together, so reading them one after the other would end every epoch on one corner of the
   graph: `OPEN_SHARDS` of them are open at a time and their batches are shuffled together.

A shard that fits one batch keeps its stored order, since a batch's loss is a mean in any order, which makes its blocks
the same in every epoch.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from gnnflow.graph.arrays import IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.graph.splits import too_few_targets

OPEN_SHARDS = 4
"""Shards whose batches are shuffled together; so many decoded shards are held whatever the cache's size."""

SMALLEST_TAIL = 4
"""A tail below batch_size / SMALLEST_TAIL targets joins the batch before it."""

FIXED_VIEW = 0
"""The sample of in-edges that stage `select` keeps: what is evaluated and scored on, whatever is trained on."""


@dataclass(frozen=True)
class PlannedBatch:
    """Some targets of one shard, nodes or pairs: `positions` [B] among those stored.

    `key` names a batch that every epoch repeats, whose blocks may therefore be kept; it is empty for the
    others.
    """

    entry: ShardEntry
    positions: IntArray
    key: str = ""


@dataclass(frozen=True, order=True)
class Cut:
    """Targets start .. stop - 1 of shard number `shard`, in that epoch's order of its targets."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class EpochPlan:
    """One rank's steps of one epoch. `plan[step]` is computed when asked for. view: the sample that it trains on."""

    entries: Sequence[ShardEntry]
    seed: int
    epoch: int
    cuts: tuple[Cut, ...] = field(repr=False)
    view: int = FIXED_VIEW

    def __len__(self) -> int:
        """Return the number of steps, which is the same for every rank and epoch."""
        return len(self.cuts)

    def __getitem__(self, step: int) -> PlannedBatch:
        """Return the targets of one step."""
        batch = self._of(self.cuts[step])
        return batch if self.view == FIXED_VIEW else _of_view(batch, self.view)

    def _of(self, cut: Cut) -> PlannedBatch:
        entry = self.entries[cut.shard]
        if cut.start == 0 and cut.stop == entry.num_samples:
            return _repeated(entry, cut.start, cut.stop)
        order = _permutation(entry.num_samples, self.seed, self.epoch, cut.shard)
        return PlannedBatch(entry, order[cut.start : cut.stop])


def plan_epoch(
    entries: Sequence[ShardEntry],
    *,
    seed: int,
    epoch: int,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    view: int = FIXED_VIEW,
) -> EpochPlan:
    """Return the steps of one epoch over the given shards for one rank.

    view: the sample of in-edges that the epoch trains on. Raises TrainingError where the targets cannot give every rank
    the same number of steps.
    """
    own = _deal(_cuts(entries, batch_size), rank, world_size)
    # shard and first target of each of the rank's cuts [C]
    shards = np.array([cut.shard for cut in own], np.int64)
    starts = np.array([cut.start for cut in own], np.int64)
    # number of the group of shards that is open when the cut is trained on [C]
    open_group = _places(shards, seed_word("shards", seed, epoch)) // OPEN_SHARDS
    # a hash of each cut, which orders the cuts of a group [C]
    shuffled = combine(hash_integers(shards) ^ hash_integers(~starts), seed_word("batches", seed, epoch))
    order = np.lexsort((starts, shards, shuffled, open_group))
    return EpochPlan(entries, seed, epoch, tuple(own[place] for place in order), view)


def plan_evaluation(
    entries: Sequence[ShardEntry], *, batch_size: int, rank: int = 0, world_size: int = 1
) -> tuple[PlannedBatch, ...]:
    """Return the batches that score every target once, in stored order, for one rank.

    The ranks' parts are contiguous and follow each other; they need not be equally long, since scoring has no step that
    ranks take together.
    """
    cuts = _cuts(entries, batch_size)
    bounds = [len(cuts) * place // world_size for place in (rank, rank + 1)]
    return tuple(_repeated(entries[cut.shard], cut.start, cut.stop) for cut in cuts[bounds[0] : bounds[1]])


def view_of_entry(entry: ShardEntry) -> int:
    """Return the view of a batch's entry."""
    return int(entry.name.partition("@")[2] or FIXED_VIEW)


def _of_view(batch: PlannedBatch, view: int) -> PlannedBatch:
    """Return the same targets over another sample of in-edges, which no other epoch has."""
    return PlannedBatch(replace(batch.entry, name=f"{batch.entry.name}@{view}"), batch.positions)


def _repeated(entry: ShardEntry, start: int, stop: int) -> PlannedBatch:
    return PlannedBatch(entry, np.arange(start, stop, dtype=np.int64), key=f"{entry.name}:{start}:{stop}")


def _cuts(entries: Sequence[ShardEntry], batch_size: int) -> list[Cut]:
    found = []
    for shard, entry in enumerate(entries):
        # where the shard's cuts begin, without a tail that is too short
        bounds = list(range(0, entry.num_samples, batch_size))
        if len(bounds) > 1 and (entry.num_samples - bounds[-1]) * SMALLEST_TAIL < batch_size:
            bounds.pop()
        stops = [*bounds[1:], entry.num_samples]
        found += [Cut(shard, start, stop) for start, stop in zip(bounds, stops, strict=False)]
    return found


def _deal(cuts: list[Cut], rank: int, world_size: int) -> list[Cut]:
    """Return the rank's equal share of the cuts, after halving the largest until they divide."""
    # (negative size, cut): the smallest entry is the largest cut
    heap = [(cut.start - cut.stop, cut) for cut in cuts]
    heapq.heapify(heap)
    while len(heap) % world_size or not heap:
        size, cut = heapq.heappop(heap) if heap else (0, Cut(0, 0, 0))
        if size > -2:  # noqa: PLR2004 - one target cannot be halved
            total = sum(each.stop - each.start for each in cuts)
            raise too_few_targets(total, world_size)
        middle = cut.start - size // 2
        for half in (Cut(cut.shard, cut.start, middle), Cut(cut.shard, middle, cut.stop)):
            heapq.heappush(heap, (half.start - half.stop, half))
    dealt = sorted(cut for _, cut in heap)
    share = len(dealt) // world_size
    return dealt[rank * share : (rank + 1) * share]


def _places(shards: IntArray, word: np.uint64) -> IntArray:
    """Return for each cut the place of its shard in the permuted order of the distinct shards."""
    # the distinct shards, ascending [D], and the number among them of each cut's shard [C]
    distinct, inverse = np.unique(shards, return_inverse=True)
    # the place of each distinct shard in the order of its hash [D]
    places = np.empty(len(distinct), np.int64)
    places[np.argsort(combine(hash_integers(distinct), word), kind="stable")] = np.arange(len(distinct))
    return places[inverse]


@lru_cache(maxsize=2 * OPEN_SHARDS)
def _permutation(num_targets: int, seed: int, epoch: int, shard: int) -> IntArray:
    # a hash of each target of the shard, and the targets in the order of it [T]
    keys = combine(hash_integers(np.arange(num_targets)), seed_word("targets", seed, epoch, shard))
    order = np.argsort(keys, kind="stable")
    order.setflags(write=False)
    return order
