"""What training would refuse is said before GraphFlat: by the columns before ingest, by the graph store after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict
from gnnflow.graph.errors import GnnflowError
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.config import Config

TRAIN = {"epochs": 1, "threads": 1}


class Begun(Heard):
    """Keeps the stages that began their work."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def stage_started(self, stage: str) -> None:
        self.stages.append(stage)


def refused(config: Config) -> tuple[list[str], str]:
    """Run a config that is refused; return the stages that began and what was said."""
    begun = Begun()
    with pytest.raises(GnnflowError) as caught:
        perform(StageContext.of(config, progress=begun), "run")
    return begun.stages, str(caught.value)


def text_config(folder: Path, *, without: str = "", labels: list[Any] | None = None, **sections: Any) -> Config:
    """Return the config of a small graph in CSV. without: a column of the nodes that is left out."""
    write_graph(folder)
    nodes, edges = (pq.read_table(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    first = pa.array([row[0] for row in nodes["x"].to_pylist()])
    nodes = nodes.drop_columns(["x"]).append_column("f", first)
    if labels is not None:
        nodes = nodes.set_column(nodes.schema.get_field_index("label"), "label", pa.array(labels))
    plain = pa_csv.WriteOptions(quoting_style="none")  # quotes may hold line breaks: a sample then takes whole blocks
    pa_csv.write_csv(nodes.drop_columns([without] if without else []), folder / "nodes.csv", plain)
    pa_csv.write_csv(edges, folder / "edges.csv")
    graph = {"nodes": str(folder / "nodes.csv"), "edges": str(folder / "edges.csv"), "features": ["f"]}
    return graph_config(folder, graph=graph, **{"train": TRAIN, **sections})


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("split", "graph.split: the node table has no split column 'parts' that marks nodes as train"),
        ("label", "graph.label: the node table has no label column 'label', so nothing can be trained"),
    ],
)
def test_a_column_that_text_lacks_is_named_before_ingest(tmp_path: Path, without: str, said: str) -> None:
    config = text_config(tmp_path, without=without)
    if without == "split":
        config = config.model_copy(update={"graph": config.graph.model_copy(update={"split": "parts"})})
    stages, text = refused(config)
    assert stages == []
    assert said in text


def test_text_without_a_split_column_runs_where_splits_are_drawn(tmp_path: Path) -> None:
    config = text_config(tmp_path, without="split", task={"split": {"kind": "random"}})
    assert pipeline.run_quietly(config).metrics["train.epochs"] == 1


@pytest.mark.parametrize(
    ("labels", "train", "said"),
    [
        (None, {"loss": {"kind": "huber"}}, "huber does not support single labels"),
        ([number + 0.5 for number in range(60)], {"metric": "mae", "class_weight": "balanced"}, "needs classes"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_labels_of_text_cannot_be_trained_with_is_said_once_they_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    labels: list[float] | None,
    train: dict[str, Any],
    said: str,
    *,
    is_whole: bool,
) -> None:
    if not is_whole:
        monkeypatch.setattr("gnnflow.storage.samples._MOST_BYTES", 400)
    stages, text = refused(text_config(tmp_path, labels=labels, train={**TRAIN, **train}))
    assert stages == ([] if is_whole else ["ingest", "select"])
    assert said in text


@pytest.mark.parametrize(
    ("train", "task", "said"),
    [
        ({"workers": 16}, {}, "15 training targets cannot be divided evenly among 16 ranks. Set it to 15 or less"),
        ({"workers": 4, "batch_size": 1}, {}, "Set it to a number that divides 15, or train.batch_size to 2 or more"),
        (
            {"workers": 900, "metric": "mrr"},
            {"kind": "link"},
            "training targets cannot be divided evenly among 900 ranks",
        ),
    ],
)
def test_fewer_targets_than_ranks_are_said_before_graphflat(
    tmp_path: Path, train: dict[str, Any], task: dict[str, Any], said: str
) -> None:
    write_graph(tmp_path)
    cluster = {"kind": "local", "workers": train["workers"]}
    config = graph_config(tmp_path, train={**TRAIN, **train}, task=task, cluster=cluster)
    stages, text = refused(config)
    assert stages == ["ingest", "select"]
    assert said in text
    with pytest.raises(GnnflowError, match="cannot be divided evenly"):
        perform(StageContext.of(config), "flat")


@pytest.mark.parametrize("train", [{"workers": 15}, {"workers": 5, "batch_size": 1}, {"workers": 16, "elastic": True}])
def test_as_many_targets_as_ranks_are_enough(tmp_path: Path, train: dict[str, Any]) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, train={**TRAIN, **train}, cluster={"kind": "local", "workers": train["workers"]})
    context = StageContext.of(config)
    for stage in ("ingest", "flat"):
        perform(context, stage)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"strategy": "global-batch", "workers": 5}, "5 ranks share 4 partitions under global-batch, and each needs"),
        ({"strategy": "cluster-batch", "clusters_per_batch": 5}, "and a batch takes 5 of them. Raise it, or lower"),
    ],
)
def test_partitions_that_follow_from_the_tables_are_counted_before_ingest(
    tmp_path: Path, train: dict[str, Any], said: str
) -> None:
    write_graph(tmp_path)
    content = graph_config(tmp_path).model_dump(mode="json")
    content["graph"]["partitions"] = None
    content |= {"train": {**TRAIN, **train}, "cluster": {"kind": "local", "workers": 5}}
    stages, text = refused(config_from_dict(content))
    assert stages == []
    assert said in text


def test_a_graph_without_targets_has_no_shards_and_is_no_mistake(tmp_path: Path) -> None:
    config = text_config(tmp_path, without="split")
    context = StageContext.of(config)
    for stage in ("ingest", "flat"):
        perform(context, stage)
