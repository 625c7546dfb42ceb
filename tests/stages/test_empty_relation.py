"""A relation of a typed graph may have no edges: a rare event that did not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from tests.typed_graphs import typed_tables, write_tables
from tests.typed_tasks import PAYS, SENDS, USES, config_of

if TYPE_CHECKING:
    from pathlib import Path

TRAIN: dict[str, dict[str, Any]] = {
    "mini-batch": {"batch_size": 8},
    "global-batch": {"strategy": "global-batch"},
    "under a budget": {"strategy": "global-batch", "memory": "512MiB"},
}


def context_of(folder: Path, *, model: dict[str, Any], train: dict[str, Any], empty: bool = True) -> StageContext:
    tables = typed_tables()
    if empty:
        tables[USES] = tables[USES].slice(0, 0)
    section = {**write_tables(folder, tables), "target": "account", "reverse_edges": True, "partitions": 2}
    document = {
        "name": "rare",
        "workspace": str(folder / "runs"),
        "graph": section,
        "model": {"hidden": 8, "layers": 2, "dropout": 0.0, **model},
        "train": {"epochs": 2, "threads": 1, **train},
        "infer": {"parity_samples": 20},
        "cluster": {"kind": "synchronous"},
    }
    return StageContext.of(config_from_dict(document))


@pytest.mark.table(9)
@pytest.mark.parametrize("train", TRAIN.values(), ids=TRAIN)
@pytest.mark.parametrize("kind", ["rgcn", "hgt", "sage"])
def test_a_graph_with_an_empty_relation_is_trained_on_and_scored(
    tmp_path: Path, kind: str, train: dict[str, Any]
) -> None:
    context = context_of(tmp_path, model={"kind": kind}, train=train)
    metrics = pipeline.run(context).metrics
    assert metrics["infer.parity_max_difference"] < 1e-5
    edges = {each.name: each.num_edges for each in context.artifact("ingest").facts(GraphFacts).relations}
    assert edges[USES] == edges["device__rev_uses__account"] == 0
    assert edges[PAYS] > 0


def test_a_model_scores_a_day_on_which_a_relation_has_no_edges(tmp_path: Path) -> None:
    context = context_of(tmp_path, model={"kind": "rgcn"}, train=TRAIN["mini-batch"], empty=False)
    pipeline.run(context)
    before = pq.read_table(publish.run(context).predictions)
    found = pq.read_table(
        score.run(context_of(tmp_path, model={"kind": "rgcn"}, train=TRAIN["mini-batch"])).predictions
    )
    assert found.num_rows == before.num_rows
    assert not found.equals(before)


@pytest.mark.table(4)
@pytest.mark.parametrize("kind", ["node", "link"])
def test_a_csv_file_may_be_a_header_alone(tmp_path: Path, kind: str) -> None:
    """Nothing says then what its columns would hold: weights, attributes and times are those of the other tables."""
    tables = {
        name: table.append_column("timestamp", pa.array(range(table.num_rows))) if "__" in name else table
        for name, table in typed_tables().items()
    }
    graph = write_tables(tmp_path, tables)
    header = tmp_path / "rare.csv"
    header.write_text(",".join(tables[PAYS].column_names) + "\n")
    graph["edges"] = {**graph["edges"], PAYS: str(header)}
    document: dict[str, Any] = {
        "name": "rare",
        "workspace": str(tmp_path / "runs"),
        "graph": {**graph, "edge_features": {PAYS: ["amount"]}, "partitions": 2},
        "model": {"kind": "rgcn", "hidden": 8, "layers": 1},
        "train": {"epochs": 1, "threads": 1},
        "cluster": {"kind": "synchronous"},
    }
    if kind == "node":
        document["graph"]["target"] = "account"
    else:
        document["graph"]["target"] = SENDS
        document["task"] = {"kind": "link", "split": {"kind": "time", "valid": 0.1, "test": 0.1}}
        document["train"]["metric"] = "mrr"
    context = StageContext.of(config_from_dict(document))
    assert pipeline.run(context).metrics["infer.parity_max_difference"] < 1e-5
    edges = {each.name: each.num_edges for each in context.artifact("ingest").facts(GraphFacts).relations}
    assert edges[PAYS] == 0 < edges[SENDS]


def test_a_file_without_a_row_group_has_columns_all_the_same(tmp_path: Path) -> None:
    context = context_of(tmp_path, model={"kind": "rgcn"}, train=TRAIN["mini-batch"])
    where = context.config.graph.edge_tables
    uri = next(uri for relation, uri in where.items() if str(relation) == USES)
    table = pq.read_table(uri)
    with pq.ParquetWriter(uri, table.schema):
        pass  # nothing is written
    assert pq.read_metadata(uri).num_row_groups == 0
    make_artifact(StageContext.of(context.config), "ingest")


@pytest.mark.parametrize("empty", ["account", PAYS])
def test_types_and_targets_are_not_empty(tmp_path: Path, empty: str) -> None:
    tables = typed_tables()
    tables[empty] = tables[empty].slice(0, 0)
    config = config_of(tmp_path, {name: table for name, table in tables.items() if name != SENDS})
    with pytest.raises(TableError, match=r"the table has no rows\. Check graph"):
        make_artifact(StageContext.of(config), "ingest")
