"""A graph with the shape of ogbn-papers100M, from tables to scores for every node: the cost of each stage and its plan.

    python benchmarks/papers.py --fraction 0.03 --folder FOLDER

The whole graph has 111 million nodes with 128 columns, 1.6 billion edges, 172 classes, and labels of 1.4 % of its nodes
(Hu et al., "Open Graph Benchmark", NeurIPS 2020); --fraction makes a part of it, piece by piece, in the memory of a
piece. In-degrees follow a power law with exponent 2.5. Classes are runs of ids and most sources lie near their target,
so neighbours agree; features are the centre of the class with noise, as float16 in the tables.

Seconds and processor seconds are of a stage with its workers' start. Memory is the largest resident size of this
process, and of the largest worker, mapped files included. Disk is the most that the folder held during a stage. With
--lean the tables are deleted after ingest, and the shards after training, which no later stage reads. Plan columns are
of `gnnflow plan`, which runs first unless --no-plan is given; planned disk is added to what the folder holds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from harness import FOLDER, Benchmark, Chosen, Found, Option, folder_of, numbers, run, tell

from gnnflow.config import config_from_dict
from gnnflow.progress import Silent
from gnnflow.stages import entry
from gnnflow.stages.base import StageContext
from gnnflow.stages.rehearsal import memory_here

NODES, EDGES, WIDTH, CLASSES = 111_059_956, 1_615_685_872, 128, 172
SPLITS = {"train": 1_207_179, "valid": 125_265, "test": 214_338}
NODES_OF_PARTITION = 1 << 18
NODE_PIECE, EDGE_PIECE, NODE_GROUP, EDGE_GROUP = 1 << 19, 1 << 22, 1 << 17, 1 << 20
SIGNAL = 0.1  # standard deviation of a column between centres of classes; 1 within a class
FAR = 0.2  # share of sources that lie anywhere
NEAR = 16  # the least distance of the others, whose median is twice that
LOOK_SECONDS, DISK_SECONDS = 0.05, 1.0


def graph_in(folder: Path, *, fraction: float, seed: int) -> tuple[str, str]:
    """Return the node and the edge table in a folder; make them if they are missing."""
    known, tables = folder / "graph.json", (folder / "nodes", folder / "edges")
    about = {"fraction": fraction, "seed": seed}
    if not known.exists() or json.loads(known.read_text()) != about:
        for table in tables:
            shutil.rmtree(table, ignore_errors=True)
            table.mkdir(parents=True)
        num_nodes, num_edges = (round(fraction * count) for count in (NODES, EDGES))
        for number, first in enumerate(range(0, num_nodes, NODE_PIECE)):
            nodes = node_piece(number, range(first, min(first + NODE_PIECE, num_nodes)), num_nodes, seed)
            write_piece(tables[0], number, nodes, NODE_GROUP)
        for number, first in enumerate(range(0, num_edges, EDGE_PIECE)):
            edges = edge_piece(number, min(EDGE_PIECE, num_edges - first), num_nodes, seed)
            write_piece(tables[1], number, edges, EDGE_GROUP)
        known.write_text(json.dumps(about))
    return str(tables[0]), str(tables[1])


def write_piece(folder: Path, number: int, piece: pa.Table, row_group: int) -> None:
    """Write a file of a table; nothing in it would shrink much."""
    path = folder / f"part-{number:05d}.parquet"
    pq.write_table(piece, path, row_group_size=row_group, compression="none", use_dictionary=["split"])


def node_piece(number: int, ids: range, num_nodes: int, seed: int) -> pa.Table:
    """Return nodes: id, x, label and split, the last two null but for targets."""
    rng = np.random.default_rng([seed, 1, number])
    shared = np.random.default_rng([seed, 0])
    centres = SIGNAL * shared.standard_normal((CLASSES, WIDTH), np.float32)
    share = np.cumsum(1 / np.sqrt(np.arange(1, CLASSES + 1)))
    label = np.searchsorted(share / share[-1] * num_nodes, np.arange(ids.start, ids.stop), side="right")
    x = rng.standard_normal((len(ids), WIDTH), np.float32)
    x += centres[np.minimum(label, CLASSES - 1)]
    bounds = np.cumsum([*SPLITS.values()]) / NODES
    split = np.searchsorted(bounds, rng.random(len(ids)), side="right")
    if not ids.start:  # every split has a node in any fraction
        split[: len(SPLITS)] = np.arange(len(SPLITS))
    others = split == len(SPLITS)
    return pa.table(
        {
            "id": pa.array(np.arange(ids.start, ids.stop)),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float16).ravel()), WIDTH),
            "label": pa.array(np.minimum(label, CLASSES - 1), mask=others),
            "split": pa.array([*SPLITS]).take(pa.array(split, mask=others)),
        }
    )


def edge_piece(number: int, rows: int, num_nodes: int, seed: int) -> pa.Table:
    """Return edges: src, dst. The node of popularity rank k gets edges in proportion to k^(-2/3)."""
    rng = np.random.default_rng([seed, 2, number])
    rank = (num_nodes * rng.random(rows) ** 3).astype(np.int64)
    dst = rank * coprime(num_nodes) % num_nodes
    # distances have the tail 1/d, so some are longer than any class
    distance = (NEAR / (1 - rng.random(rows))).astype(np.int64) % num_nodes
    near = np.where(rng.random(rows) < 0.5, dst + distance, dst - distance) % num_nodes  # noqa: PLR2004 - either side
    src = np.where(rng.random(rows) < FAR, rng.integers(0, num_nodes, rows), near)
    return pa.table({"src": src.astype(np.int32), "dst": dst.astype(np.int32)})


def coprime(count: int) -> int:
    """Return a step that meets every number below a count, about 0.618 of it."""
    step = max(int(0.618034 * count), 1)
    while np.gcd(step, count) != 1:
        step += 1
    return step


def config_of(chosen: Chosen, folder: Path) -> Found:
    """Return the config; two hops of ten, since the rows of three hops would take five times the disk."""
    nodes, edges = graph_in(folder, fraction=chosen.fraction, seed=chosen.seed)
    fanout = numbers(chosen.fanout)
    partitions = chosen.partitions or max(4, -(-round(chosen.fraction * NODES) // NODES_OF_PARTITION))
    cluster = {"kind": "local", "workers": chosen.workers, "memory_limit": chosen.memory}
    return {
        "name": "papers",
        "workspace": str(folder / "workspace"),
        "graph": {
            "nodes": nodes,
            "edges": edges,
            "num_classes": CLASSES,
            "partitions": partitions,
            "storage": "float16",  # as in the tables
        },
        "neighbors": {"sampling": {"kind": "uniform", "fanout": fanout}},
        "flat": {"hops": len(fanout), "layout": "shared"},
        "model": {"kind": "sage", "hidden": chosen.hidden, "layers": len(fanout), "dropout": 0.0},
        "train": {"epochs": chosen.epochs, "batch_size": 1024, "lr": 0.003},
        "cluster": cluster if chosen.workers else {"kind": "synchronous"},
    }


@dataclass
class Watch:
    """The cost of a `with` block: seconds, of processors too, largest sizes in memory, and bytes in a folder."""

    folder: Path
    seconds: float = 0.0
    own: int = 0
    worker: int = 0
    disk: int = 0
    _used: dict[int, float] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Start the threads that look."""
        memory_here()
        self._before, self._begin = self._processor(), time.monotonic()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._look, self._look_at_disk)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the threads."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        self.seconds = time.monotonic() - self._begin

    @property
    def processor(self) -> float:
        """The processor seconds of this process and its workers."""
        return self._processor() - self._before + sum(self._used.values())

    @staticmethod
    def _processor() -> float:
        times = os.times()
        return times.user + times.system

    def _look(self) -> None:
        process = psutil.Process()
        while True:
            self.own = max(self.own, process.memory_info().rss)
            for each in process.children(recursive=True):
                try:
                    times = each.cpu_times()
                    self._used[each.pid] = times.user + times.system
                    self.worker = max(self.worker, each.memory_info().rss)
                except psutil.Error:  # it has ended
                    continue
            if self._ends.wait(LOOK_SECONDS):
                return

    def _look_at_disk(self) -> None:
        while True:
            self.disk = max(self.disk, size_of(str(self.folder)))
            if self._ends.wait(DISK_SECONDS):
                return


