"""Runs and scorings of tables that changed too much are stopped, with the figure, the limit and the fix."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.errors import GuardError, StorageError
from gnnflow.registry.scores import read_scores
from gnnflow.stages import guards, pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.stages.score_drift import Change, ScoreDrift
from gnnflow.stages.score_figures import Figures
from gnnflow.stages.score_guards import check_drift
from gnnflow.storage.columns import from_matrix, from_ragged, to_matrix
from gnnflow.storage.filesystem import read_json
from gnnflow.storage.writing import remove_tree
from tests.command_line import printed, run_cli
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph
from tests.small_links import config_of, write_groups
from tests.typed_graphs import RELATIONS, SIZES, typed_tables, write_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = 400
CHEAP: dict[str, Any] = {"graph": {"partitions": 1}, "train": {"epochs": 1}, "infer": {"parity_samples": 5}}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph with a completed run, and the tables of tomorrow not yet written."""
    write_graph(tmp_path, num_nodes=NODES, num_edges=800)
    pipeline.run_quietly(graph_config(tmp_path, **CHEAP))
    return tmp_path


def check(folder: Path, **limits: Any) -> guards.GuardResult:
    config = graph_config(folder, guards=limits, **CHEAP)
    make_artifact(StageContext.of(config), "ingest")
    return guards.check(StageContext.of(config))


