"""Random tables and configs: accepted and equal to what they say, or refused readably. A minute of each in CI.

A failure prints the example that hypothesis shrank it to; the seeds are 0, 1, 2, ... so that the same one comes again.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from gnnflow.config import Config
from tests.command_line import run_cli
from tests.robustness.case import Case, files_below, judge
from tests.robustness.config_cases import leaves
from tests.robustness.inputs import COLUMNAR, FORMATS, Inputs, valid

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = float(os.environ.get("GNNFLOW_FUZZ_SECONDS", "30"))
ROUND = 40
EITHER = Case("fuzzed", lambda _: None, "either")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ODD_TEXT = st.sampled_from(
    ["", "0", "007", "1e5", "0x1F", "NA", "nan", "null", "true", "2024-01-05", " ", "-0", "1.0", "é"]
)
NUMBER = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-10, 10, width=32),
    st.integers(-5, 5),
    st.sampled_from([1e39, -1e39, 3.4e38, 1e-45, 2**24 + 1, 2**53 + 1]),
)
VALUE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 40), st.floats(-2, 2), TEXT, st.sampled_from([10**30, "1e400", "${X"])
    ),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(TEXT, below, max_size=3)),
    max_leaves=6,
)


@st.composite
def tables(draw: Callable[[Any], Any]) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Draw the columns of two small tables and their format."""
    size = draw(st.integers(3, 9))
    kind = draw(st.sampled_from(["integers", "text", "odd text"]))
    one = {"integers": st.integers(-(2**63), 2**63 - 1), "text": TEXT, "odd text": st.one_of(ODD_TEXT, TEXT)}[kind]
    unique = draw(st.booleans()) or draw(st.booleans())
    ids = draw(st.lists(one, min_size=size, max_size=size, unique=unique))
    ends = st.lists(st.sampled_from(ids), min_size=1, max_size=12)
    src = draw(ends)
    dst = draw(st.lists(st.sampled_from(ids), min_size=len(src), max_size=len(src)))
    odd = draw(st.sampled_from(["nothing", "age", "weight", "amount", "label", "split"]))
    nodes = {
        "id": ids,
        "age": _column(draw, size, NUMBER if odd == "age" else st.integers(-5, 5)),
        "label": _column(draw, size, st.one_of(st.none(), st.integers(-3, 9)) if odd == "label" else st.just(1)),
        "split": _column(
            draw, size, st.one_of(st.none(), ODD_TEXT) if odd == "split" else st.sampled_from(["train", "valid", None])
        ),
    }
    edges = {
        "src": src,
        "dst": dst,
        "weight": _column(draw, len(src), NUMBER if odd == "weight" else st.just(1.5)),
        "amount": _column(draw, len(src), NUMBER if odd == "amount" else st.just(0.25)),
    }
    return nodes, edges, draw(st.sampled_from(FORMATS))


def _column(draw: Callable[[Any], Any], size: int, values: Any) -> list[Any]:
    return list(draw(st.lists(values, min_size=size, max_size=size)))


def _check_tables(drawn: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    nodes, edges, form = drawn

    def change(inputs: Inputs) -> None:
        inputs.nodes, inputs.edges = dict(nodes), dict(edges)
        inputs.nodes_format = inputs.edges_format = form
        inputs.config["graph"]["features"] = ["age"]
        if form in COLUMNAR:
            for columns, names in ((inputs.nodes, ("age",)), (inputs.edges, ("weight", "amount"))):
                columns |= {name: pa.array([float(value) for value in columns[name]], pa.float64()) for name in names}

    _judge(change)


def _check_config(changes: list[tuple[str, Any]]) -> None:
    def change(inputs: Inputs) -> None:
        inputs.expected |= {"edges": None, "x": None}
        for path, value in changes:
            place = inputs.config
            *parents, last = path.split(".")
            for parent in parents:
                below = place.get(parent)
                place[parent] = place = dict(below) if isinstance(below, dict) else {}
            place[last] = value

    _judge(change)


def _check_text(text: str) -> None:
    _judge(lambda inputs: inputs.after_write.append(lambda written: written.config_file.write_text(text)))


def _judge(change: Callable[[Inputs], Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name), Path.cwd()
        inputs = valid(folder)
        change(inputs)
        inputs.write()
        held = files_below(folder)
        os.chdir(folder)
        try:
            shown = run_cli(inputs.arguments())
            wrong = judge(EITHER, inputs, shown, sorted(files_below(folder) - held))
        finally:
            os.chdir(before)
        assert not wrong, "; ".join(wrong)


def fuzz(check: Callable[[Any], None], strategy: Any) -> int:
    """Check random examples until the time is over, and return how many rounds that were."""
    end, seed = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        settings = hypothesis.settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        )
        hypothesis.seed(seed)(settings(hypothesis.given(strategy)(check)))()
        seed += 1
    return seed


def test_random_tables_arrive_as_given_or_are_refused_readably() -> None:
    assert fuzz(_check_tables, tables()) >= 1


def test_random_configs_are_understood_or_refused_readably() -> None:
    # A workspace could be any place of this machine, and thousands of partitions only take time.
    paths = sorted(path for path, _ in leaves(Config) if path not in {"workspace", "graph.partitions"})
    changes = st.lists(st.tuples(st.one_of(st.sampled_from(paths), TEXT.filter(bool)), VALUE), min_size=1, max_size=3)
    assert fuzz(_check_config, changes) >= 1


def test_random_text_is_no_config() -> None:
    yaml_like = st.text(st.sampled_from("abgnx:-[]{}&*!|>'\"%@`,#? \n\t0159.~<\u00e9\0"), max_size=60)
    assert fuzz(_check_text, yaml_like) >= 1
