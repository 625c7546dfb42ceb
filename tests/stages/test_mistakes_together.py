"""Two mistakes in one config: the answer has the messages of both, and no more.

The cases of one mistake cannot find that a mistake hides another. Left out are mistakes after which the other one
cannot be known (a missing table has no columns), and those that write to the same key or column.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from gnnflow.config.loading import read_config
from gnnflow.stages.first_look import first_look
from tests.stages.mistakes import Mistake, plain_graph, typed_graph, written
from tests.stages.plain_mistakes import PLAIN_MISTAKES
from tests.stages.typed_mistakes import TYPED_MISTAKES

_PLAIN = (
    "a key in the wrong section",
    "a misspelt key",
    "a word of PyG",
    "a misspelt kind",
    "a word for a number",
    "a batch of nothing",
    "more ranks than workers",
    "more fan-outs than layers",
    "no name",
    "a metric of other labels",
    "classes as a key of the task",
    "shares in percent",
    "a model that is not published",
    "a workspace that is a file",
    "a device that is not there",
    "more partitions than nodes",
    "ids of another name",
    "ends of another name",
    "dates of another country",
    "a kind of a column that is no feature",
    "a weight with a comma",
    "a number of classes for numbers",
)
_TYPED = (
    "a target that is no type",
    "a relation with a misspelt type",
    "a missing table of a type",
    "a foreign key that is not there",
    "a key that edge tables have not",
    "a filter by a column that is not there",
    "ends of one relation of another name",
    "a name for a type that is none",
    "ids as text in one table",
    "features of no type",
    "the id as a feature",
    "shares of text",
    "an attribute that its relation has not",
    "a weight that is no number",
    "no row in valid",
    "hops of other layers",
    "a path against the edges",
    "numbers of a type as classes",
)
# pairs that would hide each other where checks stopped at the first mistake
_ALWAYS = (
    ("no name", "ids of another name"),
    ("ids of another name", "a metric of other labels"),
    ("an id twice", "an end that is no node"),
    ("ids of another name", "another word for a split"),
    ("a feature that is not there", "a metric of other labels"),
)


@pytest.mark.table(24)
@pytest.mark.parametrize("pair", [*combinations(_PLAIN, 2), *_ALWAYS], ids=" and ".join)
def test_two_mistakes_have_both_messages(tmp_path, pair):
    _says_both(tmp_path, *(PLAIN_MISTAKES[name] for name in pair), typed=False)


@pytest.mark.table(24)
@pytest.mark.parametrize("pair", [*combinations(_TYPED, 2)], ids=" and ".join)
def test_two_mistakes_on_a_typed_graph_have_both_messages(tmp_path, pair):
    _says_both(tmp_path, *(TYPED_MISTAKES[name] for name in pair), typed=True)


def _says_both(folder: Path, *cases: Mistake, typed: bool) -> None:
    tables, content = typed_graph() if typed else plain_graph()
    for case in cases:
        case.files(folder)
        case.spoil(tables)
        case.change(content)
    stops = first_look(read_config(written(folder, tables, content), source="first.yaml")).stops
    said = "\n".join(map(str, stops))
    assert all(part in said for case in cases for part in case.said), said
    assert len(stops) == len(cases), said
    assert all(stop.where and stop.fix for stop in stops), said