def with_features(folder: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    table = pq.read_table(folder / "nodes.parquet")
    x = change(to_matrix(table["x"]).copy()).astype(np.float32)
    pq.write_table(table.set_column(1, "x", from_matrix(x)), folder / "nodes.parquet")


def test_the_same_tables_pass(graph: Path) -> None:
    report = check(graph)
    assert report.previous == read_json(str(graph / "runs/runs/small/latest.json"))["run"]
    assert set(report.figures.values()) == {0.0}
    columns = {f"psi.x[{place}]" for place in range(5)} | {"psi.label", "psi.edge: graph.weight"}
    assert {name for name in report.figures if name.startswith("psi.")} == columns


def test_the_registry_is_not_read_where_edges_have_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds reads of storage whose answer changes nothing, before each stage of Airflow."""
    write_graph(tmp_path, num_nodes=NODES, num_edges=800)
    config = graph_config(tmp_path, guards={"psi": 0.2}, **{**CHEAP, "graph": {"partitions": 1, "weight": None}})
    make_artifact(StageContext.of(config), "ingest")
    monkeypatch.delattr(registry, "read_aliases")
    assert guards.is_quick(StageContext.of(config))


def test_without_an_earlier_run_everything_passes(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path)
    make_artifact(StageContext.of(config), "ingest")
    heard = Heard()
    report = guards.check(StageContext.of(config, progress=heard))
    assert (report.previous, report.figures) == ("", {})
    assert "no earlier run" in heard.messages[0]


def test_the_model_in_service_is_compared_with_and_no_later_experiment(graph: Path) -> None:
    first = read_json(str(graph / "runs/runs/small/latest.json"))["run"]
    registry.register(str(graph / "runs"), first)
    registry.promote(str(graph / "runs"), "small", 1)
    experiment = pipeline.run_quietly(graph_config(graph, **{**CHEAP, "seed": 5}))
    assert experiment.uri != first
    assert check(graph).previous == first


def test_tables_as_they_drift_by_chance_pass(graph: Path) -> None:
    write_graph(graph, num_nodes=NODES, num_edges=820, seed=9)
    report = check(graph)
    assert report.figures["edges"] == pytest.approx(0.025)
    assert report.worst_column is not None
    assert 0 < report.worst_column[1] < 0.25


def shifted(x: np.ndarray) -> np.ndarray:
    x[:, 3] += 2
    return x


def test_a_feature_that_moved_is_named(graph: Path) -> None:
    with_features(graph, shifted)
    with pytest.raises(GuardError) as caught:
        check(graph)
    text = str(caught.value)
    assert "column x[3] has changed: PSI " in text
    assert "and 0.25 is allowed" in text
    assert "raise guards.psi" in text
    assert str(graph / "nodes.parquet") in text
    assert "latest" not in text
    assert "runs/small/" in text
    assert check(graph, psi=None).figures["nodes"] == 0
    assert check(graph, psi=9).worst_column[0] == "x[3]"


def test_the_worst_of_several_columns_comes_first(graph: Path) -> None:
    def move(x: np.ndarray) -> np.ndarray:
        x[:, 1] += 1
        x[:, 4] += 5
        return x

    with_features(graph, move)
    with pytest.raises(GuardError, match=r"column x\[4\] has changed.*also over the limit: x\[1\]"):
        check(graph)


def test_other_feature_columns_are_named(graph: Path) -> None:
    with_features(graph, lambda x: x[:, :4])
    with pytest.raises(GuardError, match=r"columns differ from those before: x\[4\]"):
        check(graph)


@pytest.mark.table(4)
@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"num_nodes": NODES, "num_edges": 300}, "300 edges, 800 before: -62.5%, and 50.0% is allowed"),
        ({"num_nodes": 160, "num_edges": 800}, "160 nodes, 400 before: -60.0%, and 50.0% is allowed"),
        ({"num_nodes": NODES, "num_edges": 1300}, r"1,300 edges, 800 before: \+62.5%"),
    ],
)
def test_lost_and_doubled_rows_are_named(graph: Path, sizes: dict[str, int], text: str) -> None:
    write_graph(graph, **sizes)
    with pytest.raises(GuardError, match=text) as caught:
        check(graph, psi=None)
    assert "guards.rows" in caught.value.fix
    assert check(graph, rows=2, psi=None, label_rate=None).previous


def test_vanished_labels_are_named(graph: Path) -> None:
    table = pq.read_table(graph / "nodes.parquet")
    for name in ("label", "split"):
        kept = [held if place % 8 < 4 else None for place, held in enumerate(table[name].to_pylist())]
        table = table.set_column(table.column_names.index(name), name, [kept])
    pq.write_table(table, graph / "nodes.parquet")
    with pytest.raises(GuardError, match=r"50.00% of the nodes have a label, 100.00% before: -50.0%, and 20.0%"):
        check(graph)
    assert check(graph, label_rate=0.6).figures["label_rate"] == -0.5


@pytest.mark.parametrize("label", [lambda _: 0, lambda held: held + 1], ids=["one class", "another class each"])
def test_labels_whose_classes_moved_are_named(graph: Path, label: Callable[[int], int]) -> None:
    table = pq.read_table(graph / "nodes.parquet")
    place = table.column_names.index("label")
    moved = [label(held) for held in table["label"].to_pylist()]
    pq.write_table(table.set_column(place, "label", [moved]), graph / "nodes.parquet")
    with pytest.raises(GuardError, match=r"column label has changed: PSI .* and 0.25 is allowed") as caught:
        check(graph)
    assert caught.value.where == str(graph / "nodes.parquet")
    assert "guards.psi" in caught.value.fix
    assert check(graph, psi=100).figures["psi.label"] > 0.25


def test_classes_are_compared_by_name_whatever_their_order(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=NODES, num_edges=800)
    table = pq.read_table(tmp_path / "nodes.parquet")
    place = table.column_names.index("label")

    def write(names: list[str]) -> None:
        rare = [names[min(number % 8, 2)] for number in range(NODES)]
        pq.write_table(table.set_column(place, "label", [rare]), tmp_path / "nodes.parquet")

    def checked(classes: list[str]) -> dict[str, float]:
        sections = {**CHEAP, "graph": {**CHEAP["graph"], "classes": classes}}
        make_artifact(StageContext.of(graph_config(tmp_path, **sections)), "ingest")
        return guards.check(StageContext.of(graph_config(tmp_path, **sections))).figures

    write(["ok", "bad", "ugly"])
    sections = {**CHEAP, "graph": {**CHEAP["graph"], "classes": ["ok", "bad", "ugly"]}}
    pipeline.run_quietly(graph_config(tmp_path, **sections))
    assert checked(["ugly", "ok", "bad"])["psi.label"] == 0.0
    write(["ugly", "bad", "ok"])
    with pytest.raises(GuardError, match="column label has changed"):
        checked(["ugly", "bad", "ok"])


def test_labels_of_another_kind_are_named(graph: Path) -> None:
    table = pq.read_table(graph / "nodes.parquet")
    place = table.column_names.index("label")
    numbers = pa.array([held + 0.5 for held in table["label"].to_pylist()], pa.float32())
    pq.write_table(table.set_column(place, "label", numbers), graph / "nodes.parquet")
    config = graph_config(graph, **{**CHEAP, "train": {"epochs": 1, "metric": "loss"}})
    make_artifact(StageContext.of(config), "ingest")
    with pytest.raises(GuardError, match="labels are of the kind regression, single before"):
        guards.check(StageContext.of(config))


def test_every_breach_is_told_at_once(graph: Path) -> None:
    write_graph(graph, num_nodes=100, num_edges=900)
    with_features(graph, shifted)
    with pytest.raises(GuardError, match=r"100 nodes.*column x\[3\].*guards.rows and guards.psi"):
        check(graph)


def test_a_stopped_run_is_no_reference_and_an_accepted_one_is(graph: Path) -> None:
    with_features(graph, shifted)
    for _ in range(2):
        with pytest.raises(GuardError):
            check(graph)
    accepted = pipeline.run_quietly(graph_config(graph, **CHEAP))
    report = check(graph)
    assert report.previous == accepted.uri


def test_a_reference_that_is_gone_is_said(graph: Path) -> None:
    with_features(graph, shifted)
    remove_tree(str(graph / "runs/artifacts/ingest"))
    with pytest.raises(GuardError, match="graph store is gone"):
        check(graph)


def test_ingest_comes_first(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(StorageError, match="stage ingest has not run"):
        guards.check(StageContext.of(graph_config(tmp_path)))


def test_columns_and_weights_of_edges_are_compared_too(tmp_path: Path) -> None:
    """Amounts in cents and weights that lost their meaning change no node's column.

    Numbers that each table standardises by its own figures are compared as they were before.
    """
    write_graph(tmp_path, num_nodes=NODES, num_edges=800)
    plain = pq.read_table(tmp_path / "edges.parquet")
    keys = {"edge_features": ["amount", "kind"], "weight": "weight", "normalize": "standard"}
    graph = {**CHEAP["graph"], **keys}

    def write(**columns: Any) -> None:
        held = {"kind": pa.array(["a", "b"] * 400)}
        table = plain.drop_columns([name for name in columns if name in plain.column_names])
        for name, values in (held | columns).items():
            table = table.append_column(name, values)
        pq.write_table(table, tmp_path / "edges.parquet")

    def found(*, quick: bool = False, **limits: Any) -> dict[str, float]:
        config = graph_config(tmp_path, **{**CHEAP, "graph": graph}, guards=limits)
        make_artifact(StageContext.of(config), "ingest")
        assert guards.is_quick(StageContext.of(config)) == quick
        return {name: psi for name, psi in guards.check(StageContext.of(config)).figures.items() if "edge: " in name}

    write()
    pipeline.run_quietly(graph_config(tmp_path, **{**CHEAP, "graph": graph}))
    same = found(quick=True)
    assert {f"psi.edge: {name}" for name in ("amount", "kind = a", "graph.weight")} <= same.keys()
    assert set(same.values()) == {0.0}
    amount, weight = (plain[name].to_numpy() for name in ("amount", "weight"))
    for column, change in {
        "amount": {"amount": pa.array(amount * 100 + 3)},
        "graph.weight": {"weight": pa.array(weight + 1)},
        "kind = [bc]": {"kind": pa.array(["a", "c"] * 400)},
    }.items():
        write(**change)
        with pytest.raises(GuardError, match=rf"column edge: {column} has changed: PSI ") as caught:
            found()
        assert caught.value.where == str(tmp_path / "edges.parquet")


def test_times_of_edges_are_compared_by_their_place_in_the_table(tmp_path: Path) -> None:
    """A month later is no change; a month of which half has one time is one."""
    write_groups(tmp_path)
    plain = pq.read_table(tmp_path / "edges.parquet")
    times = np.random.default_rng(0).permutation(plain.num_rows)
    split = {"kind": "time", "valid": 0.1, "test": 0.1}
    config = config_of(tmp_path, task={"split": split}, train={"epochs": 1}, guards={"commands": ["run"]})

    def write(values: np.ndarray) -> None:
        pq.write_table(plain.append_column("timestamp", pa.array(values)), tmp_path / "edges.parquet")

    write(times)
    pipeline.run_quietly(config)
    write(times + 10 * len(times))
    make_artifact(StageContext.of(config), "ingest")
    assert guards.check(StageContext.of(config)).figures["psi.edge: graph.timestamp"] == 0.0
    write(np.where(times < len(times) / 2, 0, times))
    with pytest.raises(GuardError, match=r"column edge: graph\.timestamp has changed: PSI "):
        pipeline.run_quietly(config)


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A typed graph with a completed run, its tables below `tables`."""
    pipeline.run_quietly(typed_config(tmp_path, typed_tables(num_edges=400)))
    return tmp_path


def typed_config(folder: Path, tables: dict[str, pa.Table], **limits: Any) -> Config:
    graph = {**write_tables(folder / "tables", tables), "reverse_edges": True, "partitions": 1}
    content = {"name": "typed", "workspace": str(folder / "runs"), "graph": graph, "model": {"hidden": 4}}
    cheap = {"train": CHEAP["train"], "infer": CHEAP["infer"], "cluster": {"kind": "synchronous"}}
    return config_from_dict({**content, **cheap, "guards": limits})


def check_typed(folder: Path, tables: dict[str, pa.Table], **limits: Any) -> guards.GuardResult:
    config = typed_config(folder, tables, **limits)
    make_artifact(StageContext.of(config), "ingest")
    return guards.check(StageContext.of(config))


def test_every_type_and_relation_has_figures_of_its_own(typed: Path) -> None:
    figures = check_typed(typed, typed_tables(num_edges=400)).figures
    counts = {name for name in figures if name.startswith(("nodes.", "edges."))}
    assert counts == {f"nodes.{name}" for name in SIZES} | {f"edges.{name}" for name in RELATIONS}
    assert {"psi.account: x[0]", "psi.merchant: entries of x in a row"} <= set(figures)
    assert set(figures.values()) == {0.0}


def test_a_relation_that_lost_its_edges_is_named_where_the_whole_graph_hardly_changed(typed: Path) -> None:
    tables = typed_tables(num_edges=400)
    tables["account__uses__device"] = tables["account__uses__device"].slice(0, 100)
    with pytest.raises(GuardError) as caught:
        check_typed(typed, tables)
    assert "100 edges of account__uses__device, 400 before: -75.0%, and 50.0% is allowed" in str(caught.value)
    assert caught.value.where == str(typed / "tables" / "account__uses__device.parquet")
    assert "{" not in str(caught.value)


def test_rows_of_each_table_that_is_scored_are_compared(typed: Path) -> None:
    tables = typed_tables(num_edges=400)
    tables["account__uses__device"] = tables["account__uses__device"].slice(0, 100)
    context = StageContext.of(typed_config(typed, tables, commands=["score"]))
    make_artifact(context, "ingest")
    with pytest.raises(GuardError, match=r"100 rows of edges account__uses__device, 400 before: -75.0%") as caught:
        guards.check_scored(context, context.artifact("ingest"))
    assert caught.value.where == str(typed / "tables" / "account__uses__device.parquet")


def test_a_type_that_grew_and_one_whose_feature_moved_are_named_with_their_tables(typed: Path) -> None:
    tables = typed_tables(num_edges=400)
    devices = tables["device"]["id"].to_pylist()
    tables["device"] = pa.table({"id": [*devices, *(f"new {name}" for name in devices)]})
    merchants = tables["merchant"]
    wide = from_ragged(np.arange(merchants.num_rows + 1) * 7, np.tile(np.arange(7), merchants.num_rows))
    tables["merchant"] = merchants.set_column(1, "x_index", wide)
    with pytest.raises(GuardError) as caught:
        check_typed(typed, tables)
    text = str(caught.value)
    assert "26 nodes of type device, 13 before: +100.0%" in text
    assert "column merchant: entries of x in a row has changed: PSI " in text
    assert caught.value.where == f"{typed}/tables/device.parquet, {typed}/tables/merchant.parquet"
    assert "raise guards.rows and guards.psi" in text


def test_the_label_rate_is_that_of_the_target_type(typed: Path) -> None:
    tables = typed_tables(num_edges=400)
    devices = tables["device"]["id"].to_pylist()
    tables["device"] = pa.table({"id": [*devices, *(f"more {name}" for name in devices)]})
    assert check_typed(typed, tables, rows=2).figures["label_rate"] == 0.0
    account = tables["account"]
    for name in ("label", "split"):
        kept = [held if place % 8 < 4 else None for place, held in enumerate(account[name].to_pylist())]
        account = account.set_column(account.column_names.index(name), name, [kept])
    with pytest.raises(GuardError, match=r"50.00% of the nodes of type account have a label, 100.00% before") as caught:
        check_typed(typed, {**tables, "account": account}, rows=2)
    assert caught.value.where == str(typed / "tables" / "account.parquet")


def written(folder: Path, **limits: Any) -> str:
    """Write the graph's config with limits, and return its place."""
    place = folder / "config.yaml"
    place.write_text(graph_config(folder, guards=limits, **CHEAP).model_dump_json())
    return str(place)


def test_a_run_stops_before_it_trains_where_the_config_asks_for_it(graph: Path) -> None:
    with_features(graph, shifted)
    config, out = written(graph, commands=["run"]), graph / "out.parquet"
    latest = read_json(str(graph / "runs/runs/small/latest.json"))
    shown = run_cli(["run", config, "--out", str(out)])
    assert "column x[3] has changed: PSI " in shown.message
    assert "raise guards.psi for one run" in shown.message
    assert (shown.code, out.exists()) == (2, False)
    assert len(list((graph / "runs/artifacts/train").iterdir())) == 1
    assert read_json(str(graph / "runs/runs/small/latest.json")) == latest
    printed(["run", config, "--out", str(out), "--set", "guards.psi=9"])
    assert out.exists()


@pytest.fixture
def in_service(graph: Path) -> Path:
    """The graph's run in service."""
    publish.run(StageContext.of(graph_config(graph, **CHEAP)))
    return graph


def without_labels(folder: Path) -> None:
    table = pq.read_table(folder / "nodes.parquet")
    pq.write_table(table.drop_columns(["label", "split"]), folder / "nodes.parquet")


def test_a_scoring_looks_at_columns_and_rows_of_its_tables_and_not_at_labels(in_service: Path) -> None:
    without_labels(in_service)
    guarded = graph_config(in_service, guards={"commands": ["score"], "scores": None}, **CHEAP)
    assert score.run(StageContext.of(guarded)).rows == NODES
    write_graph(in_service, num_nodes=NODES, num_edges=1300)
    with_features(in_service, shifted)
    without_labels(in_service)
    with pytest.raises(GuardError) as caught:
        score.run(StageContext.of(guarded))
    text = str(caught.value)
    assert "1,300 rows of edges, 800 before: +62.5%, and 50.0% is allowed" in text
    assert caught.value.where == f"{in_service}/edges.parquet, {in_service}/nodes.parquet"
    assert "column x[3] has changed: PSI " in text
    assert "raise guards.rows and guards.psi for one scoring" in text
    assert len([*read_scores(guarded.workspace, "small")]) == 1
    # by default only the retraining DAG looks at the tables
    assert score.run(StageContext.of(graph_config(in_service, **CHEAP))).rows == NODES


def test_edges_that_a_run_hides_from_its_model_are_no_change_of_the_tables(tmp_path: Path) -> None:
    write_groups(tmp_path)
    split = {"kind": "random", "valid": 0.3, "test": 0.3}
    config = config_of(
        tmp_path, task={"split": split}, train={"epochs": 1}, guards={"commands": ["run", "score"], "rows": 0.01}
    )
    pipeline.run_quietly(config)
    publish.run(StageContext.of(config))
    assert score.run(StageContext.of(config)).rows == 90


def test_predictions_that_moved_appear_nowhere(in_service: Path) -> None:
    config, out = written(in_service, commands=["score"], psi=None), in_service / "out.parquet"
    with_features(in_service, lambda x: x * 50)
    shown = run_cli(["score", config, "--out", str(out)])
    assert "compared with the predictions of version 1's own run: " in shown.message
    assert "highest probability: PSI " in shown.message
    assert "raise guards.scores" in shown.message
    assert (shown.code, out.exists()) == (2, False)
    assert not [*read_scores(str(in_service / "runs"), "small")]
    printed(["score", config, "--out", str(out), "--set", "guards.scores=99"])
    assert len([*read_scores(str(in_service / "runs"), "small")]) == 1
    assert out.exists()


@pytest.mark.parametrize(
    ("name", "now", "beyond_noise", "stops"),
    [
        ("accuracy", 0.5, True, True),
        ("accuracy", 0.5, None, True),
        ("accuracy", 0.5, False, False),
        ("accuracy", 0.7, True, False),
        ("accuracy", 1.0, True, False),
        ("mae", 1.0, True, True),
        ("mae", 0.5, True, False),
    ],
)
def test_a_metric_that_got_worse_by_more_than_noise_stops_a_scoring(
    tmp_path: Path, name: str, now: float, beyond_noise: bool | None, stops: bool
) -> None:
    config = graph_config(tmp_path, guards={"commands": ["score"]})
    figures = Figures(9, 9, {f"score.{name}": now}, f"score.{name}")
    # another metric than the headline stops nothing
    changes = (Change(f"score.{name}", now, 0.8, beyond_noise), Change("score.f1", 0.1, 0.8, True))
    drift = ScoreDrift("the month before", changes=changes)
    if not stops:
        check_drift(config, figures, drift, folder="")
        return
    # a mean over other classes than before is not compared
    check_drift(
        config,
        figures,
        replace(drift, changes=(replace(changes[0], why_not="as a mean over other classes"),)),
        folder="",
    )
    with pytest.raises(GuardError, match=rf"score.{name} .*, 0.8000 before.*: .* and 20.0% is allowed") as caught:
        check_drift(config, figures, drift, folder="")
    assert "guards.metric" in caught.value.fix
    check_drift(graph_config(tmp_path), figures, drift, folder="")
