"""Names that are not there are read as they were meant, where names or values show it, and not guessed elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnflow.config.loading import load_config, read_config
from gnnflow.graph.errors import GnnflowError
from gnnflow.stages.check import check_run, joined
from gnnflow.stages.first_look import first_look
from gnnflow.stages.resolve import resolve
from tests.stages.mistakes import (
    IDS,
    ITEMS,
    NUMBERS,
    ROWS,
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
        (
            True,
            put("graph.label", "stars"),
            column("buys", "stars", [0, 1] * (ROWS // 2)),
            "`task: {kind: edge}` and `graph: {target: user__buys__item}`",
        ),
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


@pytest.mark.parametrize(
    "change",
    [put("graph.label", "lable"), both(put("graph.nodes", "edges.parquet"), put("graph.edges", "nodes.parquet"))],
    ids=["a label", "swapped tables"],
)
def test_a_run_is_resolved_anew_by_the_names_that_were_meant(tmp_path, change):
    """Finds a missing split column where the label's wrong name hides that the split is drawn."""
    tables, content = plain_graph()
    both(renamed("nodes", "split", "part"), renamed("nodes", "label", "labels"))(tables)
    both(put("graph.label", "labels"), change)(content)
    text = written(tmp_path, tables, content)
    with pytest.raises(GnnflowError) as raised:
        check_run(resolve(load_config(text, environment={})))
    assert str(raised.value) == str(joined(first_look(read_config(text)).stops))


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


def test_labels_of_edges_are_read_by_the_name_that_was_meant(tmp_path):
    change = both(put("graph.label", "amout"), put("task", {"kind": "edge", "split": {"kind": "random"}}))
    spoil = column("edges", "amount", ["few", "many"] * (ROWS // 2))
    said = _said(tmp_path, typed=False, change=both(change, put("train.metric", "mae")), spoil=spoil)
    assert "Did you mean 'amount'?" in said[0]
    assert said[-1].startswith("train.metric: mae is not defined for single labels")


@pytest.mark.parametrize(("name", "says"), [("amout", True), ("amount", False), ("timestamp", False)])
def test_a_name_of_times_that_no_table_has_is_noted_where_no_stage_reads_times(tmp_path, name, says):
    tables, content = plain_graph()
    put("graph.timestamp", name)(content)
    look = first_look(read_config(written(tmp_path, tables, content)))
    assert not look.stops
    assert [("Did you mean 'amount'?" in note, note.partition(":")[0]) for note in look.notes] == [
        (True, "graph.timestamp")
    ] * says


@pytest.mark.parametrize(
    ("amounts", "is_said"), [(["5.406,79 EUR", "12 EUR"], True), (["1.234 EUR", "2.345 EUR"], False)]
)
def test_amounts_that_one_form_alone_reads_get_its_line(tmp_path, amounts, is_said):
    spoil = column("nodes", "age", amounts * (ROWS // 2))
    (said,) = _said(tmp_path, typed=False, spoil=spoil)
    assert ("Set graph: {columns: {age: {kind: numerical, decimal: comma}}}, which" in said) is is_said


@pytest.mark.parametrize(
    ("typed", "change", "line"),
    [
        (False, both(put("graph.id", "country"), put("graph.features", ["age", "country"])), "`graph: {id: id}`"),
        (False, put("graph.src", "amount"), "`graph: {src: src}`"),
        (True, put("graph.id", {"item": "kind"}), "`graph: {id: {}}`"),
        (True, put(f"{_KEY}.dst", "kind"), f"`{_KEY}.dst: category_id`"),
    ],
)
def test_a_column_that_is_there_and_holds_no_ids_is_one_mistake(tmp_path, typed, change, line):
    """Its repeated values, ends that are no node, and its second role are no mistakes of their own."""
    (said,) = _said(tmp_path, typed=typed, change=change)
    assert "holds no ids" in said
    assert line in said


@pytest.mark.parametrize("spoil", [column("nodes", "name", IDS), _NUMBERS], ids=["two such columns", "numbers"])
def test_where_the_ids_are_is_not_said_where_values_leave_it_open(tmp_path, spoil):
    said = _said(tmp_path, typed=False, change=put("graph.id", "country"), spoil=spoil)
    assert said
    assert not any("holds no ids" in text for text in said)


def test_ends_without_ids_are_said_whatever_rows_a_filter_that_is_not_there_would_choose(tmp_path):
    """Single rows with a wrong end are not: the filter may leave them out."""
    ends = both(put(f"{_KEY}.where", {"zzz": "a"}), put(f"{_KEY}.dst", "kind"))
    for change, count in ((ends, 2), (put(f"{_KEY}.where", {"zzz": "a"}), 1)):
        spoil = column("item", "category_id", ["c0", "c1", "c0", "other"] * (ROWS // 4))
        said = _said(tmp_path, typed=True, change=change, spoil=spoil)
        assert len(said) == count
        assert any(f"`{_KEY}.dst: category_id`" in text for text in said) is (count > 1)
