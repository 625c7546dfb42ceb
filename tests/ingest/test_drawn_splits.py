"""Splits of nodes that no column says: shares of the labelled ones, a function of id and seed alone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnflow.config import Config
from gnnflow.config.loading import PartialConfig
from gnnflow.graph.errors import TableError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.ingest.source import FIRST_TIME
from gnnflow.ingest.splits import find_splits
from gnnflow.ingest.tables import read_tables
from gnnflow.ingest.targets import DrawnSplit
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.first_look import first_look
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.stages.target_checks import check_held_out
from tests.budget import examples
from tests.command_line import run_cli
from tests.hearing import Heard
from tests.robustness.inputs import valid
from tests.small_graphs import graph_config, write_graph
from tests.time_splits import time_bounds

QUARTERS = {"kind": "random", "valid": 0.25, "test": 0.25}


def write(folder: Path, *, num_nodes: int = 400, column: bool = False, unlabelled: int = 0) -> None:
    write_graph(folder, num_nodes=num_nodes, num_edges=4 * num_nodes, string_ids=True)
    table = pq.read_table(folder / "nodes.parquet")
    if unlabelled:
        label = pa.array(table["label"].to_numpy(), mask=np.arange(num_nodes) < unlabelled)
        table = table.set_column(table.column_names.index("label"), "label", label)
    pq.write_table(table if column else table.drop_columns(["split"]), folder / "nodes.parquet")


def config_of(folder: Path, *, split: Any = QUARTERS, seed: int = 0, **graph: Any) -> Config:
    return graph_config(folder, task={"kind": "node", "split": split}, seed=seed, graph=graph)


def splits(config: Config) -> dict[str, int]:
    """Return the split code of each node by its id, as the graph store holds it."""
    artifact = make_artifact(StageContext.of(config), "ingest")
    tables = [pq.read_table(file, columns=["id", "split"]) for file in Path(artifact.artifact).glob("nodes-*.parquet")]
    table = pa.concat_tables(tables)
    return dict(zip(table["id"].to_pylist(), table["split"].to_pylist(), strict=True))


def heard(folder: Path, config: Config) -> str:
    """Return what a new ingest says."""
    progress, own = Heard(), config.model_copy(update={"workspace": mkdtemp(dir=folder)})
    make_artifact(StageContext.of(own, progress=progress), "ingest")
    return "\n".join(progress.messages)


def test_every_labelled_node_is_in_a_split_and_shares_are_those_asked_for(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=4000, unlabelled=1000)
    facts = make_artifact(StageContext.of(config_of(tmp_path)), "ingest").facts(GraphFacts)
    assert facts.splits["none"] == 1000
    assert sum(facts.splits.values()) == 4000
    # three deviations of a binomial share of 3,000
    assert facts.splits["valid"] == pytest.approx(750, abs=71)
    assert facts.splits["test"] == pytest.approx(750, abs=71)


def test_a_split_is_a_function_of_id_and_seed(tmp_path: Path) -> None:
    write(tmp_path)
    first = splits(config_of(tmp_path))
    assert splits(config_of(tmp_path, partitions=5)) == first
    assert splits(config_of(tmp_path, seed=1)) != first
    table = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(table.take(np.random.default_rng(0).permutation(400)), tmp_path / "nodes.parquet", row_group_size=90)
    assert splits(config_of(tmp_path)) == first


def test_a_node_stays_in_its_split_when_the_tables_grow(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=400)
    table, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    whole = splits(config_of(tmp_path))
    kept = table.slice(0, 300)
    inside = np.isin(edges["src"].to_pylist(), kept["id"]) & np.isin(edges["dst"].to_pylist(), kept["id"])
    pq.write_table(kept, tmp_path / "nodes.parquet")
    pq.write_table(edges.filter(inside), tmp_path / "edges.parquet")
    assert splits(config_of(tmp_path)).items() <= whole.items()


def test_the_column_is_not_read_and_the_log_says_so(tmp_path: Path) -> None:
    write(tmp_path)
    without = splits(config_of(tmp_path))
    write(tmp_path, column=True)
    config = config_of(tmp_path)
    assert splits(config) == without
    assert "25% of labelled nodes for valid and 25% for test; no column is read" in heard(tmp_path, config)


def test_a_run_trains_and_scores_on_them(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=200)
    config = config_of(tmp_path)
    config = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 2})})
    assert {"train.accuracy", "valid.accuracy", "test.accuracy"} <= pipeline.run_quietly(config).metrics.keys()


def test_what_is_drawn_for_nobody_is_refused(tmp_path: Path) -> None:
    write(tmp_path, num_nodes=60)
    with pytest.raises(TableError, match=r"no labelled node was drawn for split 'valid' .* see task\.split"):
        make_artifact(StageContext.of(config_of(tmp_path, split={"kind": "random", "valid": 0.0001})), "ingest")


@pytest.mark.parametrize(
    ("task", "graph", "refused"),
    [
        ({"split": {"kind": "random", "valid": 0}}, {}, True),
        ({"split": {"kind": "random", "valid": 0}}, {"label": None}, False),
        ({"split": {"kind": "random", "test": 0}}, {}, False),
        ({"kind": "link", "split": {"kind": "random", "valid": 0}}, {"label": None}, True),
        ({"kind": "edge", "split": {"kind": "time", "valid": 0}}, {}, True),
        ({"kind": "edge", "split": {"kind": "time", "valid": 0}}, {"label": None}, False),
    ],
)
def test_training_is_refused_that_holds_out_no_target_of_valid(
    tmp_path: Path, task: dict[str, Any], graph: dict[str, Any], refused: bool
) -> None:
    train = {"metric": "mrr"} if task.get("kind") == "link" else {}
    config = graph_config(tmp_path, task=task, graph=graph, train=train)
    with pytest.raises(TrainingError, match=r"task\.split\.valid: 0 is not allowed") if refused else nullcontext():
        check_held_out(config)


def test_shares_leave_some_to_train_on(tmp_path: Path) -> None:
    inputs = valid(tmp_path)
    inputs.config["task"] = {"kind": "node", "split": {"kind": "random", "valid": 0.5, "test": 0.5}}
    inputs.write()
    assert "task.split.test: valid and test are 1 of all, and none is left" in run_cli(inputs.arguments()).message


@pytest.mark.parametrize("asked", [{"graph": {"split": "part"}}, {"task": {"split": {"kind": "column"}}}])
def test_a_column_that_is_named_and_missing_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    inputs = valid(tmp_path)
    del inputs.nodes["split"]
    inputs.command = ["run"]
    inputs.config |= {**asked, "graph": inputs.config["graph"] | asked.get("graph", {})}
    inputs.write()
    assert "or set task.split to {kind: random}" in run_cli(inputs.arguments()).message


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_missing_split_is_drawn_told_and_recorded(tmp_path: Path, form: str) -> None:
    inputs = valid(tmp_path)
    del inputs.nodes["split"], inputs.nodes["x"]
    inputs.nodes_format, inputs.command = form, ["run"]
    inputs.config["graph"]["features"] = ["age"]
    inputs.config["train"] = {"epochs": 1}
    inputs.write()
    shown = run_cli(inputs.arguments())
    assert shown.code == 0, shown.err
    assert "splits: drawn by id, 10% of labelled nodes for valid and 20% for test; no column" in shown.err
    (record,) = inputs.workspace.glob("runs/*/*/run.json")
    assert json.loads(record.read_text())["config"]["task"]["split"] == {"kind": "random", "valid": 0.1, "test": 0.2}
    inputs.config["task"] = {"split": {"kind": "random"}}
    inputs.config_file.write_text(json.dumps(inputs.config))
    assert "ingest: started" not in run_cli(inputs.arguments()).err


def test_a_split_of_a_column_or_of_no_label_is_as_before(tmp_path: Path) -> None:
    write(tmp_path, column=True)
    left, column = (config_of(tmp_path, split={"kind": kind}) for kind in ("auto", "column"))
    assert resolve(left) == resolve(column)
    write(tmp_path)
    unlabelled = config_of(tmp_path, split={"kind": "auto"}, label=None)
    assert resolve(unlabelled).config.task.split.kind == "column"
    assert resolve(config_of(tmp_path, split={"kind": "auto"})).config.task.split.kind == "random"


DAYS = np.datetime64("2024-01-01") + np.arange(400) % 100  # four nodes a day


def write_times(folder: Path, times: Any, *, unlabelled: int = 0, label: Any = None, row_group_size: int = 90) -> None:
    write(folder, num_nodes=len(times), unlabelled=unlabelled)
    table = pq.read_table(folder / "nodes.parquet").append_column("seen", pa.array(times))
    if label is not None:
        table = table.set_column(table.column_names.index("label"), "label", pa.array(label))
    pq.write_table(table, folder / "nodes.parquet", row_group_size=row_group_size)


def by_time(*, valid: float = 0.1, test: float = 0.2) -> dict[str, Any]:
    return {"kind": "time", "column": "seen", "valid": valid, "test": test}


def test_the_last_nodes_by_time_are_test_and_the_dates_are_told(tmp_path: Path) -> None:
    write_times(tmp_path, DAYS)
    config = config_of(tmp_path, split=by_time())
    facts = make_artifact(StageContext.of(config), "ingest").facts(GraphFacts)
    assert facts.splits == {"none": 0, "train": 280, "valid": 40, "test": 80}
    assert facts.split_times == {"valid": "2024-03-11", "test": "2024-03-21"}
    assert "valid from 2024-03-11, test from 2024-03-21" in heard(tmp_path, config)
    found = splits(config)
    table = pq.read_table(tmp_path / "nodes.parquet")
    expected = np.digitize(np.arange(400) % 100, [70, 80])
    assert [found[each] for each in table["id"].to_pylist()] == expected.tolist()


@pytest.mark.parametrize("kind", ["time", "stratified"])
def test_ranked_splits_depend_on_neither_files_nor_partitions(tmp_path: Path, kind: str) -> None:
    split = by_time() if kind == "time" else {"kind": kind}
    write_times(tmp_path, DAYS, unlabelled=30)
    assert not first_look(PartialConfig(config_of(tmp_path, split=split), ())).stops  # no rank is known
    first = splits(config_of(tmp_path, split=split))
    assert splits(config_of(tmp_path, split=split, partitions=5)) == first
    table = pq.read_table(tmp_path / "nodes.parquet")
    (tmp_path / "nodes.parquet").unlink()
    (tmp_path / "nodes.parquet").mkdir()
    for number in range(3):
        piece = table.take(np.random.default_rng(0).permutation(400)[number::3])
        pq.write_table(piece, tmp_path / "nodes.parquet" / f"{number}.parquet", row_group_size=17)
    assert splits(config_of(tmp_path, split=split)) == first


TIMES = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 2))


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(TIMES, min_size=3, max_size=60), st.sampled_from([(0.1, 0.2), (0.3, 0.3), (0.2, 0.0)]), st.integers(1, 4)
)
def test_times_divide_nodes_as_sorting_all_of_them_does(
    tmp_path: Path, times: list[int], shares: tuple[float, float], partitions: int
) -> None:
    write_times(tmp_path, np.array(times), row_group_size=7)
    valid, test = shares
    config = config_of(tmp_path, split=by_time(valid=valid, test=test), partitions=partitions)
    drawn, work = DrawnSplit.of(config.task, seed=0), mkdtemp(dir=tmp_path)
    runner = RoundRunner(work, Synchronous())
    found = find_splits(read_tables(config.graph, runner, drawn=drawn), config.graph, runner).labelled.schema
    expected = time_bounds(np.array(times), valid=valid, test=test)
    assert found.drawn is not None
    assert [key - FIRST_TIME for key in found.drawn.groups[0][1]] == list(expected)


def test_every_class_of_three_is_in_every_split_and_shares_are_exact(tmp_path: Path) -> None:
    label = np.repeat([0, 1, 2, 3, 4], [300, 90, 3, 2, 1])
    write_times(tmp_path, np.arange(396), label=label)
    config = config_of(tmp_path, split={"kind": "stratified", "valid": 0.1, "test": 0.2})
    found, table = splits(config), pq.read_table(tmp_path / "nodes.parquet")
    codes = np.array([found[each] for each in table["id"].to_pylist()])
    counts = [np.bincount(codes[label == each], minlength=3).tolist() for each in range(5)]
    assert counts == [[210, 30, 60], [63, 9, 18], [1, 1, 1], [1, 1, 0], [1, 0, 0]]
    assert "no test row has class 3, 4: too few rows have it" in heard(tmp_path, config)
    # within a class the nodes are drawn as a random split draws them: test are those of the smallest hashes
    drawn = splits(config_of(tmp_path, split={"kind": "random", "valid": 0.1, "test": 0.1}))
    both = [each for each, code in drawn.items() if code == 2]
    assert np.mean([found[each] == 2 for each in both]) > 0.9


def test_a_class_that_a_random_draw_leaves_out_of_a_split_is_told(tmp_path: Path) -> None:
    write_times(tmp_path, np.arange(200), label=np.repeat([0, 1], [197, 3]))
    told = heard(tmp_path, config_of(tmp_path, split={"kind": "random", "valid": 0.02, "test": 0.02}))
    assert "no valid row has class 1. task.split: {kind: stratified} puts rows of each class" in told


@pytest.mark.parametrize(
    ("split", "times", "refused"),
    [
        (by_time(), ["2024-01-01"] * 39 + [None], r"time is null .* Give every labelled node a time"),
        (by_time(), ["2024-01-01"] * 39 + ["soon"], "time is not an ISO date or time"),
        (by_time(), [True] * 40, "column 'seen' is bool, not a time"),
        ({"kind": "time", "column": "joined"}, range(40), r"has no column 'joined' \(task\.split\.column\)"),
        ({"kind": "stratified"}, None, "holds numbers to predict, and a stratified split is by class"),
    ],
)
def test_a_table_that_cannot_be_split_so_is_refused(tmp_path: Path, split: Any, times: Any, refused: str) -> None:
    label = np.arange(40) / 3 if times is None else None
    write_times(tmp_path, list(range(40) if times is None else times), label=label)
    with pytest.raises(TableError, match=refused):
        make_artifact(StageContext.of(config_of(tmp_path, split=split)), "ingest")


def test_a_node_without_a_label_needs_no_time_and_bad_rows_do_not_count(tmp_path: Path) -> None:
    times = [None, "soon", *(f"2024-01-{1 + day:02d}T10:00" for day in range(20)), "never"]
    write_times(tmp_path, times, unlabelled=2)
    config = config_of(tmp_path, split=by_time(), on_bad_rows="quarantine", max_bad_rows=1)
    facts = make_artifact(StageContext.of(config), "ingest").facts(GraphFacts)
    assert facts.splits == {"none": 2, "train": 14, "valid": 2, "test": 4}
    assert facts.split_times == {"valid": "2024-01-15T10:00:00", "test": "2024-01-17T10:00:00"}
