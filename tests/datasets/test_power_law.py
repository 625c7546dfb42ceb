import numpy as np
import pytest

from gnnflow.datasets import power_law, write_power_law
from gnnflow.graph.errors import ConfigError
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.filesystem import list_names
from gnnflow.storage.tables import read_table

SIZES = {"num_nodes": 20_000, "num_edges": 200_000, "feature_width": 8, "num_classes": 4, "seed": 3}


@pytest.fixture(scope="module")
def graph():
    return power_law(**SIZES)


def test_in_degrees_follow_the_stated_exponent(graph):
    in_degree = np.bincount(graph.edges["dst"].to_numpy(), minlength=20_000)
    tail = in_degree[in_degree >= 30]
    estimate = 1 + len(tail) / np.log(tail / 29.5).sum()  # maximum likelihood, Clauset et al. 2009, equation 3.7
    assert estimate == pytest.approx(2.5, abs=0.15)
    assert in_degree.max() == pytest.approx(200_000 / 20_000 ** (1 / 3), rel=0.1)


def test_a_tenth_of_the_nodes_are_targets_with_a_learnable_label(graph):
    nodes = graph.nodes
    assert nodes["label"].null_count == nodes["split"].null_count == 18_000
    targets = np.flatnonzero(~np.array(nodes["label"].is_null()))
    label = np.array(nodes["label"].drop_null())
    assert (to_matrix(nodes["x"])[targets, :4].argmax(1) == label).all()
    split = nodes["split"].drop_null().to_pylist()
    assert (split.count("train"), split.count("valid")) == (1800, 200)


def test_no_node_is_its_own_neighbour_and_every_endpoint_exists(graph):
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()
    assert (src != dst).all()
    assert min(src.min(), dst.min()) >= 0
    assert max(src.max(), dst.max()) < 20_000


def test_the_same_seed_gives_the_same_graph_in_memory_and_in_files(graph):
    nodes, edges = write_power_law("memory://power-law", **SIZES)
    assert read_table(nodes).equals(graph.nodes)
    assert [read_table(f"{edges}/{name}").equals(graph.edges) for name in list_names(edges)] == [True]
    assert not power_law(**{**SIZES, "seed": 4}).edges.equals(graph.edges)


def test_more_classes_than_features_are_refused():
    with pytest.raises(ConfigError, match="feature_width"):
        power_law(num_nodes=100, num_edges=100, feature_width=2, num_classes=4)
