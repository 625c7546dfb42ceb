"""Scalars mean what they look like; mistakes name their line."""

from __future__ import annotations

import math
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnnflow.config.yaml_text import read_yaml, refuse_oversized, write_yaml
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
        (r'"\ud83d\ude80 x"', "\N{ROCKET} x"),
    ],
)
def test_scalars_mean_what_they_look_like(text, value):
    read = read_yaml(f"key: {text}")["key"]
    assert read == value
    assert type(read) is type(value)


# YAML 1.1's writer does not quote 0E0, which is a number in 1.2.
_TEXT = st.text(max_size=50).filter(lambda text: not re.fullmatch(r"[-+]?[.0-9]+[eE][-+0-9]+", text))


@example("0E0")  # text that YAML 1.1's writer leaves bare
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | _TEXT,
        lambda below: st.lists(below, max_size=3) | st.dictionaries(_TEXT, below, max_size=3),
    )
)
def test_what_yaml_writes_is_read_back(value):
    assert read_yaml(write_yaml(value)) == value


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


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("nodes: {{ ds }}/nodes.parquet\n", True),
        ("nodes: {{ ds }}\n", True),
        ("paths: [{{ ds }}, b]\n", True),
        ("a: [1, 2\n", False),
        ('a: "{{ ds }}": b\n', False),
    ],
)
def test_a_template_without_quotes_is_told(text, is_told):
    with pytest.raises(ConfigError) as caught:
        read_yaml(text)
    assert ("in quotes" in caught.value.fix) is is_told


def test_a_binary_file_is_refused():
    with pytest.raises(ConfigError, match="not allowed"):
        read_yaml("PAR1\x00\x15")


_LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10)
)
_MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{','.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param(_LAUGHS, "more than 10000 values", id="a billion laughs"),
        pytest.param(_MERGES, "more than 10000 values", id="merges of merges"),
        pytest.param("a: &a [*a]\n", "inside the value it names", id="an alias of itself"),
        pytest.param("a: " + "[" * 100_000, "nested more than 32 deep", id="deep lists"),
        pytest.param("x:\n" + "- " * 100_000, "nested more than 32 deep", id="deep blocks"),
        pytest.param("a: " + "x" * 20_000_000, "20,000,003 characters", id="twenty megabytes"),
        pytest.param("seed: 1" + "0" * 30, "more than 19 digits", id="ten to the thirty"),
        pytest.param("seed: " + "9" * 250_000, "more than 19 digits", id="a quarter million digits"),
        pytest.param("? " + "k" * 200_000 + "\n: 1\n", "a key of 200000 characters", id="a huge key"),
        pytest.param("\n".join(f"k{number}: 1" for number in range(20_000)), "more than 10000 values", id="many keys"),
    ],
)
def test_a_text_made_to_be_slow_is_refused_at_once(text, what):
    begin = time.monotonic()
    with pytest.raises(ConfigError, match=what) as caught:
        read_yaml(text)
    assert time.monotonic() - begin < 5  # well under one on an idle machine
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "values",
    [{"a": [0] * 20_000}, {"a": "x" * 300_000}, {str(number): number for number in range(20_000)}],
    ids=["list", "text", "keys"],
)
def test_a_form_is_bound_like_a_file(values):
    with pytest.raises(ConfigError, match="a page or two"):
        refuse_oversized(values)


def test_a_form_cannot_nest_without_end():
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(ConfigError, match="nested more than 32 deep"):
        refuse_oversized(deep)