def size_of(folder: str) -> int:
    """Return the bytes of all files in a folder; some may be deleted meanwhile."""
    total = 0
    try:
        for each in os.scandir(folder):
            total += size_of(each.path) if each.is_dir(follow_symlinks=False) else each.stat().st_size
    except FileNotFoundError:
        pass
    return total


def planned(config: Path) -> tuple[Found, float]:
    """Return the plan of the run, and the seconds that it took."""
    begin = time.monotonic()
    words = [sys.executable, "-m", "gnnflow", "plan", str(config), "--json"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
    return json.loads(done.stdout), time.monotonic() - begin


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the cost of each stage, its edges and targets per second and core, and its plan."""
    with folder_of(chosen.folder) as folder:
        begin = time.monotonic()
        content = config_of(chosen, folder)
        tell(f"the tables took {time.monotonic() - begin:.0f} s, {size_of(str(folder)) / 2**30:.2f} GiB")
        file = folder / "config.yaml"
        file.write_text(json.dumps(content))
        plan: Found = {}
        if not chosen.no_plan:
            plan, took = planned(file)
            tell(f"the plan took {took:.0f} s: {plan['seconds']:.0f} s")
        run_of = StageContext.of(config_from_dict(content)).run
        num_edges = round(chosen.fraction * EDGES)
        targets = round(chosen.fraction * sum(SPLITS.values()))
        done = {"train": targets * chosen.epochs, "infer": round(chosen.fraction * NODES)}
        for stage in run_of.stages:
            held = size_of(str(folder))
            with Watch(folder) as watch, entry.cluster_of(run_of, say=tell) as cluster:
                entry.perform(StageContext(run_of, cluster, Silent()), stage)
            used = watch.processor
            guess = plan.get("stages", {}).get(stage, {})
            memory = [guess.get(key) or 0 for key in ("memory", "worker_memory")]
            per_target = done.get(stage, targets) / used if stage in {"flat", *done} else None
            yield (
                stage,
                watch.seconds,
                used,
                watch.own / 2**20,
                watch.worker / 2**20,
                watch.disk / 2**30,
                None if stage == "train" else num_edges / used,
                per_target,
                guess.get("seconds"),
                max(memory) / 2**20 if guess else None,
                (held + max(guess["disk"], guess["num_bytes"])) / 2**30 if guess else None,
            )
            if chosen.lean and stage == "ingest":
                for name in ("nodes", "edges", "graph.json"):
                    each = folder / name
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            if chosen.lean and stage == "train":
                shutil.rmtree(run_of.artifact("flat"), ignore_errors=True)


BENCH = Benchmark(
    columns=(
        "stage",
        "seconds",
        "processor seconds",
        "process MiB",
        "worker MiB",
        "disk GiB",
        "edges/s/core",
        "targets/s/core",
        "planned seconds",
        "planned MiB",
        "planned disk",
    ),
    rows=rows,
    options={
        "fraction": Option(0.01, "of the nodes, edges and targets of ogbn-papers100M"),
        "fanout": Option("10,10", "in-edges of a target, then of its neighbours: a layer each"),
        "hidden": 64,
        "epochs": 3,
        "partitions": Option(0, f"0 is one for {NODES_OF_PARTITION:,} nodes"),
        "workers": Option(2, "0 runs tasks in this process"),
        "memory": Option("6GiB", "of a worker"),
        "lean": Option(default=False, help="delete tables after ingest, and shards after training"),
        "no_plan": Option(default=False, help="make no plan"),
        "seed": 0,
        "folder": FOLDER,
    },
    small={"fraction": 0.00005, "epochs": 1, "workers": 0, "no_plan": True},
)


if __name__ == "__main__":
    run(BENCH)
