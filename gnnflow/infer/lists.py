"""The lists of a recommendation: the best of all items for each user, from the embeddings that GraphInfer wrote.

Three rounds. `order_items` numbers all items by the user's ids, the order of equal scores. `send_items` sends each
partition's items to blocks by these numbers, and edges and held-out links to the owners of their sources.
`make_lists` passes the blocks one by one, in their order, and keeps the best items of the partition's users.

Scores are computed in tiles of a fixed shape, whose borders depend only on the store. A product of matrices may round a
number in another way in another shape, so sizes that follow the memory would change bytes otherwise.

Memory of a task: its users' embeddings and edges, one block of items, and of every item its id and its degree.

Shapes: U users of a partition, I items, W width of an embedding, K items of a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from gnnflow.graph.arrays import AlignedArrays, offsets_of
from gnnflow.graph.splits import SPLITS
from gnnflow.infer.best import NO_ITEM, BestItems, SharedList, UserItems, places_in_lists
from gnnflow.kernels.device import compute_threads
from gnnflow.layers.saved import load_model
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.storage.columns import combine, from_matrix, take_rows, to_matrix, to_numpy
from gnnflow.storage.tables import TablePieces, commit_table, read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.storage.graph_store import GraphStore
    from gnnflow.storage.writing import FileEntry

TILE_USERS, TILE_ITEMS = 256, 4096  # 4 MiB of scores
LISTS, LINKS = "lists", "links"
"""The folders of an artifact: the lists, and the held-out links with their ranks in these."""
THIRDS = ("popular", "middle", "rare")
_WRITTEN_ROWS = 1 << 20  # of lists at a time
_PART_OF_MEMORY = 8  # of a worker's memory, that a block of items may take, and users at once
_ID_BYTES = 64  # of an item's id, number and degree
_USER_BYTES = 24  # of an item in a user's list


@dataclass(frozen=True)
class ListJob:
    """The job of all tasks.

    scored: the artifact with the embeddings; model: URI of the trained model's folder. top: the length of the lists,
    at most the number of items. block_items: the items in memory at once; users_at_once: the users whose lists are made
    in one pass over all blocks.
    """

    artifact: str
    store: GraphStore
    scored: str
    model: str
    top: int
    exclude_seen: bool
    block_items: int
    users_at_once: int

    @staticmethod
    def of(store: GraphStore, *, scored: str, memory: int, top: int, **others: Any) -> ListJob:
        """Return the job with blocks in whole tiles for the memory of a worker."""
        top = max(min(top, _nodes_of(store, store.facts.pair_types.target)), 1)
        embedding = read_artifact_table(scored, _predictions(0), ["embedding"])["embedding"]
        width, part = embedding.type.list_size, memory // _PART_OF_MEMORY
        items, users = part // (4 * width + _ID_BYTES), part // (4 * width + _USER_BYTES * top)
        return ListJob(
            store=store,
            scored=scored,
            top=top,
            block_items=max(items // TILE_ITEMS, 1) * TILE_ITEMS,
            users_at_once=max(users // TILE_USERS, 1) * TILE_USERS,
            **others,
        )

    @property
    def user_type(self) -> int:
        """The number of the type that links start from."""
        return self.store.facts.pair_types.source

    @property
    def item_type(self) -> int:
        """The number of the type that links lead to."""
        return self.store.facts.pair_types.target

    @property
    def num_items(self) -> int:
        """The number of items I."""
        return _nodes_of(self.store, self.item_type)

    @property
    def num_users(self) -> int:
        """The number of users of all partitions."""
        return _nodes_of(self.store, self.user_type)

    @property
    def num_blocks(self) -> int:
        """The number of blocks of items."""
        return -(-self.num_items // self.block_items)

    def rows(self, partition: int, node_type: int) -> slice:
        """Return the nodes of a type as a slice of a partition's nodes."""
        return self.store.book.rows(partition, node_type)

    def first(self, partition: int, node_type: int) -> int:
        """Return the first dense id of a partition's nodes of a type."""
        return self.store.book.start(partition) + int(self.rows(partition, node_type).start)

    def embeddings(self, partition: int, node_type: int) -> FloatArray:
        """Return the embeddings of a partition's nodes of a type [n, W]."""
        return embeddings_of(self.store, self.scored, partition, node_type)

    def ids(self, partition: int, node_type: int) -> pa.Array:
        """Return the user's ids of a partition's nodes of a type."""
        return combine(self.store.nodes(partition, ["id"], node_type=node_type)["id"])


