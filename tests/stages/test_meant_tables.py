"""Names that are not there are read as they were meant, where names or values show it, and not guessed elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnflow.config.loading import load_config, read_config
from gnnflow.graph.errors import GnnflowError
from gnnflow.stages.check import check_run
from gnnflow.stages.first_look import first_look
from gnnflow.stages.resolve import resolve
from tests.stages.mistakes import (
    IDS,
    ITEMS,
    NUMBERS,
    Change,
    Spoil,
    both,
    column,
    plain_graph,
    put,
    renamed,
    same,
    typed_graph,
    written,
)

_KEY = "graph.edges.item__in__category"
_QUANTILES = put("graph.columns", {"age": {"kind": "numerical", "scale": "quantile"}})
_NUMBERS = both(
    column("nodes", "id", NUMBERS),
    column("edges", "src", NUMBERS[1:] + NUMBERS[:1]),
    column("edges", "dst", NUMBERS),
)


def _said(folder: Path, *, typed: bool, change: Change = same, spoil: Spoil = same) -> list[str]:
    tables, content = typed_graph() if typed else plain_graph()
    spoil(tables)
    change(content)
    return [str(stop) for stop in first_look(read_config(written(folder, tables, content))).stops]


@pytest.mark.parametrize(
    ("typed", "change", "spoil", "line"),
    [
        (False, same, renamed("edges", "src", "payer"), "By its values: `graph: {src: payer}`"),
        (False, same, renamed("nodes", "id", "nodename"), "By its values: `graph: {id: nodename}`"),
        (True, put(f"{_KEY}.dst", "zzz"), same, f"By its values: `{_KEY}.dst: category_id`"),
        (True, put(f"{_KEY}.src", "item_id"), renamed("item", "id", "item_id"), "`graph: {id: {item: item_id}}`"),
    ],
)
def test_a_name_that_values_or_names_show_is_proposed(tmp_path, typed, change, spoil, line):
    (said,) = _said(tmp_path, typed=typed, change=change, spoil=spoil)
    assert line in said


def test_a_run_says_what_a_wrong_name_would_hide(tmp_path):
    tables, content = plain_graph()
    both(column("edges", "dst", ["u99", *IDS[2:], IDS[0]]), renamed("edges", "src", "payer"))(tables)
    run = resolve(load_config(written(tmp_path, tables, content), environment={}))
    with pytest.raises(GnnflowError, match=r"(?s)`graph: \{src: payer\}`.*dst is not an id"):
        check_run(run)


def test_numbers_are_not_taken_for_ids(tmp_path):
    (said,) = _said(tmp_path, typed=False, spoil=both(_NUMBERS, renamed("edges", "src", "payer")))
    assert "has no column 'src' (graph.src)" in said
    assert "By its" not in said


def test_both_ends_of_another_type_are_said(tmp_path):
    said = _said(tmp_path, typed=False, spoil=both(column("edges", "src", NUMBERS), column("edges", "dst", NUMBERS)))
    assert [text.split("column ")[1][:5] for text in said] == ["'src'", "'dst'"]


@pytest.mark.parametrize(
    ("typed", "change", "spoil", "missing"),
    [
        (
            False,
            _QUANTILES,
            both(renamed("nodes", "id", "name"), column("edges", "src", ITEMS), column("edges", "dst", ITEMS[::-1])),
            "id",
        ),
        (
            True,
            both(put(f"{_KEY}.dst", "zzz"), put("graph.edge_features", {"item__in__category": ["kind"]})),
            column("item", "category_id", [number + 0.5 for number in NUMBERS]),
            "zzz",
        ),
    ],
)
def test_columns_that_only_ids_can_fit_wait_for_these(tmp_path, typed, change, spoil, missing):
    (said,) = _said(tmp_path, typed=typed, change=change, spoil=spoil)
    assert f"has no column {missing!r}" in said
