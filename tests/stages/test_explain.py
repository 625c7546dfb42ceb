"""`gnnflow explain` says from the config alone how each relation's in-edges are aggregated, and where."""

from __future__ import annotations

import json

import pytest

from gnnflow.executions.table import EXECUTIONS
from tests.command_line import run_cli

CONFIG = """
name: films
graph:
  nodes: {movie: movies.parquet, director: directors.parquet}
  edges: {director__made__movie: made.parquet, movie__made_by__director: made_by.parquet}
  target: movie
  features: {movie: [x], director: []}
model: {kind: sage, hidden: 16, layers: 1, head: linear}
"""
PATHS = "neighbors={kind: metapaths, paths: [[movie, director, movie], [movie, director]]}"


@pytest.fixture
def config(tmp_path):
    place = tmp_path / "films.yaml"
    place.write_text(CONFIG)
    return str(place)


def explained(config, *overrides):
    shown = run_cli(["explain", config, *(part for each in overrides for part in ("--set", each))])
    assert shown.code == 0, shown.err
    return shown.out


def test_edges_of_one_source_need_no_level_below_the_relation(config):
    text = explained(config)
    assert "layer 1  GraphSAGE\n  director__made__movie\n" in text
    assert "    leaf -> instance   none: an in-edge is its source's row\n" in text
    assert "    instance -> root   Mean: fused weighted sum (" in text
    assert "    source sends       value [N, 1, 16]\n" in text
    assert "    map of values      [16 -> 16] where it is less work; in GraphInfer after the aggregation\n" in text
    assert "  relation -> root     dense: sum over 1 relations into a type\n" in text
    assert "  on minibatch         yes (used by this config)\n" in text


def test_the_place_of_tasks_is_said_with_the_bytes_that_decide_it(config, tmp_path):
    assert "in this process where the tables take at most 64 MiB in memory, else on 2 local workers\n" in explained(
        config
    )
    assert "on 3 local workers, as the config says\n" in explained(config, "cluster={kind: local, workers: 3}")
    assert "on 2 local workers, as ranks need\n" in explained(config, "train.workers=2")
    for name in ("movies", "directors", "made", "made_by"):
        (tmp_path / f"{name}.parquet").write_bytes(bytes(100_000))
    place = {each: str(tmp_path / f"{each}.parquet") for each in ("movies", "directors", "made", "made_by")}
    given = "graph={nodes: {movie: %(movies)s, director: %(directors)s}, edges: {director__made__movie: %(made)s, "
    given += "movie__made_by__director: %(made_by)s}, target: movie, features: {movie: [x], director: []}}"
    text = explained(config, given % place)
    assert "in this process: the tables take about 2 MiB in memory, at most 64 MiB\n" in text


def test_leaves_that_add_up_with_their_roots_have_no_row_per_instance(config):
    text = explained(config, PATHS, "model={kind: magnn, hidden: 16, heads: 4, layers: 1, head: linear}")
    first, second = text.index("movie__movie-director-movie__movie"), text.index("director__movie-director__movie")
    path = text[max(first, second) :]
    assert "    leaf -> instance   Sum of 2 leaves, closed with the next level: no row per instance\n" in path
    assert "SoftmaxAttention: softmax by segments, then one fused weighted sum (" in path
    assert "    source sends       value [N, 1, 16], logit [N, 4]\n" in path
    assert "dense: attention over 2 relations into a type" in path


def test_messages_and_instances_with_rows_are_told_apart(config):
    text = explained(config, PATHS, "model={kind: 'tests.contracts.own_layers:GatedMean', hidden: 16, head: linear}")
    assert "Mean of 2 leaves: fused (" in text
    assert "a row per instance" in text
    assert "Mean: messages in pieces of 65536, computed again backward, then segments (" in text


def test_what_of_a_message_moves_to_nodes_and_which_kernel_sums_it(config):
    text = explained(config, "model={kind: 'tests.layers.test_phases:GatedHere', hidden: 16, head: linear}")
    assert (
        "    once per node      transform(); of message() linear of sources, tanh of sources, linear_1 of tar" in text
    )
    assert "message() is a row through a gate of both ends, so a fused gated sum (native)" in text
    text = explained(config, "model={kind: 'tests.layers.test_phases:Differences', hidden: 16, head: linear}")
    assert "Sum: messages in pieces of 65536, computed again backward, then segments (native)" in text
    text = explained(config, "model={kind: ggcn, hidden: 16, head: linear}")
    assert "    once per node      transform(); nothing of message()\n" in text
    assert "so a fused gated sum (native)" in text


def test_an_execution_that_cannot_run_the_layer_says_why(config):
    text = explained(config, "model={kind: 'tests.contracts.own_layers:MedianWithSelf', hidden: 16, head: linear}")
    assert "  on minibatch         no: include_self merges a message of the node's own, and states of Median do" in text
    assert "  on reference         yes\n" in text


@pytest.mark.parametrize(
    ("neighbors", "relations"),
    [
        ("{kind: rings, distance: 2}", ["director__ring1__movie", "movie__ring2__movie"]),
        ("{kind: walks}", ["director__walks__director", "movie__walks__movie"]),
        ("{kind: anchors}", ["director__anchors__director", "movie__anchors__movie"]),
    ],
)
def test_relations_are_those_that_are_selected(config, neighbors, relations):
    text = explained(config, f"neighbors={neighbors}")
    assert all(f"  {relation}\n" in text for relation in relations)
    assert "made" not in text


def test_json_has_the_same(config):
    shown = run_cli(["explain", config, "--json", "--set", PATHS])
    plan = json.loads(shown.out)
    (layer,) = plan["layers"]
    assert layer["kind"] == "GraphSAGE"
    assert [each["leaves"] for each in layer["relations"]] == [1, 2]
    assert layer["executions"] == dict.fromkeys(EXECUTIONS)
    assert plan["used"] == ["minibatch", "sliced"]


def test_a_graph_in_files_is_trained_on_by_the_execution_of_files(config):
    train = "train={strategy: global-batch, memory: 1GiB, workers: 2}"
    text = explained(config, train, "partition.kind=vertex_cut", "model={kind: gat}")
    assert "  on streamed          yes (used by this config)\n" in text
    assert "  on globalbatch       yes\n" in text
    assert "between ranks" not in text


def test_a_function_of_ones_own_has_to_run_first(config):
    shown = run_cli(["explain", config, "--set", "neighbors={kind: 'mine:near'}"])
    assert shown.code == 2
    assert "neighbors.kind: the relations that mine:near selects are known only after it has run" in shown.message


PLAIN = """
name: pages
graph: {nodes: nodes.parquet, edges: edges.parquet, features: [x], partitions: 4}
model: {kind: sage, hidden: 16, layers: 1, head: linear}
partition: {kind: vertex_cut}
train: {strategy: global-batch}
"""


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], "  between ranks        states, or rows where these are fewer bytes\n"),
        (
            ["model={kind: 'tests.contracts.own_layers:MedianLayer', hidden: 16, head: linear}"],
            "  between ranks        rows: states of Median do not merge\n",
        ),
        (["partition={kind: hash}"], None),
        (["train={strategy: mini-batch}"], None),
    ],
)
def test_what_ranks_send_where_edges_are_placed_elsewhere_is_said(tmp_path, overrides, said):
    place = tmp_path / "pages.yaml"
    place.write_text(PLAIN)
    text = explained(str(place), *overrides)
    assert said in text if said else "between ranks" not in text
