"""A user's own neighbour function: what it is given, what it may return, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gnnflow.config.neighbors_section import OwnNeighbors
from gnnflow.graph.errors import ConfigError
from gnnflow.neighbors import NeighborGraph, own
from gnnflow.neighbors.own import load_function
from tests.neighbors.selections import Found, Plain, assert_degrees, payments, select

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "tests.neighbors.own_functions"


def found(folder: Path, store: Any, function: str, **options: Any) -> Found:
    return select(own.run_rounds, OwnNeighbors(kind=f"{MODULE}:{function}", options=options), store, folder)


def test_a_function_of_ones_own_selects(tmp_path: Path) -> None:
    store = payments(tmp_path)
    made, plain = found(tmp_path, store, "first_sources", most=3), Plain(store)
    knows = [str(each) for each in store.schema.relations].index("account__knows__account")
    for root, edges in plain.in_edges.items():
        sources = [node for _, node, relation in edges if relation == knows][:3]
        expected = [((node,), float(np.float32(1 / (place + 1))), None) for place, node in enumerate(sources)]
        assert made.instances["account__first__account"].get(root, []) == expected
    assert_degrees(made)


def test_instances_may_differ_in_the_number_of_their_leaves(tmp_path: Path) -> None:
    store = payments(tmp_path)
    made, plain = found(tmp_path, store, "everyone_before"), Plain(store)
    assert [(each.leaves, each.attribute_width) for each in made.result.relations] == [(0, 2)] * 3
    for root, edges in plain.in_edges.items():
        name = store.schema.types[root[0]]
        expected = [(tuple(node for _, node, _ in edges), None, [float(plain.keys[root] % np.uint64(7)), len(edges)])]
        assert made.instances[f"{name}__all__{name}"].get(root, []) == (expected if edges else [])
    assert_degrees(made)


@pytest.mark.parametrize("function", ["first_sources", "everyone_before"])
def test_what_is_chosen_by_order_and_keys_ignores_partition_count(tmp_path: Path, function: str) -> None:
    made = [found(tmp_path / str(n), payments(tmp_path, partitions=n), function).instances for n in (1, 2, 4)]
    assert made[0] == made[1] == made[2]


def test_a_graph_answers_for_nodes_of_any_partition_in_any_order(tmp_path: Path) -> None:
    store = payments(tmp_path, partitions=6)
    graph, plain = NeighborGraph(store), Plain(store)
    nodes = np.random.default_rng(0).integers(0, graph.num_nodes, 200)
    offsets, sources = graph.in_edges(nodes)
    assert graph.keys(nodes).tolist() == [plain.keys[plain.names[node]] for node in nodes]
    assert graph.types(nodes).tolist() == [plain.names[node][0] for node in nodes]
    for row, node in enumerate(nodes):
        listed = [plain.names[each] for each in sources[offsets[row] : offsets[row + 1]]]
        assert listed == [source for _, source, _ in plain.in_edges[plain.names[node]]]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("descending", "roots that do not ascend"),
        ("elsewhere", "which is not among the given nodes|do not ascend"),
        ("beyond", r"the leaf \d+, where nodes are 0 to"),
        ("negative", r"the leaf -\d+, where nodes are 0 to"),
        ("fraction", "leaves of type float64, not integers"),
        ("few leaves", "leaves of shape"),
        ("no leaves", "leaves of shape"),
        ("offsets", "offsets that do not lead to leaves of every root"),
        ("nan", "weights that are not"),
        ("minus", "weights that are not"),
        ("attributes", "attributes that are not"),
        ("infinite", "attributes that are not"),
        ("nothing", "returned NoneType"),
        ("empty", "returned dict"),
        ("arrays", "returned tuple for account__own__account"),
        ("name", "instances of 'own'"),
        ("types", "instances of 'account__own__bank'"),
        ("wrong type", "which is not of type device"),
        ("wrong leaf", "which is not of type device"),
    ],
)
def test_what_breaks_the_contract_is_refused(tmp_path: Path, what: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        found(tmp_path, payments(tmp_path), "spoiled", what=what)
    assert refused.value.where == "neighbors.kind"
    assert "docs/neighbors.md" in refused.value.fix


def test_partitions_that_differ_in_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"weights, 0 attributes for partition 0 and .* for partition 1"):
        found(tmp_path, payments(tmp_path), "uneven")


def test_a_failing_function_is_named_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"failing failed on the \d+ nodes of partition 0: IndexError"):
        found(tmp_path, payments(tmp_path), "failing")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tests.neighbors.own_functions:nobody", "has no function 'nobody'. Its functions are: "),
        ("tests.neighbors.nowhere:select", "there is no module"),
        ("tests.neighbors.own_functions:NeighborGraph", "has no function 'NeighborGraph'"),
    ],
)
def test_what_is_not_there_is_refused(kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_function(kind)


def test_only_modules_that_this_place_allows_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNFLOW_MODULES", "acme")
    with pytest.raises(ConfigError, match="may not be imported here"):
        load_function(f"{MODULE}:first_sources")
