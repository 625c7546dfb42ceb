"""Features in fewer bytes (`graph.storage`): bytes, processor seconds and test scores of each kind.

    python benchmarks/narrow.py --data DIR [--graphs facebook_pages,twitch,generated] [--kinds float32,int8]
        [--nodes 1000000 --edges 10000000] [--seeds 3]

Runs ingest, select, GraphFlat, training and GraphInfer of GraphSAGE in this process, tasks one after another. The
public graphs have sparse features, which stay as they are; here they have the first columns of a singular value
decomposition instead, `--columns` of them. Seconds are of the processor, the last seed's: of ingest, of training by
epoch, and of GraphInfer. So are the bytes of the store and of shards. The error is the largest of any column, as a
share of its spread. The change of the score is to the first kind on the same seeds; of the generated graph it is the
validation score.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from graphflat import tables_in
from harness import DATA, FOLDER, Benchmark, Chosen, Found, Option, Spread, folder_of, run
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import from_matrix, to_ragged

MIB = 1 << 20
STAGES = ("ingest", "select", "flat", "train", "infer")
METRICS = {"twitch": "roc_auc"}


def dense_tables(folder: Path, data: str, graph: str, columns: int) -> tuple[str, str]:
    """Return the tables of a public graph, with dense features of so many columns."""
    made, edges = folder / f"{graph}.parquet", Path(data) / graph / "edges.parquet"
    if not made.exists():
        nodes = pq.read_table(Path(data) / graph / "nodes.parquet")
        offsets, index = to_ragged(nodes["x_index"])
        matrix = csr_matrix((np.ones(len(index), np.float32), index, offsets))
        x = TruncatedSVD(columns, random_state=0).fit_transform(matrix).astype(np.float32)
        others = [name for name in nodes.column_names if not name.startswith("x_")]
        pq.write_table(nodes.select(others).append_column("x", pa.chunked_array([from_matrix(x)])), made)
    return str(made), str(edges)


def config_of(tables: tuple[str, str], graph: str, chosen: Chosen, **keys: Any) -> Config:
    """Return the config of a run. keys: its seed and workspace, and the kind of its graph's storage."""
    stored = {"normalize": "standard", "storage": keys.pop("kind"), "on_bad_rows": "quarantine", "partitions": 4}
    return config_from_dict(
        {
            "name": "narrow",
            "graph": {"nodes": tables[0], "edges": tables[1], **stored},
            "neighbors": {"sampling": {"kind": "uniform", "fanout": [15, 10]}},
            "flat": {"layout": "shared"},
            "model": {"kind": "sage", "hidden": 64, "layers": 2, "dropout": 0.5},
            "train": {
                "epochs": chosen.epochs,
                "batch_size": 512,
                "lr": 0.01,
                "weight_decay": 5e-4,
                "metric": METRICS.get(graph, "accuracy"),
            },
            "infer": {"parity_samples": 0},
            "cluster": {"kind": "synchronous"},
            **keys,
        }
    )


def measured(config: Config) -> Found:
    """Return the figures of a run: of each stage processor seconds and MiB, the largest error, the score."""
    found: Found = {}
    with Cluster(config.cluster) as cluster:
        context = StageContext.of(config, cluster)
        for stage in STAGES:
            begin = time.process_time()
            manifest = make_artifact(context, stage).manifest
            found[stage] = (time.process_time() - begin, manifest.num_bytes / MIB)
        facts, trained = context.artifact("ingest").facts(GraphFacts), context.artifact("train").facts(TrainFacts)
    errors = facts.column_errors.get("nodes")
    found["error"] = 0.0 if errors is None else errors.relative[0].largest
    metric = config.train.metric
    found["score"] = trained.metrics.get(f"test.{metric}", trained.metrics.get(f"valid.{metric}"))
    return found


def rows(chosen: Chosen) -> Iterator[list[Any]]:
    """Yield a row for each graph and kind."""
    with folder_of(chosen.folder) as folder:
        for graph in chosen.graphs.split(","):
            if graph == "generated":
                of = folder / "generated"
                tables = tables_in(of, num_nodes=chosen.nodes, num_edges=chosen.edges)
            else:
                tables = dense_tables(folder, chosen.data, graph, chosen.columns)
            scores: dict[str, list[float]] = {}
            for kind in chosen.kinds.split(","):
                found = []
                for seed in range(1 if graph == "generated" else chosen.seeds):
                    with TemporaryDirectory(prefix="gnnflow-bench-", dir=folder) as workspace:
                        config = config_of(tables, graph, chosen, seed=seed, kind=kind, workspace=workspace)
                        found.append(measured(config))
                scores[kind] = [each["score"] for each in found]
                pairs = zip(scores[kind], next(iter(scores.values())), strict=True)
                change = statistics.mean(own - other for own, other in pairs)
                seconds, mib = zip(*(found[-1][stage] for stage in STAGES), strict=True)
                ingest, _, _, train, infer = seconds
                figures = (mib[0], mib[2], ingest, train / chosen.epochs, infer, found[-1]["error"])
                yield [graph, kind, *figures, Spread(scores[kind]), f"{change:+.4f}"]


BENCH = Benchmark(
    columns=(
        "graph",
        "kind",
        "store MiB",
        "shards MiB",
        "ingest s",
        "epoch s",
        "infer s",
        "error",
        "score",
        "change",
    ),
    rows=rows,
    options={
        "data": DATA,
        "folder": FOLDER,
        "graphs": Option("facebook_pages,twitch,generated", "of the public graphs, and `generated`"),
        "kinds": "float32,float16,bfloat16,int8,int4",
        "columns": Option(128, "of the dense features of the public graphs"),
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "epochs": 10,
        "seeds": 3,
    },
    small={"graphs": "generated", "nodes": 2_000, "edges": 10_000, "epochs": 2, "seeds": 1},
)

if __name__ == "__main__":
    run(BENCH)
