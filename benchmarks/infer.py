"""GraphInfer with its exchange behind a link of limited rate: overlapped or not, rows alone or states where fewer.

    python benchmarks/infer.py [--folder FOLDER] [--rate 50 --latency 10 --turns 3]

Scores all nodes of a power-law graph with an untrained model of 2 layers, tasks one after the other in one process, so
that what a task overlaps is all that is. The exchange, and with --store-behind-link the graph store too, is in memory
behind the link; --rate 0 is no limit. Ways take turns, after one run of each that is not counted. --inward W gives W
nodes in a hundred all in-edges, as merchants have in a graph of payments: few targets of many sources. --merchants M
makes the graph a typed one: as many edges again lead from nodes, now accounts, to M merchants, whose share of them
falls by a power law, and back.

The link is a filesystem in memory, as an object store is, `limited://`:

    with link(mib_per_second=50, seconds_per_request=0.01) as carried:
        ...                                  # reads and writes below limited:// take this time
    carried.read, carried.written            # bytes
    carried.used                             # the intervals in which it carried them, by `time.monotonic`

All threads of the process share the link. A request waits for the latency, then for the bytes of earlier requests and
its own; other threads run meanwhile, as with a real network.
"""

from __future__ import annotations

import io
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from graphflat import tables_in
from harness import FOLDER, Benchmark, Chosen, Option, folder_of, run
from scoring import untrained_job

from gnnflow.config import config_from_dict
from gnnflow.infer.choice import Exchange
from gnnflow.infer.job import InferJob
from gnnflow.infer.run import run_rounds
from gnnflow.layers.typed import TypedInputs
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.writing import copy_file, remove_tree

PROTOCOL = "limited"
WAYS = {
    "rows, one after the other": Exchange("rows", "nothing"),
    "rows, fetched beside the block": Exchange("rows", "no piece"),
    "rows, every piece overlapped": Exchange("rows", "every piece"),
    "as it is chosen": Exchange(),
    "states wherever they can be": Exchange("states", "every piece"),
}
WORK = f"{PROTOCOL}://work"


@dataclass
class Link:
    """The rate and latency of the link, and the bytes it carried so far; a rate of 0 means no limit."""

    bytes_per_second: float = 0.0
    seconds_per_request: float = 0.0
    read: int = 0
    written: int = 0
    used: list[tuple[float, float]] = field(default_factory=list)
    _free_at: float = 0.0
    _lock: Any = field(default_factory=threading.Lock)

    def carry(self, *, read: int = 0, written: int = 0) -> None:
        """Wait as long as a request of this many bytes takes."""
        with self._lock:
            self.read += read
            self.written += written
            if not self.bytes_per_second:
                return
            begin = max(time.monotonic() + self.seconds_per_request, self._free_at)
            self._free_at = begin + (read + written) / self.bytes_per_second
            until = self._free_at
            self.used.append((begin, until))
        time.sleep(max(until - time.monotonic(), 0.0))


class _Reader(io.BytesIO):
    """A file whose reads are requests."""

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        LimitedFileSystem.link.carry(read=len(content))
        return content


class LimitedFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory, read and written over the link."""

    protocol = PROTOCOL
    store: ClassVar[dict[str, MemoryFile]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    link: ClassVar[Link] = Link()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{PROTOCOL}://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a file or a part of it, as one request."""
        content = bytes(super().cat_file(path, start=start, end=end, **options))
        self.link.carry(read=len(content))
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file, as one request."""
        self.link.carry(written=len(value))
        super().pipe_file(path, value, mode=mode, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Open a file; reads of it are requests."""
        opened = super().open(path, mode, **options)
        return _Reader(opened.getvalue()) if mode == "rb" else opened


@contextmanager
def link(*, mib_per_second: float, seconds_per_request: float = 0.0) -> Iterator[Link]:
    """Set the link within a block; before and afterwards it takes no time."""
    LimitedFileSystem.link = Link(mib_per_second * 2**20, seconds_per_request)
    try:
        yield LimitedFileSystem.link
    finally:
        LimitedFileSystem.link = Link()


fsspec.register_implementation(PROTOCOL, LimitedFileSystem, clobber=True)


