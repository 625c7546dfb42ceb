"""What the undisturbed runs work on: Cora where the public graphs are, a small generated graph elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.small_graphs import write_graph

if TYPE_CHECKING:
    from pathlib import Path

_TRAIN = {"train.epochs": 30, "train.batch_size": 140, "train.eval_batch_size": 1000, "train.threads": 1}


@dataclass(frozen=True)
class LiveGraph:
    """Tables, the form's values for them, and the share of test nodes that must be scored right."""

    name: str
    tables: Path
    conf: dict[str, Any]
    better_than: float

    def accuracy(self, predictions: pa.Table) -> float:
        """Return the share of test nodes whose predicted class is their label."""
        nodes = pq.read_table(self.tables / "nodes.parquet", columns=["id", "label", "split"])
        test = nodes.filter(pc.equal(nodes["split"], "test"))
        joined = predictions.select(["id", "prediction"]).join(test, "id", join_type="inner")
        assert joined.num_rows == test.num_rows > 0
        return float(pc.mean(pc.equal(joined["prediction"], joined["label"]).cast("float32")).as_py())


def cora(tables: Path) -> LiveGraph:
    """configs/cora.yaml in the names of the form, with fewer epochs."""
    conf = {"graph.features": ["x"], "graph.normalize": "row", "graph.partitions": 2, "model.kind": "gcn", **_TRAIN}
    return LiveGraph("cora", tables, conf, better_than=0.7)


def generated(tables: Path) -> LiveGraph:
    """A small graph whose labels are half chance, half their own features."""
    write_graph(tables, num_nodes=240, num_edges=300)
    conf = {"graph.features": ["x"], "graph.partitions": 2, "model.kind": "sage", **_TRAIN, "train.lr": 0.05}
    return LiveGraph("generated", tables, conf, better_than=0.3)
