"""Two mistakes in one config: the answer has the messages of both, and no more.

The cases of one mistake cannot find that a mistake hides another. Pairs whose second mistake undoes the first are no
pairs; `hidden_mistakes.py` names the pairs that are not told together, by reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnnflow.config.loading import read_config
from gnnflow.stages.first_look import first_look
from tests.stages.hidden_mistakes import are_hidden, names
from tests.stages.mistakes import Content, Mistake, Tables, plain_graph, typed_graph, written
from tests.stages.plain_mistakes import PLAIN_MISTAKES
from tests.stages.typed_mistakes import TYPED_MISTAKES

_GONE = object()


def _composed(*cases: Mistake, typed: bool) -> tuple[Tables, Content]:
    tables, content = typed_graph() if typed else plain_graph()
    for case in cases:
        case.spoil(tables)
        case.change(content)
    return tables, content


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of a config and the columns of tables, by their paths."""
    if isinstance(value, pa.Table):
        value = {name: value[name] for name in value.column_names} | {"rows of the table": value.num_rows}
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, (*path, key))
    else:
        yield path, value


def _are_both_there(changed: dict[tuple[str, ...], Any], first: Mistake, second: Mistake, *, typed: bool) -> bool:
    """Return whether a graph holds all that both mistakes change: neither writes over the other.

    changed: the leaves that the first one changes, `_GONE` those that it takes away.
    """
    try:
        held = dict(_leaves_of(first, second, typed=typed))
    except (KeyError, TypeError, AttributeError, pa.ArrowInvalid):
        return False
    return all(held.get(key, _GONE) == value for key, value in changed.items())


def _leaves_of(*cases: Mistake, typed: bool) -> Iterator[tuple[tuple[str, ...], Any]]:
    for held in _composed(*cases, typed=typed):
        yield from _leaves(held)


def _pairs(mistakes: Mapping[str, Mistake], *, typed: bool) -> list[tuple[str, str]]:
    base = dict(_leaves_of(typed=typed))
    alone = {name: dict(_leaves_of(each, typed=typed)) for name, each in mistakes.items()}
    changed = {
        name: {
            key: leaves.get(key, _GONE) for key in {*base, *leaves} if base.get(key, _GONE) != leaves.get(key, _GONE)
        }
        for name, leaves in alone.items()
    }
    return [
        (first, second)
        for first, second in combinations(mistakes, 2)
        if not are_hidden(first, second)
        and _are_both_there(changed[first], mistakes[first], mistakes[second], typed=typed)
    ]


@pytest.mark.table(24)
@pytest.mark.parametrize("pair", _pairs(PLAIN_MISTAKES, typed=False), ids=" and ".join)
def test_two_mistakes_have_both_messages(tmp_path, pair):
    _says_both(tmp_path, *(PLAIN_MISTAKES[name] for name in pair), typed=False)


@pytest.mark.table(24)
@pytest.mark.parametrize("pair", _pairs(TYPED_MISTAKES, typed=True), ids=" and ".join)
def test_two_mistakes_on_a_typed_graph_have_both_messages(tmp_path, pair):
    _says_both(tmp_path, *(TYPED_MISTAKES[name] for name in pair), typed=True)


def test_hidden_mistakes_are_mistakes():
    assert names() <= {*PLAIN_MISTAKES, *TYPED_MISTAKES}


def _says_both(folder: Path, *cases: Mistake, typed: bool) -> None:
    for case in cases:
        case.files(folder)
    tables, content = _composed(*cases, typed=typed)
    stops = first_look(read_config(written(folder, tables, content), source="first.yaml")).stops
    said = "\n".join(map(str, stops))
    assert all(part in said for case in cases for part in case.said), said
    assert len(stops) == len(cases), said
    assert all(stop.where and stop.fix for stop in stops), said
