"""The task of nodes needs no kind."""

from __future__ import annotations

import pytest

from gnnflow.config import NodeTask, config_from_dict
from gnnflow.graph.errors import ConfigError

GRAPH = {"nodes": "nodes.parquet", "edges": "edges.parquet"}


def test_a_task_without_a_kind_is_that_of_nodes() -> None:
    config = config_from_dict({"name": "small", "graph": GRAPH, "task": {"split": {"kind": "random"}}})
    assert isinstance(config.task, NodeTask)
    assert config.task.split.kind == "random"


def test_a_key_of_another_task_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"task\.decoder"):
        config_from_dict({"name": "small", "graph": GRAPH, "task": {"decoder": {"kind": "mlp"}}})


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ({"kind": "link"}, {"features": ["risk", "split"]}),
        ({"kind": "edge"}, {"features": ["risk", "split"]}),
        ({"kind": "node"}, {"target": "u", "features": {"v": ["risk", "split"], "u": ["age"]}}),
    ],
)
def test_a_feature_may_be_called_as_a_label_of_another_table_is(task: dict[str, str], keys: dict[str, object]) -> None:
    tables = {"nodes": {"u": "u", "v": "v"}, "edges": {"v__to__u": "e"}} if "target" in keys else GRAPH
    metric = {"train": {"metric": "mrr"}} if task["kind"] == "link" else {}
    raw = {"name": "small", "graph": {**tables, "label": "risk", **keys}, "task": task, **metric}
    raw["model"] = {"kind": "sage", "encoder": "linear"}
    assert config_from_dict(raw).graph.label == "risk"
    keys["features"] = ["age", "risk"] if task["kind"] != "node" else {"u": ["risk"]}
    if task["kind"] == "node":
        with pytest.raises(ConfigError, match=r"graph.features.u.*'risk' is the column of graph.label"):
            config_from_dict({**raw, "graph": {**raw["graph"], **keys}})
