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
