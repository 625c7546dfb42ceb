"""Features in fewer bytes: what is refused, what a published model keeps, and what ingest says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import from_matrix, to_matrix
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph
from tests.stages.published import probabilities, run_published

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

MODEL = {"kind": "gcn", "hidden": 4, "dropout": 0.0}


def context_of(folder: Path, storage: str, **graph: Any) -> StageContext:
    config = graph_config(
        folder,
        graph={"storage": storage, **graph},
        model=MODEL,
        train={"epochs": 2, "threads": 1},
        publish={"incomparable": "promote"},
    )
    return StageContext.of(config, progress=Heard())


def facts_of(context: StageContext) -> GraphFacts:
    return make_artifact(context, "ingest").manifest, context.artifact("ingest").facts(GraphFacts)


def change(folder: Path, by: Any) -> None:
    nodes = pq.read_table(folder / "nodes.parquet")
    column = from_matrix(by(to_matrix(nodes["x"]).copy()))
    pq.write_table(nodes.set_column(nodes.column_names.index("x"), "x", column), folder / "nodes.parquet")


def test_ingest_says_each_column_s_error_and_writes_fewer_bytes(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=3000, width=64)
    sizes = {}
    for storage, limit in (("float32", 0.0), ("float16", 1e-3), ("bfloat16", 5e-3), ("int8", 0.002), ("int4", 0.034)):
        context = context_of(tmp_path, storage)
        manifest, facts = facts_of(context)
        sizes[storage] = sum(each.size for each in manifest.files if each.name.startswith("nodes"))
        if storage == "float32":
            assert not facts.column_errors
            continue
        errors = facts.column_errors["nodes"]
        assert errors.names[:2] == ("x[0]", "x[1]")
        assert len(errors.relative) == 64
        assert 0 < errors.relative[-1].mean < errors.relative[0].largest < limit
        assert any(f"stored as {storage}" in text for text in context.progress.messages)
    features = 4 * 64 * 3000
    for storage, share in (("float16", 1 / 2), ("bfloat16", 1 / 2), ("int8", 3 / 4), ("int4", 7 / 8)):
        assert sizes["float32"] - sizes[storage] > 0.95 * share * features


def test_a_key_left_at_its_default_changes_no_fingerprint(tmp_path: Path) -> None:
    write_graph(tmp_path)
    plain = StageContext.of(graph_config(tmp_path, model=MODEL, train={"epochs": 2, "threads": 1}))
    assert context_of(tmp_path, "float32").run.fingerprints["ingest"] == plain.run.fingerprints["ingest"]
    assert context_of(tmp_path, "int8").run.fingerprints["ingest"] != plain.run.fingerprints["ingest"]


def test_numbers_that_a_kind_cannot_hold_are_refused_with_their_column(tmp_path: Path) -> None:
    write_graph(tmp_path)

    def large(x: np.ndarray) -> np.ndarray:
        x[7, 3] = 1e6
        return x

    change(tmp_path, large)
    with pytest.raises(TableError, match=r"column 'x\[3\]' holds 1e\+06") as found:
        make_artifact(context_of(tmp_path, "float16"), "ingest")
    assert "bfloat16" in (found.value.fix or "")
    make_artifact(context_of(tmp_path, "bfloat16"), "ingest")


def test_sparse_features_are_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet").drop_columns(["x"])
    sparse = nodes.append_column("x_index", pa.array([[0, 2]] * nodes.num_rows, pa.list_(pa.int32())))
    pq.write_table(sparse, tmp_path / "nodes.parquet")
    with pytest.raises(TableError, match=r"graph\.storage is int8, and the column 'x' is sparse"):
        make_artifact(context_of(tmp_path, "int8"), "ingest")


@pytest.mark.parametrize("storage", ["int8", "float16"])
def test_a_published_model_rounds_later_tables_by_its_own_ranges(tmp_path: Path, storage: str) -> None:
    write_graph(tmp_path)
    first = context_of(tmp_path, storage)
    run_published(first)
    before = probabilities(first)
    version = registry.read_version(first.config.workspace, "small", 1)
    assert bool(version.ranges) == (storage == "int8")
    # a node of another table lies far outside: it has no edges, so nothing else may change
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    far = (
        nodes.slice(0, 1)
        .set_column(0, "id", pa.array([10**6]))
        .set_column(nodes.column_names.index("x"), "x", from_matrix(np.full((1, 5), 1e4, np.float32)))
    )
    pq.write_table(pa.concat_tables([nodes, far.cast(nodes.schema)]), tmp_path / "nodes.parquet")
    later = context_of(tmp_path, storage)
    make_artifact(later, "ingest")
    assert np.array_equal(probabilities(later)[:-1], before)
    # a config without the key is scored as the model was trained
    wide = context_of(tmp_path, "float32")
    make_artifact(wide, "ingest")
    assert np.array_equal(probabilities(wide)[:-1], before)
    if storage == "int8":
        named = context_of(tmp_path, storage, scaled_as="small")
        _, facts = facts_of(named)
        assert facts.ranges == version.ranges
    else:
        with pytest.raises(ConfigError, match="no columns are scaled"):
            context_of(tmp_path, storage, scaled_as="small")