def embeddings_of(store: GraphStore, scored: str, partition: int, node_type: int) -> FloatArray:
    """Return the embeddings of a partition's nodes of a type [n, W], which lie in its predictions type by type.

    scored: the artifact of the predictions.
    """
    held = read_artifact_table(scored, _predictions(partition), ["embedding"])
    rows = [store.book.rows(partition, each) for each in store.facts.target_types]
    bounds = offsets_of(np.array([each.stop - each.start for each in rows]))
    assert bounds[-1] == held.num_rows, "a run of links scores every node"
    place = store.facts.target_types.index(node_type)
    return to_matrix(held["embedding"].slice(bounds[place], bounds[place + 1] - bounds[place]))


def _nodes_of(store: GraphStore, node_type: int) -> int:
    book = store.book
    starts = book.offsets[node_type : -1 : book.num_types]
    return int((book.offsets[node_type + 1 :: book.num_types] - starts).sum())


def _predictions(partition: int) -> str:
    return f"predictions/part-{partition:05d}.parquet"


def run_rounds(job: ListJob, runner: RoundRunner) -> list[TaskRecord]:
    """Make the lists of all partitions, and return the records of their tasks."""
    parts = job.store.num_partitions
    runner.run(Round("order", 1, parts, partial(order_items, job=job)))
    # another memory makes other blocks: rows of an earlier attempt with these do not count
    name, destinations = f"items_{job.block_items}", max(parts, job.num_blocks)
    send = partial(send_items, job=job)
    runner.run(Round(name, parts, destinations, send, {"number": "order"}, frozenset({"number"})))
    reads = dict.fromkeys(("items", "seen", "held"), name)
    return runner.run(Round("lists", parts, parts, partial(make_lists, job=job), reads, frozenset(reads)))


def order_items(index: int, inbox: Inbox, *, job: ListJob) -> TaskOutput:
    """Sort all items by their ids, and send their numbers to their owners."""
    ids = [job.ids(part, job.item_type) for part in range(job.store.num_partitions)]
    order = to_numpy(pc.array_sort_indices(pa.concat_arrays(ids))).astype(np.int64)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order))
    owners = np.repeat(np.arange(len(ids)), [len(each) for each in ids])
    return TaskOutput(emits=(Emit("number", pa.table({"number": numbers}), owners),))


