"""GraphFlat and the epoch that reads it: 1M nodes, 10M edges, 64 features, 100k targets, 2 hops, fan-out 15 then 10.

    python benchmarks/graphflat.py --data data/big                      # ingest, GraphFlat, and the epoch
    python benchmarks/graphflat.py --data data/big --shard-sizes 4096,16384
    python benchmarks/graphflat.py --data data/big --inline all         # AGL's layout too; or tenth of the targets
    python benchmarks/graphflat.py --data data/big --what epoch --keep  # the epoch alone, over what was kept

--data is written once (`gnnflow.datasets.power_law`); a folder that already holds nodes.parquet and edges.parquet or
edges/ is used as it is. Stages run on a LocalCluster of 2 workers x 1 thread with 2 GiB each, fresh for each stage, so
that the peak is the stage's own; with --workers 0 they run in this process, and `cpu` says what they cost on a machine
that others use too. Prints a table to stderr and one JSON line to stdout, keys named as a sampler's are:

    select, flat/<layout>/<shard size>   the stages; neighbours are selected once, whatever is cut from them
    sample/workers0         100k targets in batches of 1024: blocks alone, shards held in memory without features
    sample+feat/workers0    the same with the features of every sampled node
    sample+feat/storage     the same, each shard first read from storage and decoded: an epoch's whole input path
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow import __version__
from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict
from gnnflow.datasets import write_power_law
from gnnflow.graph.batch import Features
from gnnflow.graph.facts import FlatFacts
from gnnflow.graphfeature.blocks import build_minibatch, new_scratch
from gnnflow.graphfeature.shards import Shard, read_shard
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import combine, to_numpy

FANOUT = (15, 10)
BATCH = 1024
MIB, GIB = 1 << 20, 1 << 30
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """What is measured. tables: node and edge table; workspace: where stages write."""

    tables: tuple[str, str]
    workspace: str
    partitions: int
    workers: int
    repeats: int

    def config(self, **flat_keys: Any) -> Config:
        """Return the configuration of one run."""
        return config_from_dict(
            {
                "name": "graphflat",
                "workspace": self.workspace,
                "graph": {"nodes": self.tables[0], "edges": self.tables[1], "partitions": self.partitions},
                "neighbors": {"sampling": {"kind": "uniform", "fanout": list(FANOUT)}},
                "flat": {"hops": 2, **flat_keys},
                "model": {"kind": "sage", "layers": 2},
                "cluster": {"kind": "local", "workers": self.workers, "memory_limit": "2GiB"}
                if self.workers
                else {"kind": "synchronous"},
            }
        )

    def stage(self, stage: str, config: Config) -> tuple[ArtifactResult, dict[str, Any]]:
        """Run a stage on a cluster of its own; returns it with its figures."""
        with Cluster(config.cluster) as cluster:
            cluster.scheduler()
            begin = time.process_time()
            result = make_artifact(StageContext.of(config, cluster), stage)
            spent = {} if self.workers else {"cpu": round(time.process_time() - begin, 2)}
        figures = flat_figures(result) if result.stage == "flat" else stage_figures(result)
        return result, {**figures, **spent}


def tables_in(folder: Path, *, num_nodes: int, num_edges: int) -> tuple[str, str]:
    """Return the node and edge table of a folder, generating them where it has none."""
    if not (folder / "nodes.parquet").exists():
        folder.mkdir(parents=True, exist_ok=True)
        nodes, edges = write_power_law(str(folder), num_nodes=num_nodes, num_edges=num_edges)
        return nodes, edges
    edges_file = folder / "edges.parquet"
    return str(folder / "nodes.parquet"), str(edges_file if edges_file.exists() else folder / "edges")


def tenth_of_targets(tables: tuple[str, str], folder: Path) -> tuple[str, str]:
    """Write the node table with a split for a tenth of the targets only; returns it with the same edges."""
    nodes = pq.read_table(tables[0])
    column = nodes.column_names.index("split")
    targets = np.flatnonzero(to_numpy(nodes["split"].is_valid()))
    kept = np.zeros(nodes.num_rows, bool)
    kept[np.random.default_rng(0).permutation(targets)[::10]] = True
    split = combine(nodes["split"]).filter(pa.array(kept)).take(pa.array(np.cumsum(kept) - 1, mask=~kept))
    path = folder / "nodes-tenth.parquet"
    pq.write_table(nodes.set_column(column, "split", split), path, row_group_size=1 << 17)
    return str(path), tables[1]


def stage_figures(result: ArtifactResult) -> dict[str, Any]:
    """Return a stage's seconds, per round too, and its largest worker."""
    rounds = result.manifest.timings["rounds"]
    seconds = float(result.manifest.timings["seconds"])
    return {
        "times": [seconds],
        "min": seconds,
        "median": seconds,
        "rounds": {each["name"]: round(each["seconds"], 2) for each in rounds},
        "exchanged_mib": sum(each["exchanged_bytes"] for each in rounds) // MIB,
        "rss_gb": round(max(each["peak_bytes"] for each in rounds) / GIB, 3),
    }


def flat_figures(result: ArtifactResult) -> dict[str, Any]:
    """Return GraphFlat's figures."""
    figures, facts = stage_figures(result), result.facts(FlatFacts)
    targets = facts.num_targets
    return {
        **figures,
        "targets": targets,
        "targets_per_second": round(targets / figures["median"]),
        "bytes_per_target": round(facts.blow_up.bytes_per_target),
        "blow_up": round(facts.blow_up.ratio, 2),
        "shards": len(facts.shards),
    }


