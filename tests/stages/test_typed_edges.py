"""Labels of the edges of one relation of a typed graph, and edges with times, through every stage."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict, load_config
from gnnflow.datasets import write_typed_payments
from gnnflow.graph.errors import ConfigError, RegistryError, TableError
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graph.schema import Relation
from gnnflow.graphfeature.shards import read_pair_shard
from gnnflow.layers import load_model
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.stages.running import make_artifact
from gnnflow.train.minibatch import outputs_on_shards
from tests.conftest import REPOSITORY
from tests.typed_graphs import typed_tables, write_tables
from tests.typed_tasks import (
    PAYS,
    REVERSE,
    SENDS,
    USES,
    config_of,
    edges_of,
    ends_in,
    labelled,
    pairs_of,
    predictions,
    store_of,
)

EDGE = {"kind": "edge", "decoder": {"kind": "mlp", "hidden": 16}}
EDGE_GRAPH = {"label": "illicit", "edge_features": {PAYS: ["amount"]}}
MOMENTS = pa.array(np.arange(400) * 86_400).cast(pa.timestamp("s"))


def with_times(pays: pa.Array, sends: pa.Array) -> dict[str, pa.Table]:
    tables = labelled()
    for relation, times in ((PAYS, pays), (SENDS, sends)):
        tables[relation] = tables[relation].append_column("timestamp", times.slice(0, tables[relation].num_rows))
    return tables


def test_labels_of_a_relation_are_learned_and_every_edge_gets_a_row(tmp_path: Path) -> None:
    tables = labelled()
    config = config_of(tmp_path, tables, task=EDGE, graph=EDGE_GRAPH, train={"epochs": 20, "lr": 0.02})
    result = run_pipeline(StageContext.of(config))
    assert result.metrics["test.accuracy"] > 0.85
    assert result.metrics["infer.parity_max_difference"] < 1e-5
    found = predictions(result)
    assert found.column_names[:6] == ["src", "dst", "label", "split", "prediction", "probabilities"]
    assert sorted(ends_in(found)) == sorted(ends_in(tables[PAYS]))
    page = Path(result.report.removeprefix("file://")).read_text()
    assert f"{PAYS}, scored" in page
    assert "Precision and recall at every threshold" in page


def test_ids_of_edges_keep_the_types_of_both_tables(tmp_path: Path) -> None:
    tables = labelled()
    uses = tables[USES]
    tables[USES] = uses.append_column("illicit", pa.array(np.arange(uses.num_rows) % 2))
    tables[PAYS] = tables[PAYS].drop_columns(["illicit"])
    config = config_of(
        tmp_path, tables, target=USES, task={**EDGE, "decoder": {"kind": "distmult"}}, graph={"label": "illicit"}
    )
    found = predictions(run_pipeline(StageContext.of(config)))
    assert sorted(ends_in(found)) == sorted(ends_in(uses))


def test_the_decoder_reads_the_attributes_of_its_own_relation_alone(tmp_path: Path) -> None:
    tables = labelled()
    sends = tables[SENDS]
    for name in ("a", "b", "c"):
        sends = sends.append_column(name, pa.array(np.zeros(sends.num_rows, np.float32)))
    tables[SENDS] = sends
    graph = {"label": "illicit", "edge_features": {PAYS: ["amount"], SENDS: ["a", "b", "c"]}}
    config = config_of(tmp_path, tables, task=EDGE, graph=graph, model={"kind": "gat_e", "heads": 2})
    context = StageContext.of(config)
    assert run_pipeline(context).metrics["infer.parity_max_difference"] < 1e-5
    assert context.artifact("ingest").facts(GraphFacts).pair_attribute_width == 1


@pytest.mark.parametrize("messages", [True, False])
def test_partitions_do_not_change_which_edges_are_held_out(tmp_path: Path, messages: bool) -> None:
    tables = labelled()
    found = []
    for parts in (1, 4):
        graph = {**EDGE_GRAPH, "partitions": parts}
        store = store_of(config_of(tmp_path, tables, task={**EDGE, "messages": messages}, graph=graph))
        found.append((pairs_of(store), {name: sorted(edges) for name, edges in edges_of(store).items()}))
    assert found[0] == found[1]
    assert (sorted(found[0][1][PAYS]) == sorted(ends_in(tables[PAYS]))) == messages


def test_by_time_no_relation_has_an_edge_as_late_as_a_held_out_one(tmp_path: Path) -> None:
    tables = labelled(times=True)
    task = {"split": {"kind": "time", "valid": 0.15, "test": 0.15}}
    config = config_of(tmp_path, tables, task=task, graph={"edge_features": ["amount"]}, train={"epochs": 1})
    store = store_of(config)
    timed = [relation.has_time for relation in store.facts.relations]
    assert timed == [USES.split("__")[1] not in relation.name for relation in store.facts.relations]
    parts = range(store.num_partitions)
    pairs = pa.concat_tables([store.pairs(part, ["split", "time"]) for part in parts])
    first = pc.min(pairs.filter(pc.greater(pairs["split"], 0))["time"]).as_py()
    for number, relation in enumerate(store.schema.relations):
        if relation.name.endswith("uses"):
            # edges without times are older than all, and stay
            assert sum(store.edges(part, ["src"], relation=number).num_rows for part in parts) == 400
            continue
        held = pa.concat_tables([store.edges(part, ["time"], relation=number) for part in parts])
        assert 0 < held.num_rows < 400
        assert pc.max(held["time"]).as_py() < first
    metrics = run_pipeline(StageContext.of(config)).metrics
    assert metrics["infer.parity_max_difference"] < 1e-5


@pytest.mark.slow
def test_scores_by_time_do_not_change_with_the_batch(tmp_path: Path) -> None:
    tables = labelled(times=True)
    task = {**EDGE, "split": {"kind": "random", "valid": 0.2, "test": 0.2, "earlier_only": True}}
    config = config_of(tmp_path, tables, task=task, graph=EDGE_GRAPH)
    context = StageContext.of(config)
    run_pipeline(context)
    model, flat = load_model(context.artifact("train").uri), context.artifact("flat")
    entries = [entry for entry in flat.facts(FlatFacts).shards if entry.split == "test"]
    found = [
        outputs_on_shards(
            model,
            entries,
            partial(read_pair_shard, flat.uri),
            sampling=EVERY_EDGE,
            train=config.train.model_copy(update={"eval_batch_size": size}),
            task=config.task,  # type: ignore[arg-type]
            seed=config.seed,
        ).logits
        for size in (3, 1000)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_a_model_of_a_relation_is_published_and_scores_its_own_relation_alone(tmp_path: Path) -> None:
    tables = labelled()
    sends = tables[SENDS]
    tables[SENDS] = sends.append_column("illicit", pa.array(np.arange(sends.num_rows) % 2))
    config = config_of(tmp_path, tables, task=EDGE, graph=EDGE_GRAPH)
    context = StageContext.of(config)
    run_pipeline(context)
    assert publish.run(context).promoted
    scored = score.run(context)
    assert pq.read_table(scored.predictions).num_rows == tables[PAYS].num_rows
    # the pairs that it learned are found by ids of two types
    assert 0 < scored.figures.labelled < tables[PAYS].num_rows
    assert any("the model was trained on these targets" in note for note in scored.figures.notes)
    other = config_of(tmp_path, tables, target=SENDS, task=EDGE, graph={**EDGE_GRAPH})
    make_artifact(StageContext.of(other), "ingest")
    with pytest.raises(RegistryError, match=f"target is {SENDS}, the model was trained on {PAYS}"):
        score.run(StageContext.of(other))


def test_the_example_learns_which_payments_are_illicit(tmp_path: Path) -> None:
    section = write_typed_payments(str(tmp_path), num_nodes=1000, num_edges=10_000)
    config = load_config((REPOSITORY / "configs" / "payments_typed_edges.yaml").read_text(), environment={})
    content = config.model_dump(mode="json", exclude_none=True)
    content["graph"] |= {name: section[name] for name in ("nodes", "edges")} | {"partitions": 2}
    content |= {"workspace": str(tmp_path / "runs"), "cluster": {"kind": "synchronous"}}
    result = run_pipeline(StageContext.of(config_from_dict(content)))
    assert result.metrics["test.roc_auc"] > 0.85
    test = {"valid", "test"}
    assert set(content["infer"]["targets"]) == test


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"target": "account"}, r"graph.target: 'account' is a type of nodes, where task.kind is link"),
        ({"target": REVERSE}, rf"graph.target: '{REVERSE}' is not known: graph.edges has"),
        ({"task": {"kind": "node"}}, r"graph.target: 'account__pays__merchant' is a relation, and where task.kind is"),
        ({"task": EDGE, "graph": {"edge_features": ["label"]}}, r"graph.edge_features: 'label' is the column of"),
    ],
)
def test_a_target_that_is_not_of_the_task_is_refused(tmp_path: Path, sections: dict[str, Any], problem: str) -> None:
    if sections.get("task") == {"kind": "node"}:
        graph = {**write_tables(tmp_path, typed_tables()), "target": PAYS}
        with pytest.raises(ConfigError, match=problem):
            config_from_dict({"name": "bad", "graph": graph})
        return
    with pytest.raises(ConfigError, match=problem):
        config_of(tmp_path, typed_tables(), **sections)


def test_the_table_of_the_relation_must_have_what_the_task_reads(tmp_path: Path) -> None:
    config = config_of(tmp_path, labelled(times=True), target=USES, task={"split": {"kind": "time"}})
    with pytest.raises(TableError, match=r"account__uses__device.parquet.*no column 'timestamp'"):
        store_of(config)


def test_by_time_a_table_that_may_list_the_same_edges_must_have_times(tmp_path: Path) -> None:
    tables = labelled(times=True)
    pays = tables[PAYS]
    tables["merchant__paid_by__account"] = pa.table({"src": pays["dst"], "dst": pays["src"]})
    graph = {"reverse_edges": False}
    config = config_of(tmp_path, tables, task={"split": {"kind": "time"}}, graph=graph)
    with pytest.raises(TableError, match=r"paid_by__account.parquet: has no column 'timestamp'.*again"):
        store_of(config)


@pytest.mark.parametrize(
    ("sends", "told"),
    [
        (MOMENTS.cast(pa.timestamp("us")), r"timestamp\[us\]"),
        (MOMENTS.cast(pa.timestamp("ms")).cast(pa.date32()), r"date32\[day\]"),
        (MOMENTS.cast(pa.timestamp("ms", "UTC")), r"timestamp\[ms\] of a time zone"),
        (MOMENTS.cast(pa.int64()), "integer"),
        (MOMENTS.cast(pa.timestamp("ms")).cast(pa.string()), "text of times"),
        (MOMENTS.cast(pa.timestamp("ms", "UTC")).cast(pa.string()), "text of times with a zone"),
    ],
    ids=["another unit", "days", "a zone", "numbers", "text", "text with a zone"],
)
def test_times_of_two_tables_that_cannot_be_compared_are_refused(tmp_path: Path, sends: pa.Array, told: str) -> None:
    tables = with_times(MOMENTS.cast(pa.timestamp("ms")), sends)
    config = config_of(tmp_path, tables, task={"split": {"kind": "time"}})
    found = (
        rf"sends__account.parquet: times are {told} \(graph.timestamp\), in .*merchant.parquet they are "
        r"timestamp\[ms\]\. Write"
    )
    with pytest.raises(TableError, match=found):
        store_of(config)


@pytest.mark.parametrize(
    ("pays", "sends"),
    [
        (MOMENTS.cast(pa.int64()), MOMENTS.cast(pa.int64()).cast(pa.int32())),
        (MOMENTS.cast(pa.timestamp("ms", "UTC")), MOMENTS.cast(pa.timestamp("ms", "Europe/Rome"))),
    ],
    ids=["integers of two widths", "two zones"],
)
def test_times_of_two_tables_may_be_written_in_two_ways(tmp_path: Path, pays: pa.Array, sends: pa.Array) -> None:
    store = store_of(config_of(tmp_path, with_times(pays, sends), task={"split": {"kind": "time"}}))
    sends = store.schema.relations.index(Relation.parse(SENDS))
    parts = range(store.num_partitions)
    carrying = pa.concat_tables([store.edges(part, ["time"], relation=sends) for part in parts])
    pairs = pa.concat_tables([store.pairs(part, ["time", "split"]) for part in parts])
    held = pairs.filter(pc.greater(pairs["split"], 0))
    assert 0 < carrying.num_rows < 400
    assert pc.max(carrying["time"]).as_py() < pc.min(held["time"]).as_py()
