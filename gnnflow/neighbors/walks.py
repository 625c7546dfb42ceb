"""The nodes that random walks visit most (PinSage: Ying et al., KDD 2018, section 3.1).

A number of walks starts at each node; a step follows an in-edge of the current node, uniformly or by weight, and a walk
ends at a node without in-edges. The most visited nodes of the root's type are kept, those met first where visits are
equal (walk by walk, step by step), each with its share of the visits to kept nodes.

The draw of a step is a hash of (seed, root's key, number of the walk, number of the step), and chooses a place in the
in-edges in the order of their keys, so walks depend on no partition and no order. By weight a draw is a point on the
cumulative weights of a node in this order; the begin of each edge's part is a whole number of 2^32, found once per node
from its edges alone, so that the native core, NumPy and any partition compare the same integers.

Where the in-edges of the whole graph take little memory, every task reads them all and walks alone. Elsewhere a walk is
a row that goes from owner to owner, and a visit a row that goes to the owner of the root. Both give the same bytes.
`walk_steps.py` holds a step and the count of visits in memory. (Deviation: PinSage's walks restart at their root by
chance; here each has the same length.)

Shapes: n roots of a partition, W walks, L steps, N nodes of the graph, E edges, V visits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import Array, IntArray, KeyArray, offsets_of
from gnnflow.graph.hashing import combine
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.graph import Instances
from gnnflow.neighbors.keyed import node_keys
from gnnflow.neighbors.selection import Delivered, Selection, SelectionResult, deliver, finish, target_types
from gnnflow.neighbors.walk_steps import (
    SMALL_IDS,
    Steps,
    Visits,
    WalkJob,
    draws,
    job_of,
    keyed_steps,
    most_visited,
    number_of,
    walks_from,
)
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import WalkNeighbors
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.native.walks import Visited

NAME = "walks"
WHOLE_BYTES = 256 << 20
"""Most memory that the in-edges of the whole graph may take where every task walks alone."""
_MOST_TYPES = 256  # the number of a type is a byte where walks do not travel


def run_rounds(
    store_job: Selection, section: WalkNeighbors, runner: RoundRunner, *, whole_bytes: int | None = None
) -> SelectionResult:
    """Run the walks. whole_bytes (WHOLE_BYTES by default) decides whether tasks walk alone; the bytes are the same."""
    job = job_of(store_job, section)
    by_weight = job.by_weight
    parts, facts = job.store.num_partitions, job.store.facts
    runner.run(Round("order", parts, parts, partial(order_edges, job=job)))
    held = {"degrees": "order", "sources": "order"}
    most = WHOLE_BYTES if whole_bytes is None else whole_bytes
    alone = max(facts.num_nodes, facts.num_edges) < SMALL_IDS and job.store.schema.num_types <= _MOST_TYPES
    alone = alone and (8 if by_weight else 4) * facts.num_edges + 8 * facts.num_nodes <= most
    if alone:
        records = runner.run(Round("walks", parts, parts, partial(walk_alone, job=job), held, frozenset(held)))
    else:
        visits = {}
        for step in range(job.length):
            reads = {**held, **({f"walkers_{step - 1}": f"step_{step - 1}"} if step else {})}
            over = frozenset(reads if step == job.length - 1 else reads.keys() - held.keys())
            runner.run(Round(f"step_{step}", parts, parts, partial(take_step, job=job, step=step), reads, over))
            visits[f"visits_{step}"] = f"step_{step}"
        records = runner.run(Round("walks", parts, parts, partial(gather, job=job), visits, frozenset(visits)))
    return finish(job, runner, dict.fromkeys(range(len(job.relations)), Delivered("walks", records)))


def order_edges(index: int, _: Inbox, *, job: WalkJob) -> TaskOutput:
    """Write a partition's in-edges in the order of their keys, for the tasks that follow them."""
    steps = keyed_steps(job, index)
    # in-degrees of the partition's nodes [n], and the sources of their in-edges [E]
    degrees = pa.table({"degree": np.diff(steps.offsets).astype(np.uint32)})
    sources = pa.table({"src": steps.sources})
    if steps.begins is not None:
        sources = sources.append_column("begin", pa.array(steps.begins))
    return TaskOutput(
        emits=(
            Emit("degrees", degrees, np.full(degrees.num_rows, index)),
            Emit("sources", sources, np.full(sources.num_rows, index), compressed=False),
        )
    )