def send_items(index: int, inbox: Inbox, *, job: ListJob) -> TaskOutput:
    """Send a partition's items to their blocks, and the edges and held-out links that lead to them to the sources."""
    store, facts = job.store, job.store.facts
    numbers = to_numpy(inbox.read("number")["number"])
    first = job.first(index, job.item_type)
    items = pa.table(
        {
            "number": numbers,
            "id": job.ids(index, job.item_type),
            "degree": store.in_degrees(index, facts.pair_relation),
            "embedding": from_matrix(job.embeddings(index, job.item_type)),
        }
    )
    pairs = store.pairs(index, ["src", "dst", "split"])
    held = pairs.filter(pa.array(to_numpy(pairs["split"]) > 0))
    sources = to_numpy(held["src"]).astype(np.int64)
    links = pa.table({"user": sources, "item": numbers[to_numpy(held["dst"]) - first], "split": held["split"]})
    # a node is not recommended to itself
    oneself = np.arange(len(numbers) if job.user_type == job.item_type else 0)
    itself = pa.table({"user": first + oneself, "item": numbers[oneself]})

    def seen() -> Generator[Emit, None, None]:
        if not job.exclude_seen:
            return
        for edges in store.iter_edges(index, ["src", "dst"], relation=facts.pair_relation):
            users = to_numpy(edges["src"]).astype(np.int64)
            yield _to_owners("seen", pa.table({"user": users, "item": numbers[to_numpy(edges["dst"]) - first]}), job)

    emits = (
        Emit("items", items, numbers // job.block_items, compressed=False),
        _to_owners("held", links, job),
        _to_owners("seen", itself, job),
    )
    return TaskOutput(emits=emits, coming=seen())


def _to_owners(channel: str, rows: pa.Table, job: ListJob) -> Emit:
    return Emit(channel, rows, job.store.book.owner(to_numpy(rows["user"])))


def make_lists(index: int, inbox: Inbox, *, job: ListJob) -> TaskOutput:
    """Make the lists of a partition's users, and find the places of their held-out links in them."""
    first = job.first(index, job.user_type)
    embeddings, ids = job.embeddings(index, job.user_type), job.ids(index, job.user_type)
    seen = _local(inbox.read("seen"), first, job)
    best = BestItems(len(embeddings), job.top)
    by_tile = _by_tile(seen, job)
    items = None
    for start in range(0, max(len(embeddings), 1), job.users_at_once):
        items = _offer_all(best, slice(start, start + job.users_at_once), embeddings, inbox, left_out=by_tile, job=job)
    assert items is not None, "there is at least one pass"
    held = inbox.read("held")
    by_degree = SharedList(popular_places(items.degrees), seen, len(embeddings), job.top)
    links = _place_links(held, best, by_degree, first=first, job=job)
    lists, rows = _write_lists(index, best, items, ids, job)
    counts = {"rows": rows, "repeats": held.num_rows - len(links.users), "shown": by_degree.shown_places().tolist()}
    return TaskOutput(files=(lists, _write_links(index, links, items, ids, job)), counts=counts)


class _Items(NamedTuple):
    """The ids and the degrees of all items, by number [I]."""

    ids: pa.Array
    degrees: IntArray


def _local(pairs: pa.Table, first: int, job: ListJob) -> UserItems:
    users, items = to_numpy(pairs["user"]) - first, to_numpy(pairs["item"])
    return UserItems.of(users, items, num_items=job.num_items)


class _LeftOut(NamedTuple):
    """Pairs in the order of tiles of users, then of items [P]. keys [P]: ascend in this order."""

    pairs: UserItems
    keys: IntArray


def _by_tile(seen: UserItems, job: ListJob) -> _LeftOut:
    keys = seen.users // TILE_USERS * job.num_items + seen.items
    order = np.argsort(keys, kind="stable")
    return _LeftOut(seen.take(order), keys[order])


def _offer_all(
    best: BestItems, users: slice, embeddings: FloatArray, inbox: Inbox, *, left_out: _LeftOut, job: ListJob
) -> _Items:
    """Offer all items to a run of users, and return all items. Users at the borders of tiles."""
    ids, degrees = [], []
    with compute_threads(1), torch.no_grad():
        tiles = _Tiles(load_model(job.model), embeddings.shape[1])
        for number, block in _blocks(inbox, job):
            ids.append(combine(block["id"]))
            degrees.append(to_numpy(block["degree"]).astype(np.int64))
            vectors = to_matrix(block["embedding"])
            for begin in range(0, len(vectors), TILE_ITEMS):
                held = tiles.hold_items(vectors[begin : begin + TILE_ITEMS])
                item = number + begin
                for user in range(users.start, min(users.stop, len(embeddings)), TILE_USERS):
                    scores = tiles.score(embeddings[user : user + TILE_USERS])
                    base = user // TILE_USERS * job.num_items
                    own = slice(*np.searchsorted(left_out.keys, (base + item, base + item + held)))
                    scores[left_out.pairs.users[own] - user, left_out.pairs.items[own] - item] = -np.inf
                    best.offer(user, item, scores)
    return _Items(pa.concat_arrays(ids), np.concatenate(degrees))


def _blocks(inbox: Inbox, job: ListJob) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number of the first item of each block, and its items in order."""
    for block in range(job.num_blocks):
        rows = inbox.read("items", partition=block).combine_chunks()
        yield block * job.block_items, take_rows(rows, np.argsort(to_numpy(rows["number"])))


class _Tiles:
    """Scores of pairs in tiles of one shape, from buffers that are filled again."""

    def __init__(self, model: Model, width: int) -> None:
        self._model = model
        self._users = torch.zeros(TILE_USERS, width)
        self._items = torch.zeros(TILE_ITEMS, width)
        self._held = 0

    def hold_items(self, embeddings: FloatArray) -> int:
        """Hold the items of the next scores; return how many they are."""
        self._held = len(embeddings)
        self._items.numpy()[: self._held] = embeddings
        return self._held

    def score(self, embeddings: FloatArray) -> FloatArray:
        """Return the scores of users and the items that are held."""
        self._users.numpy()[: len(embeddings)] = embeddings
        scores: FloatArray = self._model.score_all(self._users, self._items).numpy()
        return np.ascontiguousarray(scores[: len(embeddings), : self._held])


@dataclass(frozen=True)
class _HeldLinks(AlignedArrays):
    """Held-out links: user, item, split code and third of the items [P], and places in two lists, K where not there."""

    users: IntArray
    items: IntArray
    splits: IntArray
    thirds: IntArray
    places: IntArray
    popular: IntArray


def _place_links(held: pa.Table, best: BestItems, by_degree: SharedList, *, first: int, job: ListJob) -> _HeldLinks:
    """Find the held-out links in the lists of their users, and in the list by degree; seen ones are left out."""
    splits, place, found = to_numpy(held["split"]), by_degree.place, []
    for code in range(1, len(SPLITS)):
        links = _local(held.filter(pa.array(splits == code)), first, job)
        links = links.take(np.flatnonzero(~by_degree.left_out.contains(links, num_items=job.num_items)))
        third = len(THIRDS) * place[links.items] // max(job.num_items, 1)
        places = places_in_lists(links, best.items), by_degree.places_of(links)
        found.append(_HeldLinks(links.users, links.items, np.full(len(third), code), third, *places))
    return _HeldLinks.joined(found)


def popular_places(degrees: IntArray) -> IntArray:
    """Return the place of each item in the order by degree, the largest first [I]; equal ones by number."""
    place = np.empty(len(degrees), np.int64)
    place[np.lexsort((np.arange(len(degrees)), -degrees))] = np.arange(len(degrees))
    return place


def _write_links(index: int, links: _HeldLinks, items: _Items, ids: pa.Array, job: ListJob) -> FileEntry:
    table = pa.table(
        {
            "user": ids.take(pa.array(links.users)),
            "item": items.ids.take(pa.array(links.items)),
            "split": pa.array(SPLITS).take(pa.array(links.splits)),
            "popularity": pa.array(THIRDS).take(pa.array(links.thirds)),
            "rank": _ranks(links.places, job.top),
            "popularity_rank": _ranks(links.popular, job.top),
        }
    )
    return commit_table(job.artifact, f"{LINKS}/part-{index:05d}.parquet", table)


def _ranks(places: IntArray, top: int) -> pa.Array:
    """Return ranks from 1; null where a list does not have the item."""
    return pa.array((places + 1).astype(np.int32), mask=places >= top)


def _write_lists(index: int, best: BestItems, items: _Items, ids: pa.Array, job: ListJob) -> tuple[FileEntry, int]:
    """Write the lists, users in the order of the store, and return the file's entry and the number of rows."""
    at_once, rows = max(1, _WRITTEN_ROWS // job.top), 0
    with TablePieces() as pieces:
        for start in range(0, max(len(ids), 1), at_once):
            own = slice(start, start + at_once)
            user, place = np.nonzero(best.items[own] != NO_ITEM)
            rows += len(user)
            pieces.add(
                pa.table(
                    {
                        "user": ids.take(pa.array(start + user)),
                        "item": items.ids.take(pa.array(best.items[own][user, place])),
                        "rank": (place + 1).astype(np.int32),
                        "score": best.scores[own][user, place],
                    }
                )
            )
        name = f"{LISTS}/part-{index:05d}.parquet"
        return pieces.commit(job.artifact, name, row_group_size=_WRITTEN_ROWS), rows
