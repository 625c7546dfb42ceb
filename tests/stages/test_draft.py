"""`gnnflow init` writes a config that runs as it is, and asks by an option where tables do not show a role."""

from __future__ import annotations

import gzip
import re
import shlex
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gnnflow.cli.tables import parse_ends
from gnnflow.config import load_config
from gnnflow.config.loading import read_config
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.draft import draft_config
from gnnflow.stages.first_look import first_look
from gnnflow.stages.given_tables import say_ends

_ROWS = 60


def _write(folder: Path, name: str, columns: dict[str, Sequence[Any]]) -> str:
    """Write a CSV file and return its path."""
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _ids(letter: str, rows: int = _ROWS) -> list[str]:
    return [f"{letter}{number:03d}" for number in range(rows)]


def _accounts(folder: Path, **more: Sequence[Any]) -> str:
    columns: dict[str, Sequence[Any]] = {
        "account_id": _ids("A"),
        "country": ["DE", "FR", "US"] * (_ROWS // 3),
        "age": ["" if number % 7 == 0 else 20 + number for number in range(_ROWS)],
        "opened": [f"2021-01-{1 + number % 28:02d}" for number in range(_ROWS)],
        "owner": [f"name {number}" for number in range(_ROWS)],
        "is_fraud": [("yes", "no", "no", "no", "")[number % 5] for number in range(_ROWS)],
    }
    return _write(folder, "accounts", columns | more)


def _payments(folder: Path) -> str:
    ids = _ids("A")
    columns = {"payment_id": range(_ROWS), "from_account": ids, "to_account": ids[7:] + ids[:7], "amount": range(_ROWS)}
    return _write(folder, "payments", columns)


def _content(text: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def _run(text: str, folder: Path) -> dict[str, float]:
    """Run a drafted config for two epochs."""
    overrides = ("train.epochs=2", "train.baselines=none", "infer.parity_samples=4", "cluster={kind: synchronous}")
    config = load_config(text, workspace=str(folder / "work"), overrides=overrides)
    return pipeline.run(StageContext.of(config)).metrics


def test_exports_of_accounts_and_payments_run_as_they_are(tmp_path):
    draft = draft_config([_accounts(tmp_path), _payments(tmp_path)])
    assert not draft.stops
    content = _content(draft.text)
    graph = content["graph"]
    assert {key: graph[key] for key in ("id", "src", "dst", "label")} == {
        "id": "account_id",
        "src": "from_account",
        "dst": "to_account",
        "label": "is_fraud",
    }
    assert graph["features"] == ["country", "age", "opened"]
    assert graph["columns"] == {"opened": {"kind": "timestamp"}}
    assert "owner is left out: different in each row" in draft.text
    assert "100% of a sample of its values are ids of nodes" in draft.text
    assert content["task"] == {"split": {"kind": "random"}}
    assert "cluster" not in content
    assert "test.accuracy" in _run(draft.text, tmp_path)


def test_exports_of_a_shop_become_a_typed_graph_with_its_foreign_key(tmp_path):
    users = _write(
        tmp_path,
        "users",
        {"user_id": _ids("U"), "age": range(20, 20 + _ROWS), "churned": ["True", "False", "False"] * (_ROWS // 3)},
    )
    items = _write(
        tmp_path,
        "items",
        {
            "item_id": _ids("I"),
            "category_id": ["C0", "C1"] * (_ROWS // 2),
            "tags": ["a|b", "c", "b|c"] * (_ROWS // 3),
        },
    )
    categories = _write(tmp_path, "categories", {"category_id": ["C0", "C1"], "margin": [0.5, 0.25]})
    orders = _write(
        tmp_path,
        "orders",
        {"order_id": range(_ROWS), "user_id": _ids("U"), "item_id": _ids("I"), "quantity": [1, 2, 3] * (_ROWS // 3)},
    )
    draft = draft_config([users, items, categories, orders], name="shop")
    assert not draft.stops
    graph = _content(draft.text)["graph"]
    assert graph["id"] == {"users": "user_id", "items": "item_id", "categories": "category_id"}
    assert graph["edges"] == {
        "users__orders__items": orders,
        "items__category_id__categories": {"table": items, "src": "item_id", "dst": "category_id"},
    }
    assert (graph["target"], graph["label"]) == ("users", "churned")
    assert graph["features"] == {"users": ["age"], "items": ["tags"], "categories": ["margin"]}
    assert graph["columns"] == {"items.tags": {"kind": "multicategorical", "separator": "|"}}
    assert "test.accuracy" in _run(draft.text, tmp_path)


def test_ids_are_found_by_the_ends_they_hold_and_two_kinds_of_numbers_stay_apart(tmp_path):
    numbers = range(1, _ROWS + 1)
    films = _write(tmp_path, "movies", {"movieId": numbers, "genres": ["a|b", "c", "b"] * (_ROWS // 3)})
    rated = {"userId": [*numbers] * 2, "movieId": [*numbers, *reversed(numbers)], "rating": [3.5, 4.0] * _ROWS}
    draft = draft_config([films, _write(tmp_path, "ratings", rated)], label="none")
    assert not draft.stops
    graph = _content(draft.text)["graph"]
    assert graph["nodes"] == {"movies": films, "user": None}
    assert (graph["src"], graph["dst"], graph["target"]) == ("userId", "movieId", "user__ratings__movies")
    joined = draft_config([films, f"{tmp_path}/ratings.csv"], label="none", ends=[("userId", "movieId")])
    assert _content(joined.text)["graph"]["nodes"] == films

    named = _accounts(tmp_path, IBAN=_ids("A"), account_id=["x"] * _ROWS)
    assert _content(draft_config([named, _payments(tmp_path)]).text)["graph"]["id"] == "IBAN"

    shelves = {"kind_id": range(5), "name": [f"n{number}" for number in range(5)], "shelf_id": [1, 2, 1, 2, 3]}
    kinds = _write(tmp_path, "kinds", shelves)
    wares = {"Unnamed: 0": numbers, "ware_id": numbers, "kind_id": ["", "1.0", "2.0"] * (_ROWS // 3)}
    wares |= {"size": [1, 2, 3] * (_ROWS // 3), "label": [0, 1] * (_ROWS // 2)}
    pairs = _write(tmp_path, "pairs", {"src": numbers, "dst": [*reversed(numbers)]})
    text = draft_config([_write(tmp_path, "wares", wares), kinds, pairs]).text
    assert "kinds.shelf_id: {kind: categorical}  # its numbers are taken for names" in text
    graph = _content(text)["graph"]
    assert graph["edges"].keys() == {"wares__pairs__wares", "wares__kind_id__kinds"}
    assert graph["features"] == {"wares": ["size"], "kinds": ["name", "shelf_id"]}
    assert (graph["id"]["kinds"], graph["columns"]) == ("kind_id", {"kinds.shelf_id": {"kind": "categorical"}})


def test_the_lines_that_read_attributes_of_edges_run_when_they_are_taken_in(tmp_path):
    payments = tmp_path / _payments(tmp_path)
    lines = payments.read_text().splitlines()
    days = [f"{line},2024-01-0{1 + number % 9}" for number, line in enumerate(lines[1:])]
    payments.write_text("\n".join([f"{lines[0]},paid_at", *days]) + "\n")
    text = draft_config([_accounts(tmp_path), str(payments)]).text
    assert "payments.payment_id is left out: different in each row" in text
    taken = re.sub(r"(?m)^  # (edge_|  )", r"  \1", text).replace("kind: sage", "kind: gat_e")
    graph = _content(taken)["graph"]
    assert (graph["edge_features"], graph["edge_normalize"]) == (["amount", "paid_at"], "standard")
    assert graph["columns"] == {"opened": {"kind": "timestamp"}, "paid_at": {"kind": "timestamp"}}
    assert "test.accuracy" in _run(taken, tmp_path)


def test_messy_exports_run_as_they_are(tmp_path):
    customers = tmp_path / "Kunden 2024.csv.gz"
    rows = "".join(f'K{number};Köln;{number},5;"{("ja", "nein")[number % 3 == 0]}"\n' for number in range(_ROWS))
    customers.write_bytes(gzip.compress(f"# Export\n# 2024\nKunden Nr;Straße;Größe;label\n{rows}".encode()))
    calls = tmp_path / "Anrufe.csv"
    rows = "".join(f"K{number};K{number // 2};dünn\n" for number in range(_ROWS))
    calls.write_text(f"von;an;Güte\n{rows}", encoding="cp1252")
    draft = draft_config([str(customers), str(calls)], form={"encoding": "cp1252"})
    assert not draft.stops
    assert _content(draft.text)["graph"]["formats"] == {"edges": {"encoding": "cp1252"}}
    graph = _content(draft.text)["graph"]
    assert (graph["id"], {graph["src"], graph["dst"]}, graph["features"]) == ("Kunden Nr", {"von", "an"}, ["Größe"])
    assert "test.accuracy" in _run(draft.text, tmp_path)


def test_all_tables_of_a_database_become_a_graph_whose_ids_pandas_left_without_a_name(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute('CREATE TABLE "Käufer" ("Unnamed: 0" INTEGER, name TEXT, age INTEGER, churned TEXT)')
        connection.execute('CREATE TABLE "orders" (buyer_id INTEGER, seller_id INTEGER, amount REAL)')
        buyers = [(number, f"n{number}", number % 7, ("yes", "no")[number % 2]) for number in range(_ROWS)]
        connection.executemany('INSERT INTO "Käufer" VALUES (?, ?, ?, ?)', buyers)
        orders = [(number // 2, (_ROWS - 1 - number) // 2, number / 2) for number in range(_ROWS)]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
        connection.commit()
    draft = draft_config([str(tmp_path / "shop.db")])
    assert not draft.stops
    graph = _content(draft.text)["graph"]
    assert graph["id"] == "Unnamed: 0"
    assert graph["nodes"] == f"{tmp_path}/shop.db#Käufer"
    assert "test.accuracy" in _run(draft.text, tmp_path)


def test_names_of_columns_stay_in_comments(tmp_path):
    accounts = _accounts(tmp_path, **{'"owner\nseed: 7 \x1b[2J"': [f"name {number}" for number in range(_ROWS)]})
    draft = draft_config([accounts, _payments(tmp_path)])
    assert "# accounts.owner seed: 7  [2J is left out" in draft.text
    assert "seed" not in _content(draft.text)
    assert not draft.stops


def test_names_that_look_like_variables_are_read_as_they_are(tmp_path):
    more = {"${HOME}": ["x", "y"] * (_ROWS // 2), "${opened:-no}": ["2021-01-01", "2021-01-02"] * (_ROWS // 2)}
    accounts = _accounts(tmp_path, **more)
    draft = draft_config([accounts, _payments(tmp_path)])
    assert not draft.stops
    graph = load_config(draft.text).graph
    assert (graph.nodes, graph.features) == (accounts, ("country", "age", "opened", *more))
    assert graph.columns.keys() == {"opened", "${opened:-no}"}


def test_a_table_without_a_header_is_asked_about(tmp_path):
    (tmp_path / "e.csv").write_text("1,2\n2,3\n")
    with pytest.raises(TableError, match=r"its first line is a row: 1, 2.*graph\.formats"):
        draft_config([str(tmp_path / "e.csv")])


def test_a_column_of_train_valid_and_test_is_the_split_by_its_words_and_never_a_feature(tmp_path):
    """Of two none is chosen, since nothing shows which; neither is an input."""
    words = ["train", "valid", "test"] * (_ROWS // 3)
    for more, split in (({"usage": words}, "usage"), ({"usage": words, "other": words[::-1]}, None)):
        content = yaml.safe_load(draft_config([_accounts(tmp_path, **more), _payments(tmp_path)]).text)
        assert content["graph"].get("split") == split
        assert not {*more} & {*content["graph"]["features"]}


def test_labels_of_edges_a_split_column_and_no_label_choose_the_task(tmp_path):
    nodes = _write(tmp_path, "nodes", {"id": range(_ROWS), "size": [1.5, 2.5] * (_ROWS // 2)})
    ends = {"src": range(_ROWS), "dst": [*range(1, _ROWS), 0]}
    split = ["train", "valid", "test"] * (_ROWS // 3)
    edges = _write(tmp_path, "edges", {**ends, "label": [0, 1] * (_ROWS // 2), "split": split})
    labelled = _content(draft_config([nodes, edges]).text)
    assert labelled["task"] == {"kind": "edge"}
    assert _content(draft_config([nodes, edges], label="none").text)["task"]["kind"] == "link"
    scored = _write(
        tmp_path,
        "scored",
        {"id": range(_ROWS), "size": [1.5, 2.5] * (_ROWS // 2), "label": range(_ROWS), "split": split},
    )
    content = _content(draft_config([scored, _write(tmp_path, "bare", ends)], label="label").text)
    assert "task" not in content
    assert "split" not in content["graph"]["features"]


def test_an_option_says_what_tables_do_not_show(tmp_path):
    nodes = _write(
        tmp_path,
        "nodes",
        {"code": _ids("N"), "key": range(_ROWS), "old_key": range(_ROWS), "risk": ["hi", "lo"] * (_ROWS // 2)},
    )
    links = _write(tmp_path, "links", {"a": _ids("N"), "b": _ids("N")[::-1], "c": _ids("N")})
    draft = draft_config([nodes, links], ids=["nodes.code"], label="risk", ends=[("a", "c")])
    graph = _content(draft.text)["graph"]
    assert (graph["id"], graph["src"], graph["dst"], graph["label"]) == ("code", "a", "c", "risk")
    assert not draft.stops


def test_rows_with_ids_that_name_two_small_tables_are_asked_about(tmp_path):
    goods = {"good_id": _ids("G", 300), "kind_id": ["K0", "K1"] * 150, "make_id": ["M0", "M1", "M2"] * 100}
    more = {"price": range(300), "label": ["hi", "lo", "lo"] * 100}
    kinds = _write(tmp_path, "kinds", {"kind_id": ["K0", "K1"], "tax": [7, 19]})
    makes = _write(tmp_path, "makes", {"make_id": ["M0", "M1", "M2"], "age": [1, 2, 9]})
    tables = [_write(tmp_path, "goods", goods | more), kinds, makes]
    with pytest.raises(ConfigError, match=r"may be edges .*--ends kind_id,make_id for edges, --id goods.good_id for"):
        draft_config(tables)
    draft = draft_config(tables, ids=["goods.good_id"])
    assert not draft.stops
    assert _content(draft.text)["graph"]["edges"].keys() == {"goods__kind_id__kinds", "goods__make_id__makes"}
    assert "kinds__goods__makes" in _content(draft_config(tables, ends=[("kind_id", "make_id")]).text)["graph"]["edges"]


def test_each_fix_for_rows_with_three_foreign_keys_works(tmp_path):
    """Finds proposals that lose the third table."""
    keys: dict[str, Sequence[Any]] = {"visit_id": range(60)}
    keys |= {"man_id": ["MAN0", "MAN1"] * 30, "doc_id": ["DOC0", "DOC1"] * 30, "drug_id": ["DRUG0", "DRUG1"] * 30}
    tables = [
        _write(tmp_path, each, {f"{each}_id": [f"{each}0".upper(), f"{each}1".upper()]})
        for each in ("man", "doc", "drug")
    ]
    tables.append(_write(tmp_path, "visits", keys))
    with pytest.raises(
        ConfigError, match=r"--id visits.visit_id for nodes .*--ends man_id,doc_id .*without the tables drug"
    ):
        draft_config(tables, label="none")
    with pytest.raises(
        ConfigError, match=r"'drug_id' of .*visits.csv holds the ids of .*drug.csv.*--id visits.visit_id"
    ):
        draft_config(tables, label="none", ends=[("man_id", "doc_id")])
    made = _content(draft_config(tables, label="none", ids=["visits.visit_id"]).text)
    assert made["graph"]["edges"].keys() == {"visits__man_id__man", "visits__doc_id__doc", "visits__drug_id__drug"}
    draft_config([tables[0], tables[1], tables[3]], label="none", ends=[("man_id", "doc_id")])


def test_foreign_keys_with_leading_zeros_are_found_as_text_is(tmp_path):
    """Finds such keys read as numbers, and months (01 is not 0001) taken for keys."""
    doctors = _write(
        tmp_path, "doctors", {"doctor_id": [f"{row:04d}" for row in range(1, 13)], "field": ["a", "b"] * 6}
    )
    months = [f"{1 + row % 12:02d}" for row in range(_ROWS)]
    columns = {"patient_id": range(_ROWS), "age": range(_ROWS), "medic": [f"00{each}" for each in months]}
    patients = _write(tmp_path, "patients", columns | {"month": months, "label": ["x", "y"] * (_ROWS // 2)})
    draft = draft_config([patients, doctors])
    assert not draft.stops
    graph = _content(draft.text)["graph"]
    assert graph["edges"].keys() == {"patients__medic__doctors"}
    assert graph["features"]["patients"] == ["age", "month"]
    _run(draft.text, tmp_path)


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "said"),
    [
        ({"own_key": [0, 1], "old_key": [0, 1]}, {}, {}, "may each be the ids of .*--id nodes.own_key"),
        ({"size": [1.5, 1.5]}, {}, {}, "no column of .* is shown to hold ids.*--id nodes.COLUMN"),
        ({"id": [0, 1], "size": [1, 2]}, {"src": [5, 6], "dst": [7, 8]}, {}, "no table holds the nodes of 'src'"),
        ({"id": [0, 1], "size": [1, 2]}, {}, {}, "no column is named as a label is.*--label COLUMN .*nodes.size"),
        ({"id": [0, 1], "y": [0, 1], "label": [0, 1]}, {}, {}, "nodes.y, nodes.label may each be the label"),
        ({"id": [0, 1], "label": [0, 1]}, {}, {"label": "labl"}, "--label: no table has a column 'labl'"),
        ({"id": [0, 1], "label": [0, 1]}, {}, {"ids": ["nr"]}, "--id: no table has 'nr'"),
        ({"id": [0, 1], "label": [0, 1]}, {}, {"ends": [("a", "b")]}, "--ends: no table has 'a,b'"),
        ({"id": [0, 1], "label": [0, 1]}, {}, {}, "no column of .* can be a feature"),
    ],
)
def test_it_asks_by_an_option_instead_of_guessing(tmp_path, nodes, edges, options, said):
    tables = [_write(tmp_path, "nodes", nodes), _write(tmp_path, "edges", edges or {"src": [0, 1], "dst": [1, 0]})]
    with pytest.raises(ConfigError, match=said):
        draft_config(tables, **options)


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
    quoted = [f'"{value}"' for value in values] * (_ROWS // 3)
    draft = draft_config([_accounts(tmp_path, price=quoted), _payments(tmp_path)])
    assert line in draft.text
    assert not draft.stops


def test_an_option_says_the_form_that_a_table_does_not_show(tmp_path):
    accounts = tmp_path / "accounts.csv"
    rows = [f"{each};{1 + number % 9},{100 + number};{'xy'[number % 2]}" for number, each in enumerate(_ids("A"))]
    accounts.write_text("\n".join(["account_id;size;label", *rows]) + "\n")
    tables = [str(accounts), _payments(tmp_path)]
    with pytest.raises(TableError, match=r"may be a fraction or thousands.*init` --decimal comma or --decimal point"):
        draft_config(tables)
    draft = draft_config(tables, form={"decimal": "comma"})
    assert not draft.stops
    assert _content(draft.text)["graph"]["formats"] == {"nodes": {"decimal": "comma"}}
    with pytest.raises(ConfigError, match="decimal"):
        draft_config(tables, form={"decimal": "dot"})


def test_numbers_as_text_in_a_typed_file_are_numbers(tmp_path):
    payments, accounts = _payments(tmp_path), tmp_path / "accounts.parquet"
    columns = {"account_id": _ids("A"), "age": [str(number) for number in range(_ROWS)], "zip": ["007", "012"] * 30}
    pq.write_table(pa.table(columns | {"label": ["yes", "no"] * (_ROWS // 2)}), accounts)
    draft = draft_config([str(accounts), payments])
    assert _content(draft.text)["graph"]["columns"] == {"age": {"kind": "numerical"}, "zip": {"kind": "categorical"}}
    assert not draft.stops


def test_columns_called_weight_that_are_none_and_names_with_signs(tmp_path):
    ids = _ids("A")
    columns = {"src": ids, "dst": ids[7:] + ids[:7], "weight": ["heavy", "light"] * (_ROWS // 2)}
    nodes = {"id #": ids, "a: b": range(_ROWS), "1e3": range(_ROWS), "__index_level_0__": range(_ROWS)}
    draft = draft_config(
        [_write(tmp_path, "n", nodes | {"label": [0, 1] * (_ROWS // 2)}), _write(tmp_path, "e", columns)]
    )
    assert not draft.stops
    assert "weight: null" in draft.text
    assert "__index_level_0__ is left out: the index of pandas" in draft.text
    graph = load_config(draft.text).graph
    assert (graph.id, graph.weight, graph.features) == ("id #", None, ("a: b", "1e3"))
    _run(draft.text, tmp_path)


def test_rows_that_name_each_other_are_nodes_with_a_relation_for_each_key(tmp_path):
    """Finds people read as edges between their departments and their towns."""
    people: dict[str, Sequence[Any]] = {"person_id": range(100, 100 + _ROWS), "age": range(_ROWS)}
    people |= {"department_id": [1, 2, 3] * (_ROWS // 3), "town_id": ["T1", "T2"] * (_ROWS // 2)}
    people |= {"manager_id": ["" if row < 6 else f"{100 + row % 6}.0" for row in range(_ROWS)]}
    tables = [
        _write(tmp_path, "people", people | {"label": ["x", "y"] * (_ROWS // 2)}),
        _write(tmp_path, "departments", {"department_id": [1, 2, 3], "size": [4, 9, 5]}),
        _write(tmp_path, "towns", {"town_id": ["T1", "T2"], "size": [4, 9]}),
    ]
    draft = draft_config(tables)
    assert not draft.stops
    graph = _content(draft.text)["graph"]
    assert graph["target"] == "people"
    assert {*graph["edges"]} == {
        f"people__{key}_id__{to}"
        for key, to in (("manager", "people"), ("department", "departments"), ("town", "towns"))
    }
    assert "# rows without one of the ends are no edges: 10%" in draft.text


def test_the_index_that_pandas_writes_is_no_key_of_another_table(tmp_path):
    ids = [1000 + 7 * row % _ROWS for row in range(_ROWS)]
    papers = _write(
        tmp_path,
        "papers",
        {"": range(_ROWS), "paper": ids, "year": range(_ROWS), "label": [1.0, 2.0, ""] * (_ROWS // 3)},
    )
    citations = _write(tmp_path, "citations", {"": range(_ROWS), "citing": ids, "cited": ids[9:] + ids[:9]})
    graph = _content(draft_config([citations, papers]).text)["graph"]
    assert (graph["nodes"], graph["edges"], graph["id"]) == (papers, citations, "paper")
    assert graph["features"] == ["year"]


def test_orders_without_a_customer_are_no_edges_and_a_key_has_the_name_of_the_ids_it_holds(tmp_path):
    users = _write(tmp_path, "users", {"user_id": _ids("u"), "age": range(_ROWS)})
    goods = tmp_path / "goods.tsv"  # whose ids are called as those of no table are
    goods.write_text("sku\tprice\n" + "".join(f"{each}\t{number}\n" for number, each in enumerate(_ids("s"))))
    orders: dict[str, Sequence[Any]] = {"user_id": ["" if row % 4 == 0 else f"u{row:03d}" for row in range(_ROWS)]}
    orders |= {"sku": _ids("s"), "label": ["yes", "no", "no"] * (_ROWS // 3)}
    draft = draft_config([users, str(goods), _write(tmp_path, "orders", orders)])
    assert not draft.stops
    assert "{table: " in draft.text
    assert "src: user_id, dst: sku}  # rows without one of the ends are no edges: 25%" in draft.text
    _run(draft.text, tmp_path)


def test_text_ids_are_found_by_their_values_and_by_words_for_relatives(tmp_path):
    """Finds ids and ends in the words of another language, and a parent part that becomes a category."""
    codes = _ids("DE")
    parts: dict[str, Sequence[Any]] = {"iban": codes, "parent": ["", *codes[:-1]], "size": range(_ROWS)}
    parts |= {"label": ["x", "y"] * (_ROWS // 2)}
    pays = _write(tmp_path, "pays", {"von iban": codes, "nach iban": codes[5:] + codes[:5]})
    draft = draft_config([_write(tmp_path, "konten", parts), pays])
    assert not draft.stops
    graph = _content(draft.text)["graph"]
    assert {*graph["edges"]} == {"konten__pays__konten", "konten__parent__konten"}
    assert graph["id"] == "iban"
    assert graph["features"] == {"konten": ["size"]}


def test_codes_with_leading_zeros_are_names_and_padded_numbers_are_numbers(tmp_path):
    codes = [f"{number % 7:05d}" for number in range(_ROWS)]
    more = {"zip": codes, "size": [f" {number}" for number in range(_ROWS)], "code": [f"0{n}" for n in range(_ROWS)]}
    draft = draft_config([_accounts(tmp_path, **more), _payments(tmp_path)])
    graph = _content(draft.text)["graph"]
    assert graph["columns"]["zip"] == {"kind": "categorical"}
    assert "zip: {kind: categorical}  # its numbers have leading zeros" in draft.text
    assert "size" in graph["features"]
    assert "size" not in graph["columns"]
    assert "accounts.code is left out: of codes, with leading zeros" in draft.text
    look = first_look(read_config(draft.text))
    assert {"'00000'", "'00001'"} < {each for column in look.tables[0].columns for each in column.examples}


@pytest.mark.parametrize("name", ["no", "2024", "null", "the goods"])
def test_names_of_tables_and_columns_that_yaml_and_shells_read_otherwise_are_quoted(tmp_path, name):
    columns = {f"{name}: id": _ids("G", 300), "kind no: id": ["K0", "K1"] * 150, "make's id": ["M0", "M1", "M2"] * 100}
    tables = [
        _write(tmp_path, name, columns | {"price": range(300), "label": ["hi", "lo", "lo"] * 100}),
        _write(tmp_path, "kinds", {"kind no: id": ["K0", "K1"], "tax": [7, 19]}),
        _write(tmp_path, "makes", {"make's id": ["M0", "M1", "M2"], "age": [1, 2, 9]}),
    ]
    with pytest.raises(ConfigError) as caught:
        draft_config(tables)
    words = shlex.split(re.sub(r" for (edges|nodes)[,.]", "", caught.value.fix.partition(": ")[2]))
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert not draft_config(tables, ids=[options["--id"]]).stops
    assert not draft_config(tables, ends=[parse_ends(options["--ends"])]).stops


def test_a_name_with_a_comma_and_quotes_is_proposed_as_it_is_read():
    pair = 'from, "old"', "it's"
    option, said = shlex.split(say_ends(*pair))
    assert (option, parse_ends(said)) == ("--ends", pair)


def _posts(folder: Path, column: str) -> str:
    ids = _ids("p")
    replies = ["" if row < 9 or row % 5 == 0 else ids[row // 3] for row in range(_ROWS)]
    columns = {"post_id": ids, "user_id": [f"u{row % 7:03d}" for row in range(_ROWS)], column: replies}
    return _write(folder, "posts", columns | {"words": range(_ROWS), "label": ["x", "y"] * (_ROWS // 2)})


@pytest.mark.parametrize("column", ["reply_to", "reply_to_id", "mgr", "successor"])
def test_rows_that_hold_ids_of_their_own_table_are_nodes_whatever_the_column_is_called(tmp_path, column):
    """Finds a self-reference that becomes a category, or that makes the rows edges to a type without a table."""
    users = _write(tmp_path, "users", {"user_id": _ids("u", 7), "age": range(7)})
    posts = _posts(tmp_path, column)
    graph = _content(draft_config([users, posts]).text)["graph"]
    assert {*graph["edges"]} == {f"posts__{column}__posts", "posts__user_id__users"}
    assert graph["features"] == {"users": ["age"], "posts": ["words"]}
    for ends in ([], [("post_id", column)]):
        alone = _content(draft_config([posts], ends=ends).text)["graph"]
        assert {*alone["edges"]} == {f"posts__{column}__posts"}


def test_a_column_that_repeats_the_ids_refers_to_no_other_row(tmp_path):
    copied = _accounts(tmp_path, IBAN=_ids("A"))
    assert "edges" in (graph := _content(draft_config([copied, _payments(tmp_path)]).text)["graph"])
    assert (graph["id"], graph["nodes"]) == ("account_id", copied)


@pytest.mark.parametrize(
    ("ids", "ends"),
    [(_ids("X"), ("origin", "dest")), (_ids("X"), ("von_ort", "nach_ort")), (range(7, 67), ("origin", "dest"))],
)
def test_the_column_that_holds_the_ends_is_the_id_and_not_the_one_called_name(tmp_path, ids, ends):
    names = [f"Airport {each}" for each in ids]
    places = _write(tmp_path, "places", {"code": ids, "name": names, "land": ["D", "F"] * (_ROWS // 2)})
    trips = dict(zip(ends, ([*ids], [*ids][::-1]), strict=True)) | {"label": ["x", "y"] * (_ROWS // 2)}
    draft = draft_config([places, _write(tmp_path, "trips", trips)])
    assert not draft.stops
    assert _content(draft.text)["graph"]["id"] == "code"


def test_ends_that_the_user_names_and_no_table_holds_are_asked_about(tmp_path):
    links = _write(tmp_path, "links", {"a": _ids("N"), "b": _ids("N")[::-1]})
    with pytest.raises(ConfigError, match="no table holds the nodes whose ids are in column 'a'"):
        draft_config([_accounts(tmp_path), links], ends=[("a", "b")])


def test_ids_of_tables_with_foreign_keys_are_found_by_the_tables_that_hold_them(tmp_path):
    """Finds the number of a building taken for the id of a department, and a course without an id."""
    departments: dict[str, Sequence[Any]] = {"dept_code": _ids("D", 8), "building_no": range(3, 27, 3)}
    courses = {"course_code": _ids("C", 16), "title": _ids("T", 16), "dept_code": _ids("D", 8) * 2}
    students = {"student_id": _ids("S"), "dept_code": (_ids("D", 8) * 8)[:_ROWS], "label": ["x", "y"] * (_ROWS // 2)}
    marks = {"student_id": _ids("S") * 2, "course_code": (_ids("C", 16) * 8)[: 2 * _ROWS]}
    tables = [
        _write(tmp_path, name, columns)
        for name, columns in (("stud", students), ("cour", courses), ("marks", marks), ("dept", departments))
    ]
    graph = _content(draft_config(tables).text)["graph"]
    assert graph["id"] == {"stud": "student_id", "cour": "course_code", "dept": "dept_code"}
    assert {*graph["edges"]} == {"stud__marks__cour", "stud__dept_code__dept", "cour__dept_code__dept"}
    assert {*_content(draft_config([tables[0], tables[3]]).text)["graph"]["edges"]} == {"stud__dept_code__dept"}


def test_two_tables_of_the_same_nodes_are_said_to_be_so(tmp_path):
    numbers = range(100, 100 + _ROWS)
    tables = [
        _write(tmp_path, "sizes", {"txId": numbers, "size": range(_ROWS)}),
        _write(tmp_path, "classes", {"txId": numbers, "class": ["a", "b"] * (_ROWS // 2)}),
        _write(tmp_path, "flows", {"txId1": numbers, "txId2": [*numbers][::-1]}),
    ]
    with pytest.raises(
        ConfigError, match=r"sizes.csv and .*classes.csv hold the same ids \(column 'txId'\).*Join them"
    ):
        draft_config(tables)


def test_views_and_tables_that_nothing_joins_stay_out_of_a_database(tmp_path):
    place = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE persons (person_id INTEGER, age INTEGER)")
        connection.execute("CREATE TABLE claims (claim_id INTEGER, person_id INTEGER, sum REAL, fraud TEXT)")
        connection.execute("CREATE TABLE schema_migrations (version TEXT)")
        connection.execute("CREATE VIEW open_claims AS SELECT * FROM claims")
        connection.executemany("INSERT INTO persons VALUES (?, ?)", [(row, row % 9) for row in range(20)])
        claims = [(row, row % 20, row / 2, ("yes", "no")[row % 2]) for row in range(_ROWS)]
        connection.executemany("INSERT INTO claims VALUES (?, ?, ?, ?)", claims)
        connection.execute("INSERT INTO schema_migrations VALUES ('2021')")
        connection.commit()
    draft = draft_config([place])
    assert not draft.stops
    assert {*_content(draft.text)["graph"]["nodes"]} == {"persons", "claims"}
    assert any("schema_migrations: left out" in line for line in draft.told)
    with pytest.raises(ConfigError, match=r"no column of .*schema_migrations"):
        draft_config([f"{place}#{name}" for name in ("persons", "claims", "schema_migrations")])


def test_attributes_of_labelled_edges_are_inputs_and_those_of_others_comments(tmp_path):
    ids, days = _ids("A"), [f"2024-01-{1 + row % 28:02d}" for row in range(_ROWS)]
    ends = {"src": ids, "dst": ids[7:] + ids[:7]}
    pays = _write(tmp_path, "pays", {**ends, "sum": range(_ROWS), "day": days, "label": ["x", "y"] * (_ROWS // 2)})
    loans = _write(tmp_path, "loans", {**ends, "rate": range(_ROWS)})
    nodes = _write(tmp_path, "accounts", {"id": ids, "age": range(_ROWS)})
    graph = _content(text := draft_config([nodes, pays]).text)["graph"]
    assert (graph["edge_features"], graph["edge_normalize"]) == (["sum", "day"], "standard")
    assert graph["columns"] == {"day": {"kind": "timestamp"}}
    assert "test.accuracy" in _run(text, tmp_path)
    both = draft_config([nodes, pays, loans])
    assert not both.stops
    assert _content(both.text)["graph"]["edge_features"] == {"accounts__pays__accounts": ["sum", "day"]}
    assert "# edge_features: {accounts__pays__accounts: [sum, day], accounts__loans__accounts: [rate]}" in both.text


def test_a_column_that_tells_the_label_and_classes_written_alike_are_told(tmp_path):
    """By the comment of a draft and by a note of the check."""
    churn = [("Yes", "yes ", "No")[row // 2 % 3] for row in range(_ROWS)]
    reasons = ["" if each == "No" else ("price", "moved")[row % 2] for row, each in enumerate(churn)]
    text = draft_config([_accounts(tmp_path, is_fraud=churn, reason=reasons), _payments(tmp_path)]).text
    assert text.count("by itself tells the label") == 1
    assert "# accounts.reason by itself tells the label of 100.0% of the rows that were read, by being filled" in text
    notes = "\n".join(first_look(read_config(text)).notes)
    assert notes.count("\n") == 1
    assert "column is_fraud: 2 classes differ in case and spaces alone: 'Yes' (20), 'yes ' (20)" in notes
    assert "column reason by itself tells the label" in notes