def walk_alone(index: int, inbox: Inbox, *, job: WalkJob) -> TaskOutput:
    """Walk from all of a partition's nodes on the in-edges of the whole graph."""
    book, parts = job.store.book, range(job.store.num_partitions)
    # in-edges of all nodes: offsets [N + 1] and sources [E]
    degrees = [to_numpy(inbox.read("degrees", tasks=[each], partition=each)["degree"]) for each in parts]
    offsets = offsets_of(np.concatenate(degrees))
    graph = Steps.of(offsets, [inbox.read("sources", tasks=[each], partition=each) for each in parts])
    typed = job.store.schema.num_types > 1
    types = book.type_of(np.arange(book.num_nodes)).astype(np.uint8) if typed else None
    keys, found = node_keys(job.store, index), {}
    for node_type in target_types(job.store.schema):
        rows = book.rows(index, node_type)
        first = book.start(index) + rows.start
        visited = walks_from(first, keys[rows], graph, word=job.word(), types=types, job=job)
        found[number_of(job, node_type)] = _instances(first, visited)
    return deliver(index, job, found)


def take_step(index: int, inbox: Inbox, *, job: WalkJob, step: int) -> TaskOutput:
    """Take one step with every walk at a node of this partition."""
    book = job.store.book
    offsets = offsets_of(to_numpy(inbox.read("degrees", tasks=[index])["degree"]))
    graph = Steps.of(offsets, [inbox.read("sources", tasks=[index])])
    root, word, number, last = _walkers(index, inbox, job, step)
    local = last - book.start(index)
    # a walk at a node without in-edges ends
    going = np.flatnonzero(offsets[local + 1] - offsets[local])
    root, word, number, local = root[going], word[going], number[going], local[going]
    reached = graph.reached(local, draws(word, number, step=step, length=job.length))
    emits = []
    if step < job.length - 1:
        columns = {"root": root, "word": word, "walk": number.astype(np.uint16), "last": reached}
        emits.append(Emit(f"walkers_{step}", pa.table(columns), book.owner(reached)))
    # a visit counts at nodes of the root's type other than the root
    seen = reached != root
    if job.store.schema.num_types > 1:
        seen &= book.type_of(reached) == book.type_of(root)
    # place of the visit among the root's: of equally visited nodes the one met first is kept
    order = (number[seen] * job.length + step).astype(np.uint32)
    visits = pa.table({"root": root[seen], "node": reached[seen], "order": order})
    emits.append(Emit(f"visits_{step}", visits, book.owner(root[seen])))
    return TaskOutput(emits=tuple(emits), counts={"walks": len(root)})


class _Walkers(NamedTuple):
    """Walks [W]: root, hash of the draws, number among the root's walks, and node of each."""

    roots: Array
    words: KeyArray
    numbers: IntArray
    nodes: Array


def _walkers(index: int, inbox: Inbox, job: WalkJob, step: int) -> _Walkers:
    """Return the walks in this partition before a step."""
    if step:
        rows = inbox.read(f"walkers_{step - 1}")
        root, word, number, last = (to_numpy(rows[name]) for name in ("root", "word", "walk", "last"))
        return _Walkers(root, word, number.astype(np.int64), last)
    book, leads = job.store.book, target_types(job.store.schema)
    rows = [np.arange(book.rows(index, each).start, book.rows(index, each).stop) for each in leads]
    # rows of the roots among the nodes here, each once per walk [n W]
    local = np.repeat(np.concatenate(rows), job.walks)
    root = (local + book.start(index)).astype(job.id_type)
    number = np.tile(np.arange(job.walks), len(local) // job.walks)
    return _Walkers(root, combine(node_keys(job.store, index), job.word())[local], number, root)


def gather(index: int, inbox: Inbox, *, job: WalkJob) -> TaskOutput:
    """Count the visits that were sent to a partition's roots."""
    tables = [piece for step in range(job.length) for piece in inbox.pieces(f"visits_{step}")]
    rows = pa.concat_tables(tables).combine_chunks()
    root, node, order = (to_numpy(rows[name]) for name in ("root", "node", "order"))
    book, found = job.store.book, {}
    # the type of each visit's root [V]
    types = book.type_of(root) if job.store.schema.num_types > 1 else np.zeros(len(root), np.int64)
    for node_type in target_types(job.store.schema):
        own = types == node_type
        rows_of = book.rows(index, node_type)
        first = book.start(index) + rows_of.start
        roots = np.arange(first, first + rows_of.stop - rows_of.start)
        visited = most_visited(Visits(root[own], node[own], order[own]), roots, top_k_of_each=job.top_k)
        found[number_of(job, node_type)] = _instances(first, visited)
    return deliver(index, job, found)


def _instances(first: int, visited: Visited) -> Instances:
    """Return the visits of the roots from `first` on as instances."""
    roots = np.repeat(np.arange(first, first + len(visited.kept)), visited.kept)
    return Instances(roots, visited.nodes, visited.weight)