def timed(epoch: Callable[[], dict[str, int]], repeats: int) -> dict[str, Any]:
    """Run an epoch once to warm up, then `repeats` times."""
    times, spent, found = [], [], epoch()
    for _ in range(repeats):
        begin, cpu = time.perf_counter(), time.process_time()
        found = epoch()
        times.append(round(time.perf_counter() - begin, 4))
        spent.append(round(time.process_time() - cpu, 4))
    return {"times": times, "min": min(times), "median": statistics.median(times), "cpu": min(spent), **found}


def epoch_over(shards: Callable[[], Iterator[Shard]]) -> dict[str, int]:
    """Build every batch of an epoch; returns the nodes and edges in its blocks."""
    rng, nodes, edges = np.random.default_rng(0), 0, 0
    for shard in shards():
        scratch = new_scratch(shard.neighborhood.num_nodes)
        order = rng.permutation(len(shard.rows))
        for start in range(0, len(order), BATCH):
            rows = shard.rows[order[start : start + BATCH]]
            batch = build_minibatch(shard.neighborhood, rows, fanouts=FANOUT, num_layers=2, scratch=scratch)
            nodes += len(batch.nodes)
            edges += sum(block.num_edges for block in batch.blocks)
    return {"nodes": nodes, "edges": edges}


def without_features(shard: Shard) -> Shard:
    """Return a shard whose features have no columns."""
    none = Features(0, dense=np.zeros((shard.neighborhood.num_nodes, 0), np.float32))
    return replace(shard, neighborhood=replace(shard.neighborhood, features=none))


def measure_epoch(result: ArtifactResult, repeats: int) -> Results:
    """Measure the epoch that reads a GraphFlat artifact."""
    entries = result.facts(FlatFacts).shards
    read = [read_shard(result.artifact, entry) for entry in entries]
    bare = [without_features(shard) for shard in read]
    from_storage = timed(lambda: epoch_over(lambda: (read_shard(result.artifact, entry) for entry in entries)), repeats)
    return {
        "sample/workers0": timed(lambda: epoch_over(lambda: iter(bare)), repeats),
        "sample+feat/workers0": timed(lambda: epoch_over(lambda: iter(read)), repeats),
        "sample+feat/storage": from_storage,
    }


def measure(job: Job, *, what: list[str], shard_sizes: list[int]) -> Results:
    """Measure the shared layout, one shard size after the other; the epoch reads the last."""
    results: Results = {}
    for size in shard_sizes:
        config = job.config(shard_size=size)
        ingested, figures = job.stage("ingest", config)
        if "ingest" in what and not ingested.reused:
            results["ingest"] = figures
        selected, figures = job.stage("select", config)
        if "flat" in what and not selected.reused:
            results["select"] = figures
        flattened, figures = job.stage("flat", config)
        if "flat" in what:
            results[f"flat/shared/{size}"] = figures
        if "epoch" in what:
            epoch = measure_epoch(flattened, job.repeats)
            results |= epoch
            if len(shard_sizes) > 1:
                results |= {f"{key}/{size}": found for key, found in epoch.items()}
    return results


def table_of(results: Results) -> str:
    """Return the results for people."""
    lines = []
    for key, found in results.items():
        extra = {name: value for name, value in found.items() if name not in {"times", "min", "median", "rounds"}}
        lines.append(f"{key:28} {found['median']:8.2f} s  " + "  ".join(f"{k} {v:,}" for k, v in extra.items()))
        lines += [f"    {name:24} {seconds:8.2f} s" for name, seconds in found.get("rounds", {}).items()]
    return "\n".join(lines)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--what", default="ingest,flat,epoch")
    parser.add_argument("--shard-sizes", default=str(config_from_dict(_DEFAULTS).flat.shard_size))
    parser.add_argument("--inline", choices=("tenth", "all"), help="also `layout: inline`, on so many of the targets")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="leave the workspace for the next run to reuse")
    arguments = parser.parse_args()
    tables = tables_in(arguments.data, num_nodes=arguments.nodes, num_edges=arguments.edges)
    workspace = arguments.data / "workspace"
    if not arguments.keep:
        shutil.rmtree(workspace, ignore_errors=True)
    job = Job(tables, str(workspace), arguments.partitions, arguments.workers, arguments.repeats)
    sizes = [int(size) for size in arguments.shard_sizes.split(",")]
    results: Results = {}
    # Before the epochs: a worker's peak starts at the size of the process that starts it.
    if arguments.inline:
        is_tenth = arguments.inline == "tenth"
        compared = replace(job, tables=tenth_of_targets(tables, arguments.data)) if is_tenth else job
        for layout in ("inline", "shared"):
            config = compared.config(layout=layout, shard_size=sizes[-1])
            for stage in ("ingest", "select"):
                compared.stage(stage, config)
            _, results[f"flat/{layout}/{arguments.inline}"] = compared.stage("flat", config)
    results |= measure(job, what=arguments.what.split(","), shard_sizes=sizes)
    if not arguments.keep:
        shutil.rmtree(workspace)
    print(table_of(results), file=sys.stderr)
    print(json.dumps({"bench": "b", "lib": "gnnflow", "versions": {"gnnflow": __version__}, "results": results}))


_DEFAULTS = {"name": "defaults", "graph": {"nodes": "nodes.parquet", "edges": "edges.parquet"}}


if __name__ == "__main__":
    main()
