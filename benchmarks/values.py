"""Processor seconds and memory of fitting a categorical column of many values, and of scikit-learn's encoder.

    python benchmarks/values.py [--rows 4000000] [--values 1000000] [--repeats 3]

A Parquet file of `rows` nodes with a column of text, whose values have a power law's frequencies and are all there.
`gnnflow`: ingest's fit of that column, chunk by chunk, with its exchange through files, in one process. The others:
the column as an array of Python's strings, and OneHotEncoder's fit on it, with the limits that its name says; `read`
is their time for reading the file. Forms take turns, each in a separate process; medians. Memory is what the process
grows by at its peak.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import FOLDER, Benchmark, Chosen, Found, cell, folder_of, peak_mib, run

KEPT = 64
LIMITS: dict[str, dict[str, Any]] = {
    "OneHotEncoder()": {},
    f"OneHotEncoder(max_categories={KEPT + 1})": {"max_categories": KEPT + 1},
    "OneHotEncoder(min_frequency=100)": {"min_frequency": 100},
}
ROW_GROUP = 250_000
EXPONENT = 1.5


def write_tables(folder: Path, *, rows: int, values: int) -> None:
    """Write the nodes, every value at least once, and two edges."""
    rng = np.random.default_rng(0)
    drawn = np.minimum(rng.zipf(EXPONENT, rows - values) - 1, values - 1)
    place = rng.permutation(np.concatenate([np.arange(values), drawn]))
    names = pa.array(np.char.mod("value %d", np.arange(values)))
    nodes = {"id": np.arange(rows), "column": names.take(pa.array(place)), "label": np.arange(rows) % 2}
    pq.write_table(pa.table(nodes), folder / "nodes.parquet", row_group_size=ROW_GROUP)
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 2]}), folder / "edges.parquet")


def own(chosen: Chosen) -> Found:
    """Return the figures of gnnflow's fit."""
    from gnnflow.config import config_from_dict
    from gnnflow.graph.encodings import CategoricalState
    from gnnflow.ingest.encodings import fit_columns
    from gnnflow.ingest.tables import read_tables
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.mapreduce.schedulers import Synchronous

    tables = {name: f"{chosen.folder}/{name}.parquet" for name in ("nodes", "edges")}
    given = {"name": "values", "graph": {**tables, "features": ["column"], "partitions": chosen.partitions}}
    graph = config_from_dict(given).graph
    with tempfile.TemporaryDirectory() as folder:
        runner = RoundRunner(folder, Synchronous())
        read = read_tables(graph, runner)
        before, begin = peak_mib(), time.process_time()
        (part,) = fit_columns(read, graph, runner, given={}).nodes[0].schema.parts
        seconds = time.process_time() - begin
    assert isinstance(part.state, CategoricalState)
    assert part.state.distinct == chosen.values
    return {"read": None, "seconds": seconds, "mib": peak_mib() - before, "columns": len(part.state.outputs)}


def theirs(chosen: Chosen) -> Found:
    """Return the figures of scikit-learn's encoder with limits."""
    from sklearn.preprocessing import OneHotEncoder

    before, begin = peak_mib(), time.process_time()
    column = pq.read_table(f"{chosen.folder}/nodes.parquet", columns=["column"])["column"].to_numpy()[:, None]
    read = time.process_time()
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", **LIMITS[chosen.form]).fit(column)
    seconds = time.process_time() - read
    found = {"read": read - begin, "seconds": seconds, "mib": peak_mib() - before}
    return {**found, "columns": len(encoder.get_feature_names_out())}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield a row for gnnflow and for each form of scikit-learn's encoder."""
    with folder_of(chosen.folder) as folder:
        if not (folder / "edges.parquet").exists():
            write_tables(folder, rows=chosen.rows, values=chosen.values)
        found: dict[str, list[Found]] = {}
        for _ in range(chosen.repeats):
            for form in ("gnnflow", *LIMITS):
                name = "own" if form == "gnnflow" else "theirs"
                found.setdefault(form, []).append(cell(chosen, name, folder=str(folder), form=form))
    for form, ran in found.items():
        read, seconds, mib = ([each[key] for each in ran] for key in ("read", "seconds", "mib"))
        yield (
            form,
            ran[0]["columns"],
            None if None in read else statistics.median(read),
            statistics.median(seconds),
            max(mib),
        )


BENCH = Benchmark(
    columns=("form", "columns made", "read s", "fit s", "memory MiB"),
    rows=rows,
    options={
        "rows": 4_000_000,
        "values": 1_000_000,
        "partitions": 8,
        "repeats": 3,
        "folder": FOLDER,
        "form": "",
    },
    small={"rows": 3_000, "values": 500, "repeats": 1},
    cells={"own": own, "theirs": theirs},
)


if __name__ == "__main__":
    run(BENCH)
