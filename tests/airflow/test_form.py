"""The trigger form has few fields, and what is typed in them and in its settings makes a config."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.config import Config, config_from_dict
from gnnflow.config.base import tagged_members
from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.form import form_params, nested
from gnnflow_airflow.presets import PRESETS
from gnnflow_airflow.reading import read_chosen

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

REQUIRED = {"name": "small", "graph.nodes": "nodes.parquet", "graph.edges": "edges.parquet"}
PLAIN = {"name": "small", "graph": {"nodes": "nodes.parquet", "edges": "edges.parquet"}}
TYPED = {
    "name": "small",
    "graph.nodes": "{user: users.parquet, item: items.parquet}",
    "graph.edges": "{user__likes__item: likes.parquet}",
    "settings": "graph: {target: item}",
}


def values(**changed):
    """Return what the form sends: every field, those that nobody filled as null."""
    return dict.fromkeys(form_params()) | REQUIRED | {key.replace("__", "."): v for key, v in changed.items()}


def test_an_untouched_form_is_the_config_with_its_defaults():
    assert config_from_dict(nested(values())) == config_from_dict(PLAIN)


def test_the_form_has_one_short_section_and_describes_each_field():
    params = form_params()
    assert list(params) == [
        "preset",
        *("name", "graph.nodes", "graph.edges", "model.kind", "train.epochs", "train.lr"),
        *("neighbors.sampling.fanout", "workspace", "settings"),
    ]
    assert all(param.description and "section" not in param.schema for param in params.values())
    assert params["train.lr"].description == "Learning rate. Empty means 0.01, or what the config or the preset says."
    assert params["preset"].schema["enum"] == [*PRESETS, None]
    assert params["settings"].schema["format"] == "multiline"
    assert params["model.kind"].schema["examples"] == list(tagged_members(Config.model_fields["model"]))


def test_airflow_takes_every_value_and_the_first_task_checks_it():
    # Of a value that breaks a schema the person sees "Bad Request" and no reason, or a page of JSON schema.
    for key, param in form_params().items():
        for value in (None, "text", -3, 0.5, True, [1], {"a": [1]}):
            assert param.resolve(value) == value, key
        # fields of numbers replace what was typed: 1e-3 becomes 13, and a number beyond a bound the bound
        assert param.schema["type"] == ["string", "null"]
        assert not {"minimum", "maximum"} & set(param.schema), key
    with pytest.raises(ConfigError, match=r"name"):
        config_from_dict(nested(values(name="no spaces, please")))


@pytest.mark.parametrize(
    ("key", "typed", "told"),
    [
        ("train.epochs", "-3", "train.epochs: '-3' is not allowed: must be at least 1."),
        ("train.epochs", "1.5", "train.epochs: '1.5' is not allowed: must be a whole number."),
        ("train.lr", "0,001", "train.lr: '0,001' is not allowed: must be a number."),
        ("train.lr", "1e400", "train.lr: '1e400' is not allowed: must be a finite number."),
        ("neighbors.sampling.fanout", "4 3", "'4 3' is not allowed: must be a list or a mapping. Write [4, 3]."),
        ("model.kind", "gatt", "model.kind: 'gatt' is not allowed: must be one of gcn"),
        ("preset", "frauds", "preset: 'frauds' is not a preset. Choose one of: classify nodes, fraud, links, typed."),
        ("settings", "train: {epoch: 3}", "train.epoch: unknown key. Did you mean 'epochs'?"),
        ("settings", "seed: 9007199254740993", "seed: 9007199254740993 is not allowed: must be at most 4294967295."),
        ("settings", "train: [", "settings, line 1, column 9: "),
        ("settings", "- a", "settings: a config is a mapping of keys and it is a list."),
        ("settings", "matrix: {}", "settings: matrix is a key of experiments"),
        ("settings", "graph: {nodes: other.parquet}", "graph.nodes: is named twice."),
        ("settings", "graph.nodes: other.parquet", "graph.nodes: is named twice."),
        ("settings", "name: {a: b}", "name: has both a value and parts of a map (name)."),
    ],
)
def test_what_is_not_allowed_is_told_as_it_was_typed(key, typed, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        config_from_dict(nested(values() | {key: typed}))


def test_an_empty_form_is_told_each_field_that_it_needs():
    with pytest.raises(ConfigError) as refused:
        config_from_dict(nested(dict.fromkeys(form_params())))
    assert [line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:]] == list(REQUIRED)


def test_what_was_typed_is_what_runs():
    typed = values(train__lr="1e-3", train__epochs="7", model__kind="gat", neighbors__sampling__fanout="[15, 10]")
    typed["settings"] = "model: {heads: 4}\ngraph:\n  features: [x]\ntrain.patience: 0"
    assert config_from_dict(nested(typed)) == config_from_dict(
        {
            "name": "small",
            "graph": {**PLAIN["graph"], "features": ["x"]},
            "neighbors": {"sampling": {"kind": "uniform", "fanout": [15, 10]}},
            "model": {"kind": "gat", "heads": 4},
            "train": {"lr": 1e-3, "epochs": 7, "patience": 0},
        }
    )


def test_a_whole_config_may_be_pasted():
    pasted = "name: small\ngraph: {nodes: nodes.parquet, edges: edges.parquet}\n"
    assert config_from_dict(nested(dict.fromkeys(form_params()) | {"settings": pasted})) == config_from_dict(PLAIN)


def test_maps_by_type_are_typed_as_yaml():
    config = config_from_dict(nested({**TYPED, "neighbors.sampling.fanout": "{user__likes__item: [5, 5]}"}))
    assert config.graph.node_tables == {"item": "items.parquet", "user": "users.parquet"}
    assert config.relation_fanouts == ((5, 5),)
    with pytest.raises(ConfigError, match="nodes and edges disagree"):
        config_from_dict(nested(values() | {"graph.nodes": "{user: u.parquet, item: i.parquet}"}))


def test_only_files_of_the_folder_can_be_chosen_and_fields_replace_what_they_say(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNFLOW_WIDTH", "24")
    (tmp_path / "own").mkdir()
    model = "model: {kind: gat, heads: 4, hidden: '${GNNFLOW_WIDTH}'}"
    text = f"name: own\ngraph: {{nodes: n.parquet, edges: e.parquet}}\n{model}\n"
    (tmp_path / "own" / "own.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(text)
    chosen = read_chosen("own.yaml", folder=str(tmp_path / "own"))
    empty = dict.fromkeys(form_params())
    config = config_from_dict(nested({**empty, "name": "mine", "model.kind": "gcn"}, chosen=chosen))
    assert (config.name, config.model.kind, config.model.hidden) == ("mine", "gcn", 24)
    assert config.graph.nodes == str(tmp_path / "own" / "n.parquet")
    with pytest.raises(ConfigError, match="preset: a config is chosen too"):
        nested({**empty, "preset": "fraud"}, chosen=chosen)
    for name in ("../other.yaml", str(tmp_path / "other.yaml"), "none.yaml", ["own.yaml"]):
        with pytest.raises(ConfigError, match=r"config: .* is not a file of .*Choose one of: own\.yaml\."):
            read_chosen(name, folder=str(tmp_path / "own"))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_needs_only_tables_and_a_name(preset):
    config_from_dict(nested({**(TYPED if preset == "typed" else values()), "preset": preset}))


def test_fields_and_settings_replace_what_a_preset_says():
    typed = values(preset="fraud", train__epochs="2", settings="train: {metric: roc_auc}\nmodel: {hidden: 8}")
    config = config_from_dict(nested(typed))
    assert (config.train.epochs, config.train.metric, config.model.hidden) == (2, "roc_auc", 8)
    assert config.task.decide is not None
    assert config.neighbors.sampling.fanout == (10, 5)
    assert config_from_dict(nested(values(preset="fraud", model__kind="gat"))).model.kind == "gat"
    assert PRESETS["fraud"]["train"]["epochs"] == 30  # stays for the next run


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
