"""Scalars mean what they look like; mistakes name their line."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 5e-4),
        ("5.0e-4", 5e-4),
        ("1E3", 1e3),
        ("+.5", 0.5),
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        (".inf", math.inf),
        ("true", True),
        ("~", None),
        ("", None),
        ("NO", "NO"),
        ("on", "on"),
        ("none", "none"),
        ("2GiB", "2GiB"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("'5'", "5"),
    ],
)
def test_scalars_mean_what_they_look_like(text, value):
    read = read_yaml(f"key: {text}")["key"]
    assert read == value
    assert type(read) is type(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    )
)
def test_what_yaml_writes_is_read_back(value):
    # YAML 1.1's writer quotes whatever 1.1 would misread, which covers all that 1.2 gives a meaning.
    assert read_yaml(yaml.safe_dump(value)) == value


def test_a_section_can_be_merged_from_an_anchor():
    text = "base: &base {kind: gcn, hidden: 16}\nmodel:\n  <<: *base\n  hidden: 32\n"
    assert read_yaml(text)["model"] == {"kind": "gcn", "hidden": 32}


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1", "'a' is already set on line 1"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "line 4, column 3", "'b' is already set on line 2"),
        ("a: [1, 2\n", "line 2, column 1", "']'"),
        ("a: b: c\n", "line 1, column 5", "mapping values are not allowed"),
        ("a: 1\n3: x\n", "line 2, column 1", "'3' is not text"),
        ("true: x\n", "line 1, column 1", "'true' is not text"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1, column 4", "python/object"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1", "another document"),
    ],
)
def test_a_mistake_names_its_line(text, where, what):
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, source="my.yaml")
    assert caught.value.where == f"my.yaml, {where}"
    assert what in caught.value.problem


def test_a_binary_file_is_refused():
    with pytest.raises(ConfigError, match="not allowed"):
        read_yaml("PAR1\x00\x15")
