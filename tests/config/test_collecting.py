"""A config is read on past its mistakes, whatever part of it they take out."""

from __future__ import annotations

import pytest

from gnnflow.config.loading import read_config


@pytest.mark.parametrize("key", ["classes", "edge_features", "exclude"])
def test_each_wrong_item_of_a_list_is_told(key: str) -> None:
    text = f"name: a\ngraph: {{nodes: n.parquet, edges: e.parquet, {key}: [null, null, null]}}\n"
    read = read_config(text, source="a.yaml")
    assert len(read.errors) == 3
    assert read.config is not None


@pytest.mark.parametrize("target", ["[user]", "{user: a}", "1", "null"])
def test_a_target_of_any_kind_beside_edges_that_cannot_be_read_is_refused(target: str) -> None:
    nodes = "{user: u.parquet, item: i.parquet}"
    text = f'name: a\ngraph: {{nodes: {nodes}, edges: "\\0", target: {target}}}\n'
    assert read_config(text, source="a.yaml").errors
