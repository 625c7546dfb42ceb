"""GraphFlat and the epoch that reads it: 1M nodes, 10M edges, 64 features, 100k targets, 2 hops, fan-out 15 then 10.

    python benchmarks/graphflat.py [--folder FOLDER]                     # ingest, select, GraphFlat, and the epoch
    python benchmarks/graphflat.py --shard-sizes 4096,16384 --workers 0
    python benchmarks/graphflat.py --layouts shared,inline --tenth      # AGL's layout too, of a tenth of the targets

The folder's graph is written once (`gnnflow.datasets.power_law`); one that already holds nodes.parquet and
edges.parquet or edges/ is used as it is. Stages run on a LocalCluster of 2 workers x 1 thread with 2 GiB each, fresh
for each stage, so that the peak belongs to one stage; with --workers 0 they run in this process, whose processor
seconds are shown. Rows: the stages; then the epoch's input path, batches of 1024: blocks alone of shards in memory
without features (`sample`), with the features of every sampled node (`sample+feat`), and each shard first read from
storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import FOLDER, Benchmark, Chosen, Found, Option, folder_of, in_turns, numbers, run

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict
from gnnflow.datasets import write_power_law
from gnnflow.graph.batch import Features
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.sampling import Sampling
from gnnflow.graphfeature.blocks import build_minibatch, new_scratch
from gnnflow.graphfeature.shards import Shard, read_shard
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.writing import remove_tree

FANOUT = (15, 10)
BATCH = 1024
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Job:
    """The measured job. tables: node and edge table; workspace: for the stages; workers 0: in this process."""

    tables: tuple[str, str]
    workspace: str
    partitions: int
    workers: int

    def config(self, **flat_keys: Any) -> Config:
        """Return the configuration of one run."""
        local = {"kind": "local", "workers": self.workers, "memory_limit": "2GiB"}
        content = {
            "name": "graphflat",
            "workspace": self.workspace,
            "graph": {"nodes": self.tables[0], "edges": self.tables[1], "partitions": self.partitions},
            "neighbors": {"sampling": {"kind": "uniform", "fanout": list(FANOUT)}},
            "flat": {"hops": 2, "layout": "shared", **flat_keys},
            "model": {"kind": "sage", "layers": 2},
            "cluster": local if self.workers else {"kind": "synchronous"},
        }
        return config_from_dict(content)

    def stage(self, stage: str, config: Config) -> tuple[ArtifactResult, Found]:
        """Run a stage on a separate cluster; return it with its figures."""
        with Cluster(config.cluster) as cluster:
            cluster.scheduler()
            begin = time.process_time()
            result = make_artifact(StageContext.of(config, cluster), stage)
            spent = None if self.workers else time.process_time() - begin
        rounds = result.manifest.timings["rounds"]
        figures = {
            "seconds": float(result.manifest.timings["seconds"]),
            "cpu": spent,
            "gib": max((each["peak_bytes"] for each in rounds), default=0) / GIB,
            "mib": sum(each["exchanged_bytes"] for each in rounds) / MIB,
        }
        return result, figures


def tables_in(folder: Path, *, num_nodes: int, num_edges: int) -> tuple[str, str]:
    """Return the node and edge table of a folder; generate missing ones."""
    if not (folder / "nodes.parquet").exists():
        folder.mkdir(parents=True, exist_ok=True)
        nodes, edges = write_power_law(str(folder), num_nodes=num_nodes, num_edges=num_edges)
        return nodes, edges
    edges_file = folder / "edges.parquet"
    return str(folder / "nodes.parquet"), str(edges_file if edges_file.exists() else folder / "edges")


def tenth_of_targets(tables: tuple[str, str], folder: Path) -> tuple[str, str]:
    """Write the node table with a split for a tenth of the targets only; return it with the same edges."""
    nodes = pq.read_table(tables[0])
    column = nodes.column_names.index("split")
    targets = np.flatnonzero(to_numpy(nodes["split"].is_valid()))
    kept = np.zeros(nodes.num_rows, bool)
    kept[np.random.default_rng(0).permutation(targets)[::10]] = True
    split = combine(nodes["split"]).filter(pa.array(kept)).take(pa.array(np.cumsum(kept) - 1, mask=~kept))
    path = folder / "nodes-tenth.parquet"
    pq.write_table(nodes.set_column(column, "split", split), path, row_group_size=1 << 17)
    return str(path), tables[1]


def epoch_over(shards: Callable[[], Iterator[Shard]]) -> None:
    """Build every batch of an epoch."""
    rng = np.random.default_rng(0)
    for shard in shards():
        scratch = new_scratch(shard.neighborhood.num_nodes)
        order = rng.permutation(len(shard.rows))
        for start in range(0, len(order), BATCH):
            rows = shard.rows[order[start : start + BATCH]]
            build_minibatch(
                shard.neighborhood, rows, sampling=Sampling("uniform", FANOUT), num_layers=2, scratch=scratch
            )


def without_features(shard: Shard) -> Shard:
    """Return a shard whose features have no columns."""
    none = Features(0, dense=np.zeros((shard.neighborhood.num_nodes, 0), np.float32))
    return replace(shard, neighborhood=replace(shard.neighborhood, features=none))


def epochs_of(result: ArtifactResult, repeats: int) -> dict[str, list[float]]:
    """Return the processor seconds of the epoch's input path over an artifact, forms in turns."""
    entries = result.facts(FlatFacts).shards
    read = [read_shard(result.artifact, entry) for entry in entries]
    bare = [without_features(shard) for shard in read]
    forms = {
        "sample": lambda: epoch_over(lambda: iter(bare)),
        "sample+feat": lambda: epoch_over(lambda: iter(read)),
        "sample+feat from storage": lambda: epoch_over(lambda: (read_shard(result.artifact, each) for each in entries)),
    }
    return in_turns(forms, repeats=repeats, clock=time.process_time)


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the stages, each layout and size of shards, and the epoch over the last of them."""
    with folder_of(chosen.folder) as folder:
        tables = tables_in(folder, num_nodes=chosen.nodes, num_edges=chosen.edges)
        if chosen.tenth:
            tables = tenth_of_targets(tables, folder)
        job = Job(tables, str(folder / "workspace"), chosen.partitions, chosen.workers)
        if not chosen.keep:
            remove_tree(job.workspace)
        for stage in ("ingest", "select"):
            _, figures = job.stage(stage, job.config())
            yield (stage, *figures.values(), None, None, None, None)
        for layout in chosen.layouts.split(","):
            for size in numbers(chosen.shard_sizes):
                result, figures = job.stage("flat", job.config(layout=layout, shard_size=size))
                facts = result.facts(FlatFacts)
                per_second = round(facts.num_targets / figures["seconds"])
                blow_up = facts.blow_up
                shown = (per_second, len(facts.shards), round(blow_up.bytes_per_target), blow_up.ratio)
                yield (f"GraphFlat, {layout}, {size:,}", *figures.values(), *shown)
                if layout == "shared":
                    for name, times in epochs_of(result, chosen.repeats).items():
                        yield f"{name}, {size:,}", None, min(times), None, None, None, None, None, None
        if not chosen.keep:
            remove_tree(job.workspace)


BENCH = Benchmark(
    columns=(
        "stage or epoch",
        "seconds",
        "cpu s",
        "largest worker GiB",
        "exchanged MiB",
        "targets/s",
        "shards",
        "bytes per target",
        "times the store",
    ),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "layouts": "shared",
        "shard_sizes": "8192",
        "tenth": Option(default=False, help="only a tenth of the targets"),
        "partitions": 4,
        "workers": Option(2, "0 runs stages in this process"),
        "repeats": 3,
        "keep": Option(default=False, help="take and leave the artifacts of the folder"),
    },
    small={"nodes": 2_000, "edges": 10_000, "layouts": "shared,inline", "workers": 0, "repeats": 1},
)


if __name__ == "__main__":
    run(BENCH)
