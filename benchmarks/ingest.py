"""Ingest: processor seconds per edge and the peak of a process, with another checkout, DuckDB's joins and DGL in turns.

    python benchmarks/ingest.py [--folder FOLDER] [--text] [--turns 3]
    python benchmarks/ingest.py --before CHECKOUT --dgl PYTHON
    python benchmarks/ingest.py --nodes 10000000 --edges 100000000 --before CHECKOUT --memory 2GiB    # 15 GB of disk

A power-law graph (`gnnflow.datasets.write_power_law`), its ids made random numbers; --text makes them text. Each form
is a command in a separate process, in turns. Processor seconds are of the command with all of its processes, peaks of
the largest of them. `gnnflow ingest` runs with two workers; --before names another checkout of this project, whose core
is built, that the same interpreter runs as well.

The peers do a part of the work: DuckDB joins both ends of the edges with the ids, in two threads within the same
memory, and writes the numbered edges as Parquet; DGL's user reads both tables, numbers the ends with pandas and makes
the graph in memory. Neither checks a row, cuts the graph or writes a store.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from harness import DGL, FOLDER, HERE, Benchmark, Chosen, Found, Option, folder_of, run, tell

ROW_GROUP = 1 << 20
JOINS = """
COPY (SELECT s.place AS src, d.place AS dst FROM read_parquet('{edges}') AS e
      JOIN n AS s ON e.src = s.id JOIN n AS d ON e.dst = d.id) TO '{out}' (FORMAT parquet)
"""


def make_tables(folder: Path, chosen: Chosen) -> None:
    """Write the node and the edge table, unless they are there."""
    nodes, edges = folder / "nodes.parquet", folder / "edges.parquet"
    if edges.exists():
        return
    from gnnflow.datasets import write_power_law

    drawn = write_power_law(str(folder / "drawn"), num_nodes=chosen.nodes, num_edges=chosen.edges)
    ids: Any = np.random.default_rng(3).permutation(4 * chosen.nodes)[: chosen.nodes]
    ids = pa.array(ids)
    if chosen.text:
        ids = pc.binary_join_element_wise("user-", ids.cast(pa.string()), "")
    table = pq.read_table(drawn[0])
    pq.write_table(table.set_column(0, "id", ids.take(table["id"].combine_chunks())), nodes)
    del table
    with pq.ParquetWriter(edges, pa.schema({"src": ids.type, "dst": ids.type})) as writer:
        for file in sorted(Path(drawn[1]).glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(ROW_GROUP):
                ends = {name: ids.take(batch[name]) for name in ("src", "dst")}
                writer.write_table(pa.table(ends), row_group_size=ROW_GROUP)
            file.unlink()


def command(words: list[str], *, at: Path | None = None) -> Found:
    """Run a command in a folder; return its seconds, its processor seconds and the peak of its largest process."""
    begin = time.perf_counter()
    with subprocess.Popen(words, cwd=at, stdout=subprocess.DEVNULL) as process:  # noqa: S603
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words[1:4])} ended with {process.returncode}")
    spent = used.ru_utime + used.ru_stime
    return {"seconds": time.perf_counter() - begin, "cpu": spent, "mib": used.ru_maxrss / 1024}


def ingest(folder: Path, chosen: Chosen, *, checkout: Path) -> Found:
    """Run `gnnflow ingest` of a checkout in a new workspace, which is deleted."""
    from gnnflow.storage.writing import remove_tree

    folder = folder.resolve()  # the command runs elsewhere
    tables = {name: str(folder / f"{name}.parquet") for name in ("nodes", "edges")}
    workspace = folder / "workspace"
    content = {
        "name": "ingest",
        "workspace": str(workspace),
        "graph": {**tables, "features": ["x"], **({"partitions": chosen.partitions} if chosen.partitions else {})},
        "cluster": {"kind": "local", "workers": 2, "memory_limit": chosen.memory},
    }
    config = folder / "config.yaml"
    config.write_text(json.dumps(content))
    # `python -m` takes the package of the folder that it runs in, before any other
    found = command([sys.executable, "-m", "gnnflow", "ingest", str(config)], at=checkout)
    (manifest,) = workspace.glob("artifacts/ingest/*/manifest.json")
    made = json.loads(manifest.read_text())
    found["mib"] = max(each["peak_bytes"] for each in made["timings"]["rounds"]) >> 20
    remove_tree(str(workspace))
    return found


def join(chosen: Chosen) -> Found:
    """Write all edges with the numbers of their ends, found by DuckDB."""
    import duckdb

    folder = Path(chosen.folder)
    with duckdb.connect() as connection:
        connection.execute(
            f"SET threads = 2; SET memory_limit = '{chosen.memory}'; SET preserve_insertion_order = false"
        )
        nodes, out = folder / "nodes.parquet", folder / "joined.parquet"
        query = f"CREATE TABLE n AS SELECT id, row_number() OVER () - 1 AS place FROM read_parquet('{nodes}')"  # noqa: S608
        connection.execute(query)
        connection.execute(JOINS.format(edges=folder / "edges.parquet", out=out))
    out.unlink()
    return {}


def forms_of(folder: Path, chosen: Chosen) -> dict[str, Any]:
    """Return the forms by name; a peer that is missing here is left out."""
    given = json.dumps({"folder": str(folder), "memory": chosen.memory})
    forms: dict[str, Any] = {"gnnflow": lambda: ingest(folder, chosen, checkout=HERE.parent)}
    if chosen.before:
        forms["gnnflow, before"] = lambda: ingest(folder, chosen, checkout=Path(chosen.before).resolve())
    if importlib.util.find_spec("duckdb", None) or chosen.duckdb:
        words = [chosen.duckdb or sys.executable, str(Path(__file__)), "--cell", "join", "--given", given]
        forms["DuckDB, two joins"] = lambda: command(words)
    if chosen.dgl:
        words_of_peer = [chosen.dgl, str(HERE / "peers.py"), "read_tables", json.dumps({"folder": str(folder)})]
        forms["pandas and DGL, in memory"] = lambda: command(words_of_peer)
    return forms


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the medians of each form."""
    with folder_of(chosen.folder) as folder:
        make_tables(folder, chosen)
        found: dict[str, list[Found]] = {}
        for turn in range(chosen.turns):
            for name, form in forms_of(folder, chosen).items():
                found.setdefault(name, []).append(form())
                tell(f"turn {turn}: {name}: {found[name][-1]}")
        for name, turns in found.items():
            seconds, spent, mib = (statistics.median(each[key] for each in turns) for key in ("seconds", "cpu", "mib"))
            yield name, spent, 1e9 * spent / chosen.edges, seconds, mib


BENCH = Benchmark(
    columns=("form", "processor s", "ns per edge", "seconds", "largest process MiB"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "text": Option(default=False, help="ids are text"),
        "partitions": Option(0, "0: as many as follow from the memory"),
        "memory": Option("2GiB", "of each worker, and of DuckDB"),
        "before": Option("", "another checkout of this project"),
        "dgl": DGL,
        "duckdb": Option("", "interpreter that has DuckDB and pyarrow; this one by default"),
        "turns": 3,
    },
    small={"nodes": 2_000, "edges": 10_000, "turns": 1},
    cells={"join": join},
)


if __name__ == "__main__":
    run(BENCH)
