"""Sizes of memory are read whole or not at all."""

from __future__ import annotations

import pytest

from gnnflow.config import config_from_dict
from gnnflow.graph.errors import ConfigError

GRAPH = {"nodes": "nodes.parquet", "edges": "edges.parquet"}


@pytest.mark.parametrize("size", ["2GiB/rank", "4GiB - 3GiB", "1GiB!", "10%", "2,5GiB", "9" * 20 + "GiB", "-1GiB"])
def test_text_behind_a_size_is_not_dropped(size: str) -> None:
    train = {"strategy": "global-batch", "memory": size}
    with pytest.raises(ConfigError, match=r"train\.memory: .* is not allowed: must be"):
        config_from_dict({"name": "small", "graph": GRAPH, "train": train})


@pytest.mark.parametrize(("size", "number"), [("2GiB", 2 << 30), ("1.5 GiB", 3 << 29), (1 << 30, 1 << 30)])
def test_a_size_is_read(size: object, number: int) -> None:
    train = {"strategy": "global-batch", "memory": size}
    config = config_from_dict({"name": "small", "graph": GRAPH, "train": train})
    assert config.train.memory == number  # type: ignore[union-attr]


def test_workers_are_not_sent_to_the_memory_of_another_process() -> None:
    local = {"kind": "local", "workers": 2}
    for key, config in (
        ("workspace", {"workspace": "memory://runs"}),
        ("graph.nodes", {"graph": {**GRAPH, "nodes": "memory://nodes.parquet"}}),
    ):
        held = {"name": "small", "graph": GRAPH, **config}
        with pytest.raises(ConfigError, match=rf"{key}: .* is in the memory of one process"):
            config_from_dict({**held, "cluster": local})
        assert config_from_dict({**held, "cluster": {"kind": "synchronous"}})
