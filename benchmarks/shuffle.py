"""One join of 10M rows with 1M rows, Parquet to Parquet: our materialised exchange beside Dask's p2p shuffle.

    python benchmarks/shuffle.py --rows 10000000 --rounds 3

Both run on the same kind of LocalCluster (2 workers x 1 thread), in turn. Prints one JSON line per run (seconds, the
largest worker's resident bytes, bytes written in between) and a summary.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.graph.hashing import hash_integers
from gnnflow.mapreduce.exchange import Emit, Inbox
from gnnflow.mapreduce.rounds import Round, RoundRunner, TaskOutput
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.tables import commit_table, read_table

FILES = 8
PARTITIONS = 8


class PeakMemory(threading.Thread):
    """Polls the largest resident size among this process's children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        """Poll until stopped."""
        me = psutil.Process()
        while not self.stopped.wait(0.05):
            for child in me.children(recursive=True):
                try:
                    self.peak = max(self.peak, child.memory_info().rss)
                except psutil.Error:
                    continue


def make_tables(folder: Path, rows: int) -> None:
    """Write left (rows) and right (rows / 10) tables, FILES files each."""
    rng = np.random.default_rng(0)
    keys = rows // 10
    for number in range(FILES):
        left = pa.table({"key": rng.integers(0, keys, rows // FILES), "value": rng.random(rows // FILES)})
        pq.write_table(left, folder / f"left-{number}.parquet")
        part = np.arange(number, keys, FILES)
        pq.write_table(pa.table({"key": part, "x": rng.random(len(part))}), folder / f"right-{number}.parquet")


def read_side(index: int, _: Inbox, *, folder: str, side: str) -> TaskOutput:
    """Map: send rows to the partition of their key."""
    table = read_table(f"{folder}/{side}-{index}.parquet")
    home = (hash_integers(to_numpy(table["key"])) % np.uint64(PARTITIONS)).astype(np.int64)
    return TaskOutput(emits=(Emit(side, table, home),))


def join_sides(index: int, inbox: Inbox, *, out: str) -> TaskOutput:
    """Reduce: join one partition."""
    joined = inbox.read("left").join(inbox.read("right"), "key", join_type="inner")
    return TaskOutput(files=(commit_table(out, f"part-{index}.parquet", joined),), counts={"rows": joined.num_rows})


def ours(folder: Path, scratch: Path, cluster: Cluster) -> tuple[int, int]:
    """Run the join as rounds; returns rows and bytes exchanged."""
    runner = RoundRunner(str(scratch / "work"), cluster)
    for side in ("left", "right"):
        runner.run(Round(side, FILES, PARTITIONS, partial(read_side, folder=str(folder), side=side)))
    last = Round(
        "join", PARTITIONS, 1, partial(join_sides, out=str(scratch / "out")), {"left": "left", "right": "right"}
    )
    rows = sum(record.counts["rows"] for record in runner.run(last))
    return rows, sum(timing.exchanged_bytes for timing in runner.timings)


def p2p(folder: Path, scratch: Path, cluster: Cluster) -> tuple[int, int]:
    """Run the join as a Dask dataframe merge with the p2p shuffle."""
    import dask
    import dask.dataframe as dd

    del cluster
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        left = dd.read_parquet(str(folder / "left-*.parquet"))
        right = dd.read_parquet(str(folder / "right-*.parquet"))
        left.merge(right, on="key", how="inner").to_parquet(str(scratch / "out"), write_index=False)
    return sum(pq.read_metadata(file).num_rows for file in (scratch / "out").glob("*.parquet")), 0


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Run one contender on a fresh cluster."""
    scratch = Path(tempfile.mkdtemp(prefix="shuffle-"))
    with Cluster(LocalCluster(workers=2, memory_limit="2GiB")) as cluster:
        cluster.scheduler()
        watch = PeakMemory()
        watch.start()
        begin = time.perf_counter()
        rows, exchanged = {"ours": ours, "p2p": p2p}[name](folder, scratch, cluster)
        seconds = time.perf_counter() - begin
        watch.stopped.set()
    shutil.rmtree(scratch)
    return {
        "name": name,
        "seconds": round(seconds, 2),
        "rows": rows,
        "peak_mib": watch.peak >> 20,
        "exchanged_mib": exchanged >> 20,
    }


def main() -> None:
    """Alternate the contenders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shuffle-in-"))
    make_tables(folder, arguments.rows)
    runs = [measure(name, folder) for _ in range(arguments.rounds) for name in ("ours", "p2p")]
    shutil.rmtree(folder)
    for run in runs:
        print(json.dumps(run))
    median = {
        name: statistics.median(run["seconds"] for run in runs if run["name"] == name) for name in ("ours", "p2p")
    }
    print(json.dumps({"median_seconds": median, "p2p_over_ours": round(median["p2p"] / median["ours"], 2)}))


if __name__ == "__main__":
    main()
