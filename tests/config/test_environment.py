"""Variables and overrides reach every key and never inject YAML."""

from __future__ import annotations

import pytest

from gnnflow.config.environment import apply_overrides, expand
from gnnflow.graph.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${HOME_DIR}/x", "/home/me/x"),
        ("${HOME_DIR}${HOME_DIR}", "/home/me/home/me"),
        ("${UNSET:-data}/cora", "data/cora"),
        ("${UNSET:-}", ""),
        ("${EMPTY:-data}", "data"),
        ("${HOME_DIR:-data}", "/home/me"),
        ("${UNSET:-s3://b/a:-c}", "s3://b/a:-c"),
        ("$${HOME_DIR}", "${HOME_DIR}"),
        ("$HOME_DIR", "$HOME_DIR"),
        ("${TRICK}", "{kind: none}"),
    ],
)
def test_variables_are_replaced(text, value):
    environment = {"HOME_DIR": "/home/me", "EMPTY": "", "TRICK": "{kind: none}"}
    assert expand({"a": [text], "b": 3}, environment) == {"a": [value], "b": 3}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"graph": {"nodes": "${NOPE}/n"}}, "graph.nodes: the environment variable NOPE is not set"),
        ({"graph": {"features": ["x", "${NOPE}"]}}, "graph.features[1]: the environment variable NOPE"),
        ({"name": "${1x}"}, "name: '${1x}' is not a variable"),
        ({"name": "${A:+b}"}, "name: '${A:+b}' is not a variable"),
    ],
)
def test_a_missing_variable_names_key_and_variable(raw, message):
    with pytest.raises(ConfigError) as caught:
        expand(raw, {})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.lr=5e-4", {"train": {"lr": 5e-4, "epochs": 3}}),
        ("train.metric=roc_auc", {"train": {"lr": 1, "epochs": 3, "metric": "roc_auc"}}),
        (
            "neighbors.sampling.fanout=[10, 5]",
            {"train": {"lr": 1, "epochs": 3}, "neighbors": {"sampling": {"fanout": [10, 5]}}},
        ),
        ("train={lr: 2}", {"train": {"lr": 2}}),
        ("note=a=b", {"train": {"lr": 1, "epochs": 3}, "note": "a=b"}),
        ("train.lr=", {"train": {"lr": None, "epochs": 3}}),
    ],
)
def test_overrides_set_one_key_and_keep_the_rest(override, expected):
    raw = {"train": {"lr": 1, "epochs": 3}}
    assert apply_overrides(raw, [override]) == expected
    assert raw == {"train": {"lr": 1, "epochs": 3}}


def test_the_last_override_wins():
    assert apply_overrides({}, ["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr", "--set: 'train.lr' does not set a key"),
        ("=3", "--set: '=3' does not set a key"),
        ("train..lr=3", "--set: 'train..lr=3' does not set a key"),
        ("name.x=3", "--set name.x: the key before 'x' holds a value, not keys"),
        ("train.lr=[1", "--set train.lr, line 1"),
        ("name=a\udcff", "--set name: holds bytes that are not UTF-8. Write it as UTF-8 text."),
    ],
)
def test_an_unclear_override_is_refused(override, message):
    with pytest.raises(ConfigError) as caught:
        apply_overrides({"name": "a"}, [override])
    assert str(caught.value).startswith(message)