def with_merchants(chosen: Chosen, nodes: str, edges: str) -> dict[str, Any]:
    """Return the section of a typed graph; make its tables if they are missing."""
    names = ("merchants", "pays", "serves")
    merchants, pays, serves = (Path(chosen.folder) / f"{name}-{chosen.merchants}.parquet" for name in names)
    if not merchants.exists():
        rng = np.random.default_rng(1)
        share = 1 / np.arange(1, chosen.merchants + 1)
        merchant = rng.choice(chosen.merchants, chosen.edges, p=share / share.sum())
        account = rng.integers(0, chosen.nodes, chosen.edges)
        pq.write_table(pa.table({"src": account, "dst": merchant}), pays)
        pq.write_table(pa.table({"src": merchant, "dst": account}), serves)
        pq.write_table(pa.table({"id": np.arange(chosen.merchants)}), merchants)
    return {
        "nodes": {"account": nodes, "merchant": str(merchants)},
        "edges": {
            "account__knows__account": edges,
            "account__pays__merchant": str(pays),
            "merchant__serves__account": str(serves),
        },
        "target": "account",
    }


def store_of(chosen: Chosen) -> GraphStore:
    """Return the graph store; make it if it is missing."""
    nodes, edges = tables_in(Path(chosen.folder), num_nodes=chosen.nodes, num_edges=chosen.edges)
    if chosen.inward:
        edges = str(Path(chosen.folder) / f"inward-{chosen.inward}.parquet")
        if not Path(edges).exists():
            rng = np.random.default_rng(0)
            source, target = rng.integers(0, chosen.nodes, (2, chosen.edges))
            target %= chosen.nodes * chosen.inward // 100
            pq.write_table(pa.table({"src": source, "dst": target}), edges)
    graph = with_merchants(chosen, nodes, edges) if chosen.merchants else {"nodes": nodes, "edges": edges}
    content = {
        "name": "infer",
        "workspace": str(Path(chosen.folder) / "workspace"),
        "graph": {**graph, "partitions": chosen.partitions},
        "model": {"kind": "gcn"},
        "cluster": {"kind": "synchronous"},
    }
    made = make_artifact(StageContext.of(config_from_dict(content)), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    if not chosen.store_behind_link:
        return store
    folder = f"{PROTOCOL}://store"
    for name in list_names(store.artifact):
        copy_file(join(store.artifact, name), join(folder, name))
    return replace(store, artifact=folder)


def job_of(chosen: Chosen) -> InferJob:
    """Return the job that scores all nodes with an untrained model."""
    store = store_of(chosen)
    typed = TypedInputs.of(store.facts.schema, store.facts.features_of_types) if chosen.merchants else None
    keys = {"kind": chosen.model, "hidden": chosen.hidden}
    name = f"{chosen.model}-{chosen.hidden}-{chosen.merchants}"
    return untrained_job(Path(chosen.folder), Neighbors(store), keys, name=name, typed=typed)


def turns(chosen: Chosen, job: InferJob) -> Iterator[tuple[str, float, Link, str]]:
    """Yield the way, the seconds, the traffic of the link, and the sent rows and states of each run."""
    for turn in range(chosen.turns + 1):
        for name, exchange in WAYS.items():
            rate, latency = (chosen.rate, chosen.latency / 1000) if turn else (0.0, 0.0)
            with link(mib_per_second=rate, seconds_per_request=latency) as carried:
                begin = time.perf_counter()
                sent = run_rounds(replace(job, exchange=exchange), RoundRunner(WORK, Synchronous())).sent
                seconds = time.perf_counter() - begin
            remove_tree(WORK)
            if turn:
                yield name, seconds, carried, sent.text


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield seconds, and MiB over the link, of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    carried: dict[str, tuple[Link, str]] = {}
    with folder_of(chosen.folder) as folder:
        chosen.folder = str(folder)
        for name, took, over, sent in turns(chosen, job_of(chosen)):
            seconds[name].append(took)
            carried[name] = over, sent
    first = min(next(iter(seconds.values())))
    for name, found in seconds.items():
        over, sent = carried[name]
        figures = min(found), statistics.mean(found), first / min(found), over.read / 2**20, over.written / 2**20
        yield name, *figures, sent


BENCH = Benchmark(
    columns=("way", "min s", "mean s", "x as fast as the first", "read MiB", "written MiB", "sent"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 200_000,
        "edges": 2_000_000,
        "partitions": 4,
        "model": "sage",
        "hidden": 64,
        "rate": Option(50.0, "MiB per second; 0 is no limit"),
        "latency": Option(10.0, "milliseconds per request"),
        "inward": Option(0, "nodes in a hundred that all edges lead to; 0: power law"),
        "merchants": Option(0, "nodes of a second type; 0: a graph without types"),
        "store_behind_link": False,
        "turns": 3,
    },
    small={"nodes": 1_000, "edges": 10_000, "partitions": 2, "hidden": 8, "turns": 1, "latency": 1.0},
)


if __name__ == "__main__":
    run(BENCH)
