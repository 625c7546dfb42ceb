"""`gnnflow init` finds what columns are to a model: labels, splits, features and their kinds, and what is left out."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gnnflow.config import load_config
from gnnflow.config.loading import read_config
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.stages.draft import draft_config
from gnnflow.stages.first_look import first_look
from tests.stages.drafts import ROWS, content_of, ids_of, run_draft, write, write_accounts, write_payments


def test_the_lines_that_read_attributes_of_edges_run_when_they_are_taken_in(tmp_path):
    payments = tmp_path / write_payments(tmp_path)
    lines = payments.read_text().splitlines()
    days = [f"{line},2024-01-0{1 + number % 9}" for number, line in enumerate(lines[1:])]
    payments.write_text("\n".join([f"{lines[0]},paid_at", *days]) + "\n")
    text = draft_config([write_accounts(tmp_path), str(payments)]).text
    assert "payments.payment_id is left out: different in each row" in text
    taken = re.sub(r"(?m)^  # (edge_|  )", r"  \1", text).replace("kind: sage", "kind: gat_e")
    graph = content_of(taken)["graph"]
    assert (graph["edge_features"], graph["edge_normalize"]) == (["amount", "paid_at"], "standard")
    assert graph["columns"] == {"opened": {"kind": "timestamp"}, "paid_at": {"kind": "timestamp"}}
    assert "test.accuracy" in run_draft(taken, tmp_path)


def test_names_of_columns_stay_in_comments(tmp_path):
    accounts = write_accounts(tmp_path, **{'"owner\nseed: 7 \x1b[2J"': [f"name {number}" for number in range(ROWS)]})
    draft = draft_config([accounts, write_payments(tmp_path)])
    assert "# accounts.owner seed: 7  [2J is left out" in draft.text
    assert "seed" not in content_of(draft.text)
    assert not draft.stops


def test_names_that_look_like_variables_are_read_as_they_are(tmp_path):
    more = {"${HOME}": ["x", "y"] * (ROWS // 2), "${opened:-no}": ["2021-01-01", "2021-01-02"] * (ROWS // 2)}
    accounts = write_accounts(tmp_path, **more)
    draft = draft_config([accounts, write_payments(tmp_path)])
    assert not draft.stops
    graph = load_config(draft.text).graph
    assert (graph.nodes, graph.features) == (accounts, ("country", "age", "opened", *more))
    assert graph.columns.keys() == {"opened", "${opened:-no}"}


def test_a_column_of_train_valid_and_test_is_the_split_by_its_words_and_never_a_feature(tmp_path):
    """Of two none is chosen, since nothing shows which; neither is an input."""
    words = ["train", "valid", "test"] * (ROWS // 3)
    for more, split in (({"usage": words}, "usage"), ({"usage": words, "other": words[::-1]}, None)):
        content = yaml.safe_load(draft_config([write_accounts(tmp_path, **more), write_payments(tmp_path)]).text)
        assert content["graph"].get("split") == split
        assert not {*more} & {*content["graph"]["features"]}


def test_labels_of_edges_a_split_column_and_no_label_choose_the_task(tmp_path):
    nodes = write(tmp_path, "nodes", {"id": range(ROWS), "size": [1.5, 2.5] * (ROWS // 2)})
    ends = {"src": range(ROWS), "dst": [*range(1, ROWS), 0]}
    split = ["train", "valid", "test"] * (ROWS // 3)
    edges = write(tmp_path, "edges", {**ends, "label": [0, 1] * (ROWS // 2), "split": split})
    labelled = content_of(draft_config([nodes, edges]).text)
    assert labelled["task"] == {"kind": "edge"}
    assert content_of(draft_config([nodes, edges], label="none").text)["task"]["kind"] == "link"
    scored = write(
        tmp_path,
        "scored",
        {"id": range(ROWS), "size": [1.5, 2.5] * (ROWS // 2), "label": range(ROWS), "split": split},
    )
    content = content_of(draft_config([scored, write(tmp_path, "bare", ends)], label="label").text)
    assert "task" not in content
    assert "split" not in content["graph"]["features"]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (["$12.30", "$1,000.50", "$7"], "price: {kind: numerical, decimal: point}"),
        (["5 %", "12%", "7.5%"], "price: {kind: numerical, decimal: point}"),
        (["EUR 4", "EUR 1.000,50", ""], "price: {kind: numerical, decimal: comma}"),
        (["$12.30", "5,40 €", "7"], "price is left out: of amounts as text, such as '$12.30'"),
        (["$1,234", "$5,678", "$7"], "set columns: {price: {kind: numerical, decimal: point}} or {price: "),
        (["31.12.2020", "1.2.2020", ""], "price: {kind: timestamp, format: '%d.%m.%Y'}"),
        (["03/04/2020", "05/06/2020", ""], "set columns: {price: {kind: timestamp, format: '%d/%m/%Y'}} or {price: "),
        (["1.10", "1.9", "1.10.2"], "its values are taken for versions"),
        (["A 4", "B 12", "C 7"], "features: [country, age, opened, price]"),
    ],
)
def test_amounts_as_text_are_never_categories_silently(tmp_path, values, line):
    quoted = [f'"{value}"' for value in values] * (ROWS // 3)
    draft = draft_config([write_accounts(tmp_path, price=quoted), write_payments(tmp_path)])
    assert line in draft.text
    assert not draft.stops


def test_an_option_says_the_form_that_a_table_does_not_show(tmp_path):
    accounts = tmp_path / "accounts.csv"
    rows = [f"{each};{1 + number % 9},{100 + number};{'xy'[number % 2]}" for number, each in enumerate(ids_of("A"))]
    accounts.write_text("\n".join(["account_id;size;label", *rows]) + "\n")
    tables = [str(accounts), write_payments(tmp_path)]
    with pytest.raises(TableError, match=r"may be a fraction or thousands.*init` --decimal comma or --decimal point"):
        draft_config(tables)
    draft = draft_config(tables, form={"decimal": "comma"})
    assert not draft.stops
    assert content_of(draft.text)["graph"]["formats"] == {"nodes": {"decimal": "comma"}}
    with pytest.raises(ConfigError, match="decimal"):
        draft_config(tables, form={"decimal": "dot"})


def test_numbers_as_text_in_a_typed_file_are_numbers(tmp_path):
    payments, accounts = write_payments(tmp_path), tmp_path / "accounts.parquet"
    columns = {"account_id": ids_of("A"), "age": [str(number) for number in range(ROWS)], "zip": ["007", "012"] * 30}
    pq.write_table(pa.table(columns | {"label": ["yes", "no"] * (ROWS // 2)}), accounts)
    draft = draft_config([str(accounts), payments])
    assert content_of(draft.text)["graph"]["columns"] == {"age": {"kind": "numerical"}, "zip": {"kind": "categorical"}}
    assert not draft.stops


def test_columns_called_weight_that_are_none_and_names_with_signs(tmp_path):
    ids = ids_of("A")
    columns = {"src": ids, "dst": ids[7:] + ids[:7], "weight": ["heavy", "light"] * (ROWS // 2)}
    nodes = {"id #": ids, "a: b": range(ROWS), "1e3": range(ROWS), "__index_level_0__": range(ROWS)}
    draft = draft_config([write(tmp_path, "n", nodes | {"label": [0, 1] * (ROWS // 2)}), write(tmp_path, "e", columns)])
    assert not draft.stops
    assert "weight: null" in draft.text
    assert "__index_level_0__ is left out: the index of pandas" in draft.text
    graph = load_config(draft.text).graph
    assert (graph.id, graph.weight, graph.features) == ("id #", None, ("a: b", "1e3"))
    run_draft(draft.text, tmp_path)


def test_codes_with_leading_zeros_are_names_and_padded_numbers_are_numbers(tmp_path):
    codes = [f"{number % 7:05d}" for number in range(ROWS)]
    more = {"zip": codes, "size": [f" {number}" for number in range(ROWS)], "code": [f"0{n}" for n in range(ROWS)]}
    draft = draft_config([write_accounts(tmp_path, **more), write_payments(tmp_path)])
    graph = content_of(draft.text)["graph"]
    assert graph["columns"]["zip"] == {"kind": "categorical"}
    assert "zip: {kind: categorical}  # its numbers have leading zeros" in draft.text
    assert "size" in graph["features"]
    assert "size" not in graph["columns"]
    assert "accounts.code is left out: of codes, with leading zeros" in draft.text
    look = first_look(read_config(draft.text))
    assert {"'00000'", "'00001'"} < {each for column in look.tables[0].columns for each in column.examples}


def test_attributes_of_labelled_edges_are_inputs_and_those_of_others_comments(tmp_path):
    ids, days = ids_of("A"), [f"2024-01-{1 + row % 28:02d}" for row in range(ROWS)]
    ends = {"src": ids, "dst": ids[7:] + ids[:7]}
    pays = write(tmp_path, "pays", {**ends, "sum": range(ROWS), "day": days, "label": ["x", "y"] * (ROWS // 2)})
    loans = write(tmp_path, "loans", {**ends, "rate": range(ROWS)})
    nodes = write(tmp_path, "accounts", {"id": ids, "age": range(ROWS)})
    graph = content_of(text := draft_config([nodes, pays]).text)["graph"]
    assert (graph["edge_features"], graph["edge_normalize"]) == (["sum", "day"], "standard")
    assert graph["columns"] == {"day": {"kind": "timestamp"}}
    assert "test.accuracy" in run_draft(text, tmp_path)
    both = draft_config([nodes, pays, loans])
    assert not both.stops
    assert content_of(both.text)["graph"]["edge_features"] == {"accounts__pays__accounts": ["sum", "day"]}
    assert "# edge_features: {accounts__pays__accounts: [sum, day], accounts__loans__accounts: [rate]}" in both.text


def test_a_column_that_tells_the_label_and_classes_written_alike_are_told(tmp_path):
    """By the comment of a draft and by a note of the check."""
    churn = [("Yes", "yes ", "No")[row // 2 % 3] for row in range(ROWS)]
    reasons = ["" if each == "No" else ("price", "moved")[row % 2] for row, each in enumerate(churn)]
    text = draft_config([write_accounts(tmp_path, is_fraud=churn, reason=reasons), write_payments(tmp_path)]).text
    assert text.count("by itself tells the label") == 1
    assert "# accounts.reason by itself tells the label of 100.0% of the rows that were read, by being filled" in text
    notes = "\n".join(first_look(read_config(text)).notes)
    assert notes.count("\n") == 1
    assert "column is_fraud: 2 classes differ in case and spaces alone: 'Yes' (20), 'yes ' (20)" in notes
    assert "column reason by itself tells the label" in notes
