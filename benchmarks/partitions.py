"""Kinds of partitioning beside each other: what is cut, what GraphFlat and GraphInfer exchange, and how long they take.

    GNNFLOW_DATA=DIR python benchmarks/partitions.py [--graphs facebook_pages amazon_photo] [--partitions 8]
        [--kinds hash metis louvain ldg] [--turns 3] [--full]

Each graph goes through ingest, partition, select, flat, one epoch of training and infer, in one process, with the same
sampled neighbours (15 and 10; --full: all) and two layers of GraphSAGE of width 64. The bytes are those of the
manifests: what the tasks of a stage's rounds sent each other, a task to itself included, as it is written, which is
compressed. Seconds are of the whole stage, the smallest of the turns, in which the kinds alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from gnnflow.config import config_from_dict
from gnnflow.stages.base import StageContext, make_artifact
from gnnflow.storage.filesystem import join, read_json

MIB = 1 << 20
STAGES = ("ingest", "partition", "select", "flat", "train", "infer")


def config_of(graph: str, kind: str, workspace: str, *, partitions: int, full: bool) -> Any:
    """Return the config of a graph of GNNFLOW_DATA in partitions of a kind."""
    tables = Path(os.environ.get("GNNFLOW_DATA", "data")) / graph
    sampling = {"kind": "none"} if full else {"kind": "uniform", "fanout": [15, 10]}
    return config_from_dict(
        {
            "name": f"{graph}-{kind}",
            "workspace": workspace,
            "graph": {
                "nodes": str(tables / "nodes.parquet"),
                "edges": str(tables / "edges.parquet"),
                "features": ["x"],
                "partitions": partitions,
            },
            "partition": {"kind": kind},
            "neighbors": {"sampling": sampling},
            "model": {"kind": "sage", "aggregator": "mean", "hidden": 64, "layers": 2},
            "train": {"epochs": 1, "batch_size": 512, "metric": "accuracy"},
            "infer": {"targets": "all", "parity_samples": 0},
            "cluster": {"kind": "synchronous"},
        }
    )


def measured(config: Any) -> dict[str, float]:
    """Return a run's figures: of its partitions, of the bytes that stages exchange, and of their seconds."""
    context, found = StageContext.of(config), {}
    for stage in STAGES:
        if stage not in context.run.stages:
            continue
        made = make_artifact(context, stage)
        timings = made.manifest.timings
        found[f"{stage}_seconds"] = timings["seconds"]
        found[f"{stage}_mib"] = sum(each["exchanged_bytes"] for each in timings["rounds"]) / MIB
        if stage == "partition":
            told = read_json(join(made.artifact, "balance.json"))
            names = ("edge_cut", "replication", "balance_nodes", "balance_edges", "balance_targets")
            found |= {name: told[name] for name in names} | {f"hash_{name}": told["before"][name] for name in names}
    return found


def table(rows: dict[str, dict[str, float]]) -> str:
    """Return a graph's kinds as a Markdown table."""
    lines = [
        "| kind | edges cut | replication | nodes, edges, targets | partition | GraphFlat | GraphInfer |",
        "|---|---|---|---|---|---|---|",
    ]
    told = next((row for row in rows.values() if "hash_edge_cut" in row), {})
    for kind, row in rows.items():
        prefix, of = ("", row) if "edge_cut" in row else ("hash_", told)
        if not of:
            continue
        even = ", ".join(f"{of[f'{prefix}balance_{name}']:.2f}" for name in ("nodes", "edges", "targets"))
        stages = [f"{row[f'{stage}_mib']:.1f} MiB, {row[f'{stage}_seconds']:.2f} s" for stage in ("flat", "infer")]
        own = f"{row['partition_seconds']:.2f} s" if "partition_seconds" in row else ""
        cells = [kind, f"{of[f'{prefix}edge_cut']:.1%}", f"{of[f'{prefix}replication']:.2f}", even, own, *stages]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is asked for, and print a table for each graph and all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["facebook_pages", "amazon_photo"])
    parser.add_argument("--kinds", nargs="+", default=["hash", "range", "ldg", "louvain", "metis"])
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    asked = parser.parse_args()
    for graph in asked.graphs:
        rows: dict[str, dict[str, float]] = {}
        for _ in range(asked.turns):
            for kind in asked.kinds:
                with tempfile.TemporaryDirectory() as folder:
                    config = config_of(graph, kind, folder, partitions=asked.partitions, full=asked.full)
                    found = measured(config)
                    held = rows.setdefault(kind, found)
                    held |= {name: min(held[name], value) for name, value in found.items()}
        print(f"\n{graph}, {asked.partitions} partitions\n\n{table(rows)}\n\n{json.dumps(rows)}", flush=True)


if __name__ == "__main__":
    main()
