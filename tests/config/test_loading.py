"""A text becomes the configuration it describes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from gnnflow.config import (
    Config,
    GATConfig,
    GCNConfig,
    LocalCluster,
    NoSampling,
    UniformSampling,
    config_from_dict,
    load_config,
    model_from_dict,
)
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.schema import UNTYPED, GraphSchema, Relation

MINIMAL = "name: tiny\ngraph: {nodes: nodes.parquet, edges: edges.parquet}\n"


def test_only_name_and_tables_are_required():
    config = load_config(MINIMAL)
    assert config.model.kind == "gcn"
    assert config.graph.features == ("x",)
    assert config.neighbors.sampling == NoSampling()
    assert config.cluster == LocalCluster(workers=2)
    assert config.train.cache == 512 * 1024**2


def test_values_of_every_form_are_read():
    config = load_config(
        MINIMAL
        + "neighbors: {sampling: {kind: uniform, fanout: [10, 5]}}\n"
        + "train: {lr: 5e-4, weight_decay: 5.0e-4, cache: 1.5GiB}\n"
        + "infer: {targets: [valid, test]}\n"
        + "cluster: {kind: local, memory_limit: 2GiB}\n"
    )
    assert config.neighbors.sampling == UniformSampling(fanout=(10, 5))
    assert config.train.lr == config.train.weight_decay == 5e-4
    assert config.train.cache == 1.5 * 1024**3
    assert config.infer.targets == ("valid", "test")
    assert isinstance(config.cluster, LocalCluster)
    assert config.cluster.memory_limit == 2 * 1024**3


TYPED = (
    "name: imdb\ngraph:\n  nodes: {movie: m.parquet, actor: a.parquet}\n  target: movie\n"
    "  edges: {actor__plays_in__movie: am.parquet, movie__shows__actor: ma.parquet}\n"
)


def test_typed_graphs_are_maps_of_tables():
    graph = load_config(TYPED).graph
    assert graph.nodes == {"movie": "m.parquet", "actor": "a.parquet"}
    assert graph.schema == GraphSchema.of(graph.nodes, map(Relation.parse, graph.edges))
    assert graph.schema.types[graph.target_type] == "movie"
    assert [graph.features_of(name) for name in graph.schema.types] == [("x",), ("x",)]


def test_reverse_edges_of_typed_graphs_are_relations_of_their_own():
    relations = load_config(TYPED, overrides=["graph.reverse_edges=true"]).graph.schema.relations
    assert [str(relation) for relation in relations] == [
        "actor__plays_in__movie",
        "actor__rev_shows__movie",
        "movie__rev_plays_in__actor",
        "movie__shows__actor",
    ]


def test_a_graph_without_types_has_the_schema_of_one_type_and_one_relation():
    assert load_config(MINIMAL).graph.schema == UNTYPED
    one = ["graph.nodes={paper: p}", "graph.edges={paper__cites__paper: e}", "graph.reverse_edges=true"]
    schema = load_config(MINIMAL, overrides=one).graph.schema
    assert not schema.is_typed
    assert [str(relation) for relation in schema.relations] == ["paper__cites__paper"]


def test_each_type_and_relation_may_have_columns_and_fan_outs_of_its_own():
    fanouts = "{actor__plays_in__movie: [10, 3], movie__shows__actor: [4, 5]}"
    config = load_config(
        TYPED,
        overrides=[
            "graph.features={movie: [plot], actor: []}",
            "graph.edge_features={movie__shows__actor: [year]}",
            f"neighbors={{sampling: {{kind: uniform, fanout: {fanouts}}}}}",
        ],
    )
    assert (config.graph.features_of("movie"), config.graph.features_of("actor")) == (("plot",), ())
    columns = [config.graph.edge_features_of(relation) for relation in config.graph.schema.relations]
    assert columns == [(), ("year",)]
    assert config.relation_fanouts == ((10, 3), (4, 5))
    assert config.fanouts == (10, 5)
    shared = load_config(TYPED, overrides=["neighbors={sampling: {kind: uniform, fanout: [7, 2]}}"])
    assert shared.relation_fanouts == ((7, 2), (7, 2))


def test_a_layer_of_ones_own_is_named_by_its_class():
    config = load_config(MINIMAL + "model: {kind: 'my.layers:Gated', options: {gates: 4}}\n")
    assert config.model.kind == "my.layers:Gated"
    assert config.model.options == {"gates": 4}


@pytest.mark.parametrize("text", ["", "model: {}\n", "model: {hidden: 64}\n", "model: {kind: gcn}\n"])
def test_the_kind_of_layer_may_be_left_out(text):
    assert load_config(MINIMAL + text).model == GCNConfig()


@pytest.mark.parametrize("kind", ["sage", "gat", "gin", "gat_e", "my.layers:Gated"])
def test_another_kind_keeps_the_keys_all_kinds_have(kind):
    text = MINIMAL + "model: {kind: gcn, hidden: 8, layers: 3, dropout: 0.1, head: linear}\n"
    overrides = [f"model.kind={kind}", "graph.edge_features=[amount]"]
    before, after = load_config(text).model.model_dump(), load_config(text, overrides=overrides)
    assert {**after.model.model_dump(), **before, "kind": kind} == after.model.model_dump()
    assert config_from_dict(after.model_dump(mode="json")) == after


def test_a_model_section_alone_is_read_like_a_config():
    assert model_from_dict({"kind": "gat", "heads": 3}) == GATConfig(heads=3)
    with pytest.raises(ConfigError, match=r"^model\.heads: unknown key.*Kinds with heads: gat, gat_e"):
        model_from_dict({"heads": 3})


@pytest.mark.parametrize(("text", "hops"), [("model: {layers: 3}", 3), ("flat: {hops: 2}", 2)])
def test_hops_are_the_number_of_layers(text, hops):
    assert load_config(MINIMAL + text).num_hops == hops


def test_overrides_workspace_and_environment_are_applied_in_that_order():
    text = "name: a\nworkspace: ${NOPE}\ngraph: {nodes: '${DATA}/n', edges: e}\ntrain: {workers: '${W:-1}'}\n"
    config = load_config(text, overrides=["graph.edges=${DATA}/e"], workspace="file:///runs", environment={"DATA": "d"})
    assert config.workspace == "file:///runs"
    assert config.graph.nodes == "d/n"
    assert config.graph.edges == "d/e"
    assert config.train.workers == 1


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("GNNFLOW_TEST_NAME", "from-outside")
    assert load_config(MINIMAL, overrides=["name=${GNNFLOW_TEST_NAME}"]).name == "from-outside"


@pytest.mark.parametrize(
    "sections",
    [
        "neighbors: {sampling: {kind: weighted, fanout: [3, 2]}}\ninfer: {targets: [test]}",
        "task: {decide: {kind: cost, costs: {ring: 50, mule: {ring: 5}}}}",
        "task: {decide: {kind: cost, miss: 5, positive: ring}}",
        "task: {decide: {kind: top_k, k: 5, positive: ring}}",
    ],
)
def test_a_config_survives_its_own_json(sections: str):
    """A published version keeps that JSON, so a section that refuses its own defaults cannot be scored by name."""
    config = load_config(MINIMAL + sections + "\n")
    assert config_from_dict(config.model_dump(mode="json")) == config


def test_a_config_cannot_be_changed():
    config = load_config(MINIMAL)
    with pytest.raises(ValidationError, match="frozen"):
        config.train.lr = 1.0


@pytest.mark.parametrize(("text", "found"), [("", "it is empty"), ("- a\n", "it is a list"), ("gcn", "it is text")])
def test_a_text_without_keys_is_refused(text, found):
    with pytest.raises(ConfigError, match="a config is a mapping") as caught:
        load_config(text, source="x.yaml")
    assert found in str(caught.value)


def test_the_schema_describes_every_key():
    schema = Config.model_json_schema()
    sections = [schema, *schema["$defs"].values()]
    keys = [(section["title"], key, field) for section in sections for key, field in section["properties"].items()]
    assert len(keys) > 50
    assert [key for key in keys if not key[2].keys() & {"description", "$ref"}] == []


def test_reading_a_config_imports_nothing_heavy():
    heavy = ["numpy", "pandas", "pyarrow", "torch", "dask", "distributed", "fsspec", "sklearn", "matplotlib"]
    code = f"import sys, gnnflow.config; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
