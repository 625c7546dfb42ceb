"""The trigger form says what the config's models say, and its values make a config."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.config import Config, config_from_dict
from gnnflow.config.base import tagged_members
from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.form import form_fields, form_params, nested

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

REQUIRED = {"name": "small", "graph.nodes": "nodes.parquet", "graph.edges": "edges.parquet"}


def values(**changed):
    params = form_params()
    given = {**REQUIRED, **{key.replace("__", "."): value for key, value in changed.items()}}
    return {key: given.get(key, param.value if key not in REQUIRED else None) for key, param in params.items()} | given


def test_an_untouched_form_is_the_config_with_its_defaults():
    plain = {"name": "small", "graph": {"nodes": "nodes.parquet", "edges": "edges.parquet"}}
    assert config_from_dict(nested(values())) == config_from_dict(plain)


def test_only_needed_keys_and_choices_have_a_star_and_other_empty_fields_mean_the_default():
    starred = {key for key, param in form_params().items() if "null" not in param.schema["type"]}
    assert {key for key in starred if not key.endswith((".kind", ".strategy"))} == set(REQUIRED)
    emptied = {item.key: None for item in form_fields() if item.drops_none and item.key not in REQUIRED}
    assert len(emptied) > 100
    assert config_from_dict(nested(values() | emptied)) == config_from_dict(nested(values()))


def test_every_key_of_the_config_is_in_the_form():
    names = {key.split(".")[0] for key in form_params()}
    assert names == set(Config.model_fields)


def test_choices_are_dropdowns_and_ranges_are_said():
    params = form_params()
    assert params["train.optimizer"].schema["enum"] == ["adam", "adamw", "sgd"]
    assert params["model.layers"].description.endswith("At least 1. At most 16.")
    assert params["model.dropout"].description.endswith("in training only. At least 0. Below 1.")
    assert params["train.lr"].description == "Learning rate. Above 0."
    assert set(params["neighbors.sampling.kind"].schema["enum"]) == {"none", "uniform", "weighted", "top_k", None}


def test_a_choice_takes_its_own_keys():
    config = config_from_dict(nested(values(neighbors__sampling__kind="uniform", neighbors__sampling__fanout=[15, 10])))
    assert config.neighbors.sampling.fanout == (15, 10)


def test_a_key_that_kinds_say_differently_says_each():
    params = form_params()
    text = params["neighbors.distance"].description
    assert re.search(r"For anchors\. .*At most 64\. Empty means 3\. For rings\. .*Empty means 2\.$", text)
    assert "At most 1,000." in params["neighbors.walks"].description


def test_neighbors_and_partitions_are_chosen_in_the_form():
    paths = {"neighbors__kind": "metapaths", "neighbors__paths": [["node", "node", "node"]]}
    costs = {"node__node-node-node__node": [1, 0.5, 0]}
    balanced = {"partition__kind": "balanced", "partition__threshold": 1.2}
    config = config_from_dict(nested(values(**paths, **balanced) | {"partition.relations": costs}))
    assert config.neighbors.paths == (("node", "node", "node"),)
    assert config.partition.relations == {"node__node-node-node__node": (1, 0.5, 0)}


def test_maps_by_type_and_relation_are_taken_where_one_path_or_list_is():
    maps = {
        "graph.nodes": {"user": "users.parquet", "item": "items.parquet"},
        "graph.edges": {"user__likes__item": "likes.parquet", "item__liked_by__user": "liked.parquet"},
        "graph.features": {"user": ["age", "income"]},
        "graph.edge_features": {"user__likes__item": ["stars"]},
        "neighbors.sampling.fanout": {"user__likes__item": [5, 5], "item__liked_by__user": [9, 3]},
    }
    params = form_params()
    for key, held in maps.items():
        assert "object" in params[key].schema["type"], key
        assert "as JSON" in params[key].description, key
        assert params[key].resolve(held) == held
    typed = {"graph.target": "user", "neighbors.sampling.kind": "uniform"}
    config = config_from_dict(nested({**values(), **maps, **typed}))
    assert config.graph.node_tables == dict(sorted(maps["graph.nodes"].items()))
    assert config.graph.features_of("item") == ()
    assert config.relation_fanouts == ((9, 3), (5, 5))


def test_a_map_that_does_not_fit_the_graph_is_refused_by_the_first_task():
    given = values(graph__nodes={"user": "u.parquet", "item": "i.parquet"})
    with pytest.raises(ConfigError, match="nodes and edges disagree"):
        config_from_dict(nested(given))
    given |= {"graph.edges": {"user__likes__item": "likes.parquet"}}
    with pytest.raises(ConfigError, match=r"graph\.target.*user"):
        config_from_dict(nested(given))


def test_kinds_of_layers_are_proposed_and_ones_own_can_be_typed():
    params = form_params()
    assert params["model.kind"].schema["examples"] == list(tagged_members(Config.model_fields["model"]))
    assert "enum" not in params["model.kind"].schema
    assert params["model.heads"].description.startswith("For gat, gat_e, han. ")
    assert " For magnn. Attention heads of each metapath." in params["model.heads"].description
    own = config_from_dict(nested(values(model__kind="my.layers:Gated", model__options={"gates": 4}))).model
    assert (own.kind, own.options) == ("my.layers:Gated", {"gates": 4})
    assert config_from_dict(nested(values(model__kind="gat", model__heads=4))).model.heads == 4


def test_every_default_is_allowed_by_its_own_schema():
    for key, param in form_params().items():
        if key not in REQUIRED:
            param.resolve()


def test_airflow_takes_every_value_and_the_first_task_checks_it():
    # Of a value that breaks a schema the person sees "Bad Request" and no reason, or a page of JSON schema.
    for key, param in form_params().items():
        for value in (None, "text", -3, 0.5, True, [1], {"a": [1]}):
            assert param.resolve(value) == value, key
        # by these the form replaces what was typed, without a word
        assert not {"minimum", "maximum"} & set(param.schema), key
    with pytest.raises(ConfigError, match=r"train\.lr"):
        config_from_dict(nested(values(train__lr=0)))
    with pytest.raises(ConfigError, match=r"name"):
        config_from_dict(nested(values(name="no spaces, please")))


def test_numbers_are_typed_as_text_and_are_the_same_numbers():
    # the form's own field for numbers makes 13 of 1e-3
    plain = values()
    numbers = {key: value for key, value in plain.items() if type(value) in {int, float}}
    assert len(numbers) > 10
    assert all({"integer", "number"}.isdisjoint(form_params()[key].schema["type"]) for key in numbers)
    typed = {key: repr(value) for key, value in numbers.items()}
    assert config_from_dict(nested(plain | typed)) == config_from_dict(nested(plain))
    assert config_from_dict(nested(values(train__lr="1e-3", train__patience="7"))).train.lr == 0.001


@pytest.mark.parametrize(
    ("key", "typed", "told"),
    [
        ("train.epochs", "-3", "train.epochs: '-3' is not allowed: must be at least 1."),
        ("train.batch_size", "1.5", "train.batch_size: '1.5' is not allowed: must be a whole number."),
        ("seed", "9007199254740993", "seed: '9007199254740993' is not allowed: must be at most 4294967295."),
        ("train.lr", "0,001", "train.lr: '0,001' is not allowed: must be a number."),
        ("train.lr", "1e400", "train.lr: '1e400' is not allowed: must be a finite number."),
    ],
)
def test_a_number_that_is_not_allowed_is_told_as_it_was_typed(key, typed, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        config_from_dict(nested(values() | {key: typed}))


def test_fanout_says_which_kinds_take_it_and_need_it():
    text = form_params()["neighbors.sampling.fanout"].description
    assert text.startswith("For uniform, weighted, top_k. ")
    assert text.endswith("Required there.")


def test_no_scheduler_is_named_in_a_form():
    params = form_params()
    assert "cluster.address" not in params
    assert params["cluster.kind"].schema["enum"] == ["synchronous", "local"]


def test_keys_no_form_has_are_refused():
    with pytest.raises(ConfigError, match="epoch"):
        config_from_dict(nested(values(train__epoch=3)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"graph.nodes": "/x.parquet", "graph.nodes.account": "/y"}, r"graph\.nodes: .*\(graph\.nodes\.account\)"),
        ({"graph.nodes.account": "/y", "graph.nodes": "/x.parquet"}, r"graph\.nodes: "),
        ({"train.lr.x": 3}, r"train\.lr: .*\(train\.lr\.x\)"),
        ({"graph.features": ["x"], "graph.features.account.x": 3}, r"graph\.features: "),
        ({"graph": {"features": ["x"]}, "graph.features": {"account": ["x"]}}, r"graph\.features: "),
        ({"train": 3}, r"train: "),
        ({"name": "small", "name.x.y": {"z": 1}}, r"name: .*\(name\.x\.y\)"),
    ],
)
def test_a_key_below_one_that_has_a_value_is_refused_by_name(given, told):
    with pytest.raises(ConfigError, match=told):
        nested({"train.lr": 0.01, **given})


def test_a_choice_within_a_choice_is_one_field_of_json():
    field = form_params()["task.decoder"]
    assert field.schema["type"] == ["object", "null"]
    assert "dot, distmult, mlp" in field.description
    decoder = {"kind": "mlp", "hidden": 8}
    config = config_from_dict(nested(values(task__kind="link", task__decoder=decoder, train__metric="mrr")))
    assert config.task.decoder.model_dump() == decoder
    assert config.task.negatives.kind == "uniform"


def test_the_form_takes_labels_of_edges_and_a_split_by_time():
    assert {"node", "link", "edge"} == set(form_params()["task.kind"].schema["enum"])
    split = {"kind": "time", "valid": 0.1, "test": 0.2}
    given = values(task__kind="edge", task__split=split, task__messages=False, graph__timestamp="when")
    config = config_from_dict(nested(given))
    assert config.task.split.model_dump() == split
    assert (config.task.messages, config.graph.timestamp) == (False, "when")
