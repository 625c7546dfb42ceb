"""Labels of edges, and times, through every stage on a small graph of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config, NodeTask
from gnnflow.graph.errors import ConfigError, RegistryError, ScoringError, TableError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.ingest.preview import preview_schemas
from gnnflow.ingest.preview_targets import count_labels
from gnnflow.ingest.targets import EdgeTargets
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.pairs import score_pairs
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest
from tests.hearing import Heard
from tests.small_graphs import graph_config
from tests.stages.test_links import write_groups

EDGE = {"kind": "edge", "width": 8, "decoder": {"kind": "mlp", "hidden": 16}, "split": {"kind": "time"}}
SHARES = {"kind": "time", "valid": 0.15, "test": 0.15}


def write_labelled(folder: Path) -> pa.Table:
    """Write groups whose edges have a time, an amount, and a label that is a function of amount and group."""
    write_groups(folder)
    table = pq.read_table(folder / "edges.parquet")
    rng = np.random.default_rng(1)
    amount = rng.normal(size=table.num_rows).astype(np.float32)
    label = (amount > 0).astype(np.int64)
    labels = pa.array(label, mask=rng.random(table.num_rows) < 0.1)
    table = table.append_column("label", labels).append_column("amount", pa.array(amount))
    table = table.append_column("timestamp", pa.array(rng.permutation(table.num_rows)))
    pq.write_table(table, folder / "edges.parquet")
    return table


def config_of(folder: Path, *, task: dict[str, Any] | None = None, **sections: Any) -> Config:
    train = {"epochs": 6, "batch_size": 256, "lr": 0.02, "metric": "accuracy", **sections.pop("train", {})}
    return graph_config(
        folder,
        task={**EDGE, "split": SHARES, **(task or {})},
        graph={"edge_features": ["amount"], **sections.pop("graph", {})},
        model={"kind": "sage", "hidden": 12, "dropout": 0.0},
        train=train,
        **sections,
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Any, Path]:
    folder = tmp_path_factory.mktemp("edges")
    write_labelled(folder)
    config = config_of(folder, graph={"classes": ["legal", "illicit"]})
    return config, run_pipeline(StageContext.of(config)), folder


def predictions(result: Any) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(Path(result.predictions).glob("*.parquet"))])


def test_a_run_learns_labels_of_edges_and_writes_a_row_for_each(done: tuple[Config, Any, Path]) -> None:
    _, result, folder = done
    assert result.metrics["test.accuracy"] > 0.85
    assert result.metrics["infer.parity_max_difference"] < 1e-4
    found, given = predictions(result), pq.read_table(folder / "edges.parquet")
    known, each = ["src", "dst", "label", "split"], ["probability_legal", "probability_illicit"]
    assert found.column_names == [*known, "prediction", "probabilities", "class", "decision", *each]
    names = {0: "legal", 1: "illicit"}
    assert found["class"].to_pylist() == [names[number] for number in found["prediction"].to_pylist()]
    pairs = [sorted(zip(each["src"].to_pylist(), each["dst"].to_pylist(), strict=True)) for each in (found, given)]
    assert pairs[0] == pairs[1]
    rows = np.stack(found["probabilities"].to_numpy())
    np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(rows.argmax(1), found["prediction"].to_numpy())


def test_predictions_lie_in_the_order_of_the_store_and_fit_their_own_edge(done: tuple[Config, Any, Path]) -> None:
    config, result, _ = done
    made = make_artifact(StageContext.of(config), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    pairs = pa.concat_tables([store.pairs(part, ["label", "attributes"]) for part in range(store.num_partitions)])
    labels, found = pairs["label"].to_numpy(), predictions(result)
    assert (labels == found["prediction"].to_numpy())[labels >= 0].mean() > 0.85
    names = {-1: None, 0: "legal", 1: "illicit"}
    assert found["label"].to_pylist() == [names[number] for number in labels.tolist()]


def test_the_report_shows_predictions_of_edges(done: tuple[Config, Any, Path]) -> None:
    page = Path(done[1].report).read_text()
    assert "Precision and recall at every threshold" in page
    assert "so predictions cannot be checked" not in page
    assert "infer.embeddings" not in page


def test_only_edges_of_the_splits_asked_for_are_scored(done: tuple[Config, Any, Path]) -> None:
    config, _, folder = done
    result = run_pipeline(StageContext.of(config_of(folder, infer={"targets": ["test"]})))
    made = make_artifact(StageContext.of(config), "ingest")
    count = GraphStore.of(made.artifact, made.manifest).facts.splits["test"]
    assert predictions(result).num_rows == count


@pytest.mark.table(2)
@pytest.mark.parametrize(
    "sections", [{"graph": {"partitions": 1}}, {"train": {"prefetch": 0}}, {"flat": {"layout": "inline"}}]
)
def test_partitions_prefetch_and_layout_do_not_change_what_is_learned(
    done: tuple[Config, Any, Path], sections: dict[str, Any]
) -> None:
    _, result, folder = done
    again = run_pipeline(StageContext.of(config_of(folder, **sections)))
    if "graph" in sections:  # other shards, so other batches
        assert abs(again.metrics["test.accuracy"] - result.metrics["test.accuracy"]) < 0.1
    else:
        assert again.metrics["test.accuracy"] == result.metrics["test.accuracy"]


@pytest.mark.table(2)
@pytest.mark.parametrize("split", [SHARES, {"kind": "random", "valid": 0.2, "test": 0.2, "earlier_only": True}])
def test_links_of_times_go_through_every_stage(tmp_path: Path, split: dict[str, Any]) -> None:
    write_labelled(tmp_path)
    task = {"kind": "link", "width": 8, "split": split, "negatives": {"kind": "uniform", "pool": 64, "evaluation": 20}}
    config = graph_config(
        tmp_path,
        task=task,
        neighbors={"sampling": {"kind": "uniform", "fanout": [6, 4]}},
        model={"kind": "sage", "hidden": 12, "dropout": 0.0},
        train={"epochs": 3, "batch_size": 256, "lr": 0.02, "metric": "mrr", "baseline": True},
    )
    metrics = run_pipeline(StageContext.of(config)).metrics
    assert metrics["test.roc_auc"] > 0.6
    assert 0 < metrics["baseline.test.mrr"] < 1


@pytest.mark.slow
def test_a_model_of_edges_is_published_compared_and_scores_the_graph(done: tuple[Config, Any, Path]) -> None:
    _, _, folder = done
    for sections, promoted in (({}, True), ({"train": {"epochs": 1, "lr": 1e-6}}, False)):
        context = StageContext.of(config_of(folder, **sections))
        run_pipeline(context)
        assert publish.run(context).promoted == promoted
    scored = pq.read_table(score.run(context).predictions)
    assert scored.column_names[:4] == ["src", "dst", "label", "split"]
    # a model of edges is not asked for labels of nodes
    nodes = pq.read_table(folder / "nodes.parquet")
    split = np.array(["train", "valid"])[np.arange(nodes.num_rows) % 2]
    labelled = nodes.append_column("label", pa.array(np.arange(nodes.num_rows) % 2)).append_column("split", [split])
    pq.write_table(labelled, folder / "labelled.parquet")
    keys = {"nodes": str(folder / "labelled.parquet")}
    config = config_of(folder, graph=keys).model_copy(update={"task": NodeTask()})
    make_artifact(StageContext.of(config), "ingest")
    with pytest.raises(RegistryError, match="label kind is single, the model was trained on single of edges"):
        score.run(StageContext.of(config))


@pytest.mark.slow
def test_classes_are_weighed_and_lists_and_numbers_are_labels_too(tmp_path: Path) -> None:
    table = write_labelled(tmp_path)
    amount = table["amount"].to_numpy()
    lists = pa.array([[int(value > 0), int(value > 1)] for value in amount])
    for label, train, names in (
        (table["label"], {"class_weight": "balanced"}, {"test.macro_f1"}),
        (lists, {"metric": "macro_f1"}, {"test.roc_auc_micro"}),
        (pa.array(amount * 2), {"metric": "rmse"}, {"test.mae", "test.rmse"}),
    ):
        place = table.column_names.index("label")
        pq.write_table(table.set_column(place, "label", label), tmp_path / "edges.parquet")
        result = run_pipeline(StageContext.of(config_of(tmp_path, train={"epochs": 2, **train})))
        assert names <= result.metrics.keys()
        assert predictions(result).num_rows == table.num_rows


@pytest.mark.table(3)
@pytest.mark.parametrize(
    "split",
    [SHARES, {"kind": "random", "valid": 0.2, "test": 0.2}, {"kind": "column"}],
    ids=lambda split: split["kind"],
)
def test_later_edges_are_scored_without_labels_or_splits(tmp_path: Path, split: dict[str, Any]) -> None:
    edges = write_labelled(tmp_path)
    names = np.array(["train", "valid", "test"])[np.arange(edges.num_rows) % 3]
    names = pa.array(names, mask=edges["label"].is_null().to_numpy())
    pq.write_table(edges.append_column("split", names), tmp_path / "edges.parquet")
    task = {"split": split}
    context = StageContext.of(config_of(tmp_path, task=task, graph={"classes": ["legal", "illicit"]}))
    run_pipeline(context)
    expected = predictions(publish.run(context)).drop_columns(["label", "split"])
    unread = {"graph": {"label": None}, "task": task}
    for later in (edges.drop_columns(["label"]), edges.set_column(2, "label", pa.nulls(edges.num_rows))):
        pq.write_table(later, tmp_path / "edges.parquet")
        found = predictions(score.run(StageContext.of(config_of(tmp_path, **unread))))
        assert "label" not in found.column_names
        assert found.drop_columns(["split"]).equals(expected)
    with pytest.raises(TrainingError, match=r"graph\.label: null, so nothing can be trained"):
        perform(StageContext.of(config_of(tmp_path, **unread)), "run")
    with pytest.raises(ScoringError, match=r"none of the edges is in test \(none .*Set it to all"):
        score.run(StageContext.of(config_of(tmp_path, **unread, infer={"targets": ["test"]})))


def test_an_edge_that_is_scored_alone_is_not_held_out_whatever_its_model_was_trained_on(tmp_path: Path) -> None:
    edges = write_labelled(tmp_path)
    task = {"messages": False}
    context = StageContext.of(config_of(tmp_path, task=task))
    run_pipeline(context)
    publish.run(context)
    pq.write_table(edges.drop_columns(["label"]), tmp_path / "edges.parquet")
    later = StageContext.of(config_of(tmp_path, task=task, graph={"label": None}))
    assert score.run(later).rows == edges.num_rows
    assert later.artifact("ingest").facts(GraphFacts).num_edges == edges.num_rows
    assert context.artifact("ingest").facts(GraphFacts).num_edges < edges.num_rows


@pytest.mark.table(2)
@pytest.mark.parametrize("split", [SHARES, {"kind": "random", "valid": 0.2, "test": 0.2}], ids=["time", "random"])
def test_a_published_model_holds_out_no_labelled_edge_either(tmp_path: Path, split: dict[str, Any]) -> None:
    edges = write_labelled(tmp_path)
    context = StageContext.of(config_of(tmp_path, task={"messages": False, "split": split}))
    run_pipeline(context)
    publish.run(context)
    assert context.artifact("ingest").facts(GraphFacts).num_edges < edges.num_rows
    scored = score.run(context)
    store = GraphStore.of(scored.reads[0], read_manifest(scored.reads[0])).facts
    assert (scored.rows, store.num_edges) == (edges.num_rows, edges.num_rows)
    asked = config_of(tmp_path, task={"messages": False, "split": split}, infer={"targets": ["test"]})
    assert score.run(StageContext.of(asked)).rows == store.splits["test"] > 0


def test_pairs_are_not_scored_with_a_model_of_labels(done: tuple[Config, Any, Path]) -> None:
    _, result, folder = done
    with pytest.raises(ScoringError, match=r"task\.kind is edge, whose model scores no pairs"):
        score_pairs(result.uri, str(folder / "edges.parquet"), out=str(folder / "out.parquet"), workspace=str(folder))


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"infer": {"embeddings": True}}, "infer.embeddings"),
        ({"flat": {"targets": "all"}}, "flat.targets"),
        ({"train": {"metric": "mrr"}}, "train.metric"),
        ({"task": {"decoder": {"kind": "dot"}}}, "task.decoder"),
        ({"task": {"negatives": {"kind": "uniform"}}}, "task.negatives"),
        ({"task": {"split": {"kind": "time", "earlier_only": False}}}, "task.split"),
    ],
)
def test_keys_that_mean_nothing_for_labels_of_edges_are_refused(
    tmp_path: Path, sections: dict[str, Any], key: str
) -> None:
    write_labelled(tmp_path)
    with pytest.raises(ConfigError, match=key):
        config_of(tmp_path, **sections)


def test_a_missing_split_of_edges_is_made_as_their_times_and_the_strategy_allow(tmp_path: Path) -> None:
    table = write_labelled(tmp_path)
    place = table.column_names.index("timestamp")
    days = pa.array(np.datetime64("2024-01-01") + np.arange(table.num_rows) % 20)

    def kind(column: Any, *, name: str = "timestamp", train: dict[str, Any] | None = None, **graph: Any) -> str:
        pq.write_table(table.set_column(place, name, column), tmp_path / "edges.parquet")
        config = config_of(tmp_path, task={"split": {"kind": "auto"}}, train=train or {}, graph=graph)
        return resolve(config).config.task.split.kind

    assert kind(table["timestamp"]) == "random"  # integers may be anything
    assert kind(table["timestamp"], name="at", timestamp="at") == "time"
    assert kind(days, train={"parallel": "hybrid"}) == "random"  # it cannot hide later edges
    assert kind(days, label=None) == kind(days, split="part") == "column"
    assert kind(days) == "time"
    heard, auto = Heard(), config_of(tmp_path, task={"split": {"kind": "auto"}})
    facts = make_artifact(StageContext.of(auto, progress=heard), "ingest").facts(GraphFacts)
    assert facts.split_times == {"valid": "2024-01-18", "test": "2024-01-19"}
    assert any("splits: by time (graph.timestamp)" in each for each in heard.messages)
    split = pa.array(np.array(["train", "valid", "test"])[np.arange(table.num_rows) % 3])
    pq.write_table(table.append_column("split", split), tmp_path / "edges.parquet")
    asked = [config_of(tmp_path, task={"split": {"kind": each}}) for each in ("auto", "column")]
    assert resolve(asked[0]).uri == resolve(asked[1]).uri  # as before there was auto


@pytest.mark.parametrize("messages", [True, False])
def test_labelled_edges_are_stratified_with_exact_shares_in_any_partitions(tmp_path: Path, messages: bool) -> None:
    table = write_labelled(tmp_path).drop_columns(["timestamp"]).slice(0, 400)
    ends = pa.table({name: table[name] for name in ("src", "dst")})
    back = ends.rename_columns(["dst", "src"]).select(["src", "dst"])  # an edge and its reverse of one class
    label = np.repeat([0, 1, 2], [300, 97, 3])
    both = pa.concat_tables([ends, back]).append_column("label", [np.r_[label, label]])
    both = both.append_column("amount", [np.zeros(800, np.float32)])
    pq.write_table(both, tmp_path / "edges.parquet", row_group_size=170)
    found = []
    for partitions in (1, 3):
        task = {"split": {"kind": "stratified", "valid": 0.1, "test": 0.2}, "messages": messages}
        config = config_of(tmp_path, task=task, graph={"partitions": partitions})
        made = make_artifact(StageContext.of(config), "ingest")
        store = GraphStore.of(made.artifact, made.manifest)
        parts = [store.pairs(part, ["src", "dst", "split", "label"]) for part in range(partitions)]
        ids = np.concatenate(
            [store.nodes(part, ["id"])["id"].to_numpy(zero_copy_only=False) for part in range(partitions)]
        )
        held = pa.concat_tables(parts)
        src, dst = (ids[held[name].to_numpy()] for name in ("src", "dst"))
        code, of_class = held["split"].to_numpy(), held["label"].to_numpy()
        found.append(sorted(zip(src, dst, of_class.tolist(), code.tolist(), strict=True)))
    assert found[0] == found[1]
    of_pairs = {}
    for src, dst, of_class, code in found[0]:
        of_pairs.setdefault((frozenset((src, dst)), of_class), set()).add(code)
    assert all(len(codes) == 1 for codes in of_pairs.values())
    rows = np.array([[of_class, code] for *_, of_class, code in found[0]])
    for of_class in range(3):
        codes = rows[rows[:, 0] == of_class, 1]
        shares = [np.mean(codes == code) for code in (1, 2)]
        assert min(np.bincount(codes, minlength=3)) > 0
        np.testing.assert_allclose(shares, [0.1, 0.2], atol=2 / len(codes) + (0.14 if of_class == 2 else 0.02))
    targets = EdgeTargets.of(config.task, config.graph, seed=config.seed)
    counted = count_labels(preview_schemas(config.graph, targets=targets, drawn=None, states={}))
    assert counted is not None
    assert counted.splits == store.facts.splits  # the check divides them alike


def test_numbers_are_not_stratified(tmp_path: Path) -> None:
    table = write_labelled(tmp_path)
    table = table.set_column(table.column_names.index("label"), "label", table["amount"])
    pq.write_table(table, tmp_path / "edges.parquet")
    config = config_of(tmp_path, task={"split": {"kind": "stratified"}}, train={"metric": "mae"})
    with pytest.raises(TableError, match="holds numbers to predict, and a stratified split is by class"):
        make_artifact(StageContext.of(config), "ingest")
