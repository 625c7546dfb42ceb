"""The shipped configurations on the public graphs they name: accuracy, ids, and nodes nobody labelled.

One seed each; benchmarks/accuracy.py runs more.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow.config import load_config
from gnnflow.stages import pipeline
from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.data, pytest.mark.slow]


def run(name: str, data_dir: Path, workspace: Path, *overrides: str) -> pipeline.RunResult:
    config = load_config(
        (REPOSITORY / "configs" / f"{name}.yaml").read_text(),
        overrides=["cluster={kind: synchronous}", *overrides],
        workspace=str(workspace),
        environment={"GNNFLOW_DATA": str(data_dir)},
    )
    return pipeline.run_quietly(config)


def predicted_beside_labels(result: pipeline.RunResult, nodes: pa.Table) -> pa.Table:
    """Return the rows of the user's table that were scored, each with its prediction."""
    scored = pq.read_table(result.predictions)
    assert pc.count_distinct(scored["id"]).as_py() == scored.num_rows
    place = pc.index_in(scored["id"].cast(nodes.schema.field("id").type), value_set=nodes["id"])
    assert place.null_count == 0
    rows = nodes.drop_columns([name for name in nodes.column_names if name.startswith("x")]).take(place)
    return rows.append_column("prediction", scored["prediction"]).append_column(
        "probabilities", scored["probabilities"]
    )


def accuracy(rows: pa.Table) -> float:
    return float(np.mean(rows["label"].to_numpy() == rows["prediction"].to_numpy()))


def test_gcn_learns_cora(data_dir, tmp_path):
    result = run("cora", data_dir, tmp_path)
    nodes = pq.read_table(data_dir / "cora" / "nodes.parquet")
    rows = predicted_beside_labels(result, nodes)
    assert result.metrics["test.accuracy"] >= 0.79
    assert rows.num_rows == nodes.num_rows
    assert accuracy(rows.filter(pc.field("split") == "test")) == pytest.approx(result.metrics["test.accuracy"])


def test_nodes_without_a_label_are_scored_too(data_dir, tmp_path):
    result = run("citeseer", data_dir, tmp_path, "train.epochs=60")
    nodes = pq.read_table(data_dir / "citeseer" / "nodes.parquet")
    rows = predicted_beside_labels(result, nodes)
    assert result.metrics["test.accuracy"] >= 0.66
    assert rows.num_rows == nodes.num_rows
    unlabelled = rows.filter(pc.field("label") == -1)
    assert unlabelled.num_rows == 15
    probabilities = np.array(unlabelled["probabilities"].to_pylist())
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert np.isin(unlabelled["prediction"].to_numpy(), np.arange(6)).all()


def test_countries_that_training_never_saw_are_scored_under_their_own_ids(data_dir, tmp_path):
    result = run("twitch", data_dir, tmp_path, "train.epochs=3", "infer.embeddings=false")
    nodes = pq.read_table(data_dir / "twitch" / "nodes.parquet")
    first, twice = np.unique(nodes["id"].to_numpy(zero_copy_only=False), return_index=True)[1], 2
    assert nodes.num_rows - len(first) == twice
    manifest = json.loads((Path(result.stages["ingest"].artifact) / "manifest.json").read_text())
    assert manifest["rows_quarantined"] == twice

    rows = predicted_beside_labels(result, nodes.take(np.sort(first)))
    assert rows.num_rows == nodes.num_rows - twice
    unseen = rows.filter(pc.field("split") == "test")
    trained_on = rows.filter(pc.field("split") == "train")
    assert set(unseen["country"].to_pylist()) == {"RU", "PTBR"}
    assert set(trained_on["country"].to_pylist()) == {"DE", "ES", "FR"}
    assert np.isfinite(np.array(unseen["probabilities"].to_pylist())).all()
    assert accuracy(unseen) == pytest.approx(result.metrics["test.accuracy"])
    assert result.metrics["test.roc_auc"] > 0.55


def test_gcn_learns_cora_from_clusters_and_from_the_store(data_dir, tmp_path):
    pytest.importorskip("pymetis", reason="pymetis is an extra: pip install 'gnnflow[metis]'")
    clusters = run("cora_cluster", data_dir, tmp_path)
    assert "flat" not in clusters.stages
    assert clusters.metrics["test.accuracy"] >= 0.79
    store = run("cora", data_dir, tmp_path, "train.source=store")
    assert "flat" not in store.stages
    assert store.metrics["test.accuracy"] >= 0.79
