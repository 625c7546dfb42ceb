"""`gnnflow init` finds which tables are nodes and edges, and asks by an option where they do not show it."""

from __future__ import annotations

import gzip
import re
import shlex
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gnnflow.cli.tables import parse_ends
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.stages.draft import draft_config
from gnnflow.stages.given_tables import say_ends
from tests.stages.drafts import ROWS, content_of, ids_of, run_draft, write, write_accounts, write_payments


def test_exports_of_accounts_and_payments_run_as_they_are(tmp_path):
    draft = draft_config([write_accounts(tmp_path), write_payments(tmp_path)])
    assert not draft.stops
    content = content_of(draft.text)
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
    assert "test.accuracy" in run_draft(draft.text, tmp_path)


def test_exports_of_a_shop_become_a_typed_graph_with_its_foreign_key(tmp_path):
    users = write(
        tmp_path,
        "users",
        {"user_id": ids_of("U"), "age": range(20, 20 + ROWS), "churned": ["True", "False", "False"] * (ROWS // 3)},
    )
    items = write(
        tmp_path,
        "items",
        {
            "item_id": ids_of("I"),
            "category_id": ["C0", "C1"] * (ROWS // 2),
            "tags": ["a|b", "c", "b|c"] * (ROWS // 3),
        },
    )
    categories = write(tmp_path, "categories", {"category_id": ["C0", "C1"], "margin": [0.5, 0.25]})
    orders = write(
        tmp_path,
        "orders",
        {"order_id": range(ROWS), "user_id": ids_of("U"), "item_id": ids_of("I"), "quantity": [1, 2, 3] * (ROWS // 3)},
    )
    draft = draft_config([users, items, categories, orders], name="shop")
    assert not draft.stops
    graph = content_of(draft.text)["graph"]
    assert graph["id"] == {"users": "user_id", "items": "item_id", "categories": "category_id"}
    assert graph["edges"] == {
        "users__orders__items": orders,
        "items__category_id__categories": {"table": items, "src": "item_id", "dst": "category_id"},
    }
    assert (graph["target"], graph["label"]) == ("users", "churned")
    assert graph["features"] == {"users": ["age"], "items": ["tags"], "categories": ["margin"]}
    assert graph["columns"] == {"items.tags": {"kind": "multicategorical", "separator": "|"}}
    assert "test.accuracy" in run_draft(draft.text, tmp_path)


def test_ids_are_found_by_the_ends_they_hold_and_two_kinds_of_numbers_stay_apart(tmp_path):
    numbers = range(1, ROWS + 1)
    films = write(tmp_path, "movies", {"movieId": numbers, "genres": ["a|b", "c", "b"] * (ROWS // 3)})
    rated = {"userId": [*numbers] * 2, "movieId": [*numbers, *reversed(numbers)], "rating": [3.5, 4.0] * ROWS}
    draft = draft_config([films, write(tmp_path, "ratings", rated)], label="none")
    assert not draft.stops
    graph = content_of(draft.text)["graph"]
    assert graph["nodes"] == {"movies": films, "user": None}
    assert (graph["src"], graph["dst"], graph["target"]) == ("userId", "movieId", "user__ratings__movies")
    joined = draft_config([films, f"{tmp_path}/ratings.csv"], label="none", ends=[("userId", "movieId")])
    assert content_of(joined.text)["graph"]["nodes"] == films

    named = write_accounts(tmp_path, IBAN=ids_of("A"), account_id=["x"] * ROWS)
    assert content_of(draft_config([named, write_payments(tmp_path)]).text)["graph"]["id"] == "IBAN"

    shelves = {"kind_id": range(5), "name": [f"n{number}" for number in range(5)], "shelf_id": [1, 2, 1, 2, 3]}
    kinds = write(tmp_path, "kinds", shelves)
    wares = {"Unnamed: 0": numbers, "ware_id": numbers, "kind_id": ["", "1.0", "2.0"] * (ROWS // 3)}
    wares |= {"size": [1, 2, 3] * (ROWS // 3), "label": [0, 1] * (ROWS // 2)}
    pairs = write(tmp_path, "pairs", {"src": numbers, "dst": [*reversed(numbers)]})
    text = draft_config([write(tmp_path, "wares", wares), kinds, pairs]).text
    assert "kinds.shelf_id: {kind: categorical}  # its numbers are taken for names" in text
    graph = content_of(text)["graph"]
    assert graph["edges"].keys() == {"wares__pairs__wares", "wares__kind_id__kinds"}
    assert graph["features"] == {"wares": ["size"], "kinds": ["name", "shelf_id"]}
    assert (graph["id"]["kinds"], graph["columns"]) == ("kind_id", {"kinds.shelf_id": {"kind": "categorical"}})


def test_messy_exports_run_as_they_are(tmp_path):
    customers = tmp_path / "Kunden 2024.csv.gz"
    rows = "".join(f'K{number};Köln;{number},5;"{("ja", "nein")[number % 3 == 0]}"\n' for number in range(ROWS))
    customers.write_bytes(gzip.compress(f"# Export\n# 2024\nKunden Nr;Straße;Größe;label\n{rows}".encode()))
    calls = tmp_path / "Anrufe.csv"
    rows = "".join(f"K{number};K{number // 2};dünn\n" for number in range(ROWS))
    calls.write_text(f"von;an;Güte\n{rows}", encoding="cp1252")
    draft = draft_config([str(customers), str(calls)], form={"encoding": "cp1252"})
    assert not draft.stops
    assert content_of(draft.text)["graph"]["formats"] == {"edges": {"encoding": "cp1252"}}
    graph = content_of(draft.text)["graph"]
    assert (graph["id"], {graph["src"], graph["dst"]}, graph["features"]) == ("Kunden Nr", {"von", "an"}, ["Größe"])
    assert "test.accuracy" in run_draft(draft.text, tmp_path)


def test_all_tables_of_a_database_become_a_graph_whose_ids_pandas_left_without_a_name(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute('CREATE TABLE "Käufer" ("Unnamed: 0" INTEGER, name TEXT, age INTEGER, churned TEXT)')
        connection.execute('CREATE TABLE "orders" (buyer_id INTEGER, seller_id INTEGER, amount REAL)')
        buyers = [(number, f"n{number}", number % 7, ("yes", "no")[number % 2]) for number in range(ROWS)]
        connection.executemany('INSERT INTO "Käufer" VALUES (?, ?, ?, ?)', buyers)
        orders = [(number // 2, (ROWS - 1 - number) // 2, number / 2) for number in range(ROWS)]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
        connection.commit()
    draft = draft_config([str(tmp_path / "shop.db")])
    assert not draft.stops
    graph = content_of(draft.text)["graph"]
    assert graph["id"] == "Unnamed: 0"
    assert graph["nodes"] == f"{tmp_path}/shop.db#Käufer"
    assert "test.accuracy" in run_draft(draft.text, tmp_path)


def test_a_table_without_a_header_is_asked_about(tmp_path):
    (tmp_path / "e.csv").write_text("1,2\n2,3\n")
    with pytest.raises(TableError, match=r"its first line is a row: 1, 2.*graph\.formats"):
        draft_config([str(tmp_path / "e.csv")])


def test_an_option_says_what_tables_do_not_show(tmp_path):
    nodes = write(
        tmp_path,
        "nodes",
        {"code": ids_of("N"), "key": range(ROWS), "old_key": range(ROWS), "risk": ["hi", "lo"] * (ROWS // 2)},
    )
    links = write(tmp_path, "links", {"a": ids_of("N"), "b": ids_of("N")[::-1], "c": ids_of("N")})
    draft = draft_config([nodes, links], ids=["nodes.code"], label="risk", ends=[("a", "c")])
    graph = content_of(draft.text)["graph"]
    assert (graph["id"], graph["src"], graph["dst"], graph["label"]) == ("code", "a", "c", "risk")
    assert not draft.stops


def test_rows_with_ids_that_name_two_small_tables_are_asked_about(tmp_path):
    goods = {"good_id": ids_of("G", 300), "kind_id": ["K0", "K1"] * 150, "make_id": ["M0", "M1", "M2"] * 100}
    more = {"price": range(300), "label": ["hi", "lo", "lo"] * 100}
    kinds = write(tmp_path, "kinds", {"kind_id": ["K0", "K1"], "tax": [7, 19]})
    makes = write(tmp_path, "makes", {"make_id": ["M0", "M1", "M2"], "age": [1, 2, 9]})
    tables = [write(tmp_path, "goods", goods | more), kinds, makes]
    with pytest.raises(ConfigError, match=r"may be edges .*--ends kind_id,make_id for edges, --id goods.good_id for"):
        draft_config(tables)
    draft = draft_config(tables, ids=["goods.good_id"])
    assert not draft.stops
    assert content_of(draft.text)["graph"]["edges"].keys() == {"goods__kind_id__kinds", "goods__make_id__makes"}
    assert (
        "kinds__goods__makes" in content_of(draft_config(tables, ends=[("kind_id", "make_id")]).text)["graph"]["edges"]
    )


def test_each_fix_for_rows_with_three_foreign_keys_works(tmp_path):
    """Finds proposals that lose the third table."""
    keys: dict[str, Sequence[Any]] = {"visit_id": range(60)}
    keys |= {"man_id": ["MAN0", "MAN1"] * 30, "doc_id": ["DOC0", "DOC1"] * 30, "drug_id": ["DRUG0", "DRUG1"] * 30}
    tables = [
        write(tmp_path, each, {f"{each}_id": [f"{each}0".upper(), f"{each}1".upper()]})
        for each in ("man", "doc", "drug")
    ]
    tables.append(write(tmp_path, "visits", keys))
    with pytest.raises(
        ConfigError, match=r"--id visits.visit_id for nodes .*--ends man_id,doc_id .*without the tables drug"
    ):
        draft_config(tables, label="none")
    with pytest.raises(
        ConfigError, match=r"'drug_id' of .*visits.csv holds the ids of .*drug.csv.*--id visits.visit_id"
    ):
        draft_config(tables, label="none", ends=[("man_id", "doc_id")])
    made = content_of(draft_config(tables, label="none", ids=["visits.visit_id"]).text)
    assert made["graph"]["edges"].keys() == {"visits__man_id__man", "visits__doc_id__doc", "visits__drug_id__drug"}
    draft_config([tables[0], tables[1], tables[3]], label="none", ends=[("man_id", "doc_id")])


def test_foreign_keys_with_leading_zeros_are_found_as_text_is(tmp_path):
    """Finds such keys read as numbers, and months (01 is not 0001) taken for keys."""
    doctors = write(tmp_path, "doctors", {"doctor_id": [f"{row:04d}" for row in range(1, 13)], "field": ["a", "b"] * 6})
    months = [f"{1 + row % 12:02d}" for row in range(ROWS)]
    columns = {"patient_id": range(ROWS), "age": range(ROWS), "medic": [f"00{each}" for each in months]}
    patients = write(tmp_path, "patients", columns | {"month": months, "label": ["x", "y"] * (ROWS // 2)})
    draft = draft_config([patients, doctors])
    assert not draft.stops
    graph = content_of(draft.text)["graph"]
    assert graph["edges"].keys() == {"patients__medic__doctors"}
    assert graph["features"]["patients"] == ["age", "month"]
    run_draft(draft.text, tmp_path)


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
    tables = [write(tmp_path, "nodes", nodes), write(tmp_path, "edges", edges or {"src": [0, 1], "dst": [1, 0]})]
    with pytest.raises(ConfigError, match=said):
        draft_config(tables, **options)


def test_rows_that_name_each_other_are_nodes_with_a_relation_for_each_key(tmp_path):
    """Finds people read as edges between their departments and their towns."""
    people: dict[str, Sequence[Any]] = {"person_id": range(100, 100 + ROWS), "age": range(ROWS)}
    people |= {"department_id": [1, 2, 3] * (ROWS // 3), "town_id": ["T1", "T2"] * (ROWS // 2)}
    people |= {"manager_id": ["" if row < 6 else f"{100 + row % 6}.0" for row in range(ROWS)]}
    tables = [
        write(tmp_path, "people", people | {"label": ["x", "y"] * (ROWS // 2)}),
        write(tmp_path, "departments", {"department_id": [1, 2, 3], "size": [4, 9, 5]}),
        write(tmp_path, "towns", {"town_id": ["T1", "T2"], "size": [4, 9]}),
    ]
    draft = draft_config(tables)
    assert not draft.stops
    graph = content_of(draft.text)["graph"]
    assert graph["target"] == "people"
    assert {*graph["edges"]} == {
        f"people__{key}_id__{to}"
        for key, to in (("manager", "people"), ("department", "departments"), ("town", "towns"))
    }
    assert "# rows without one of the ends are no edges: 10%" in draft.text


def test_the_index_that_pandas_writes_is_no_key_of_another_table(tmp_path):
    ids = [1000 + 7 * row % ROWS for row in range(ROWS)]
    papers = write(
        tmp_path,
        "papers",
        {"": range(ROWS), "paper": ids, "year": range(ROWS), "label": [1.0, 2.0, ""] * (ROWS // 3)},
    )
    citations = write(tmp_path, "citations", {"": range(ROWS), "citing": ids, "cited": ids[9:] + ids[:9]})
    graph = content_of(draft_config([citations, papers]).text)["graph"]
    assert (graph["nodes"], graph["edges"], graph["id"]) == (papers, citations, "paper")
    assert graph["features"] == ["year"]


def test_orders_without_a_customer_are_no_edges_and_a_key_has_the_name_of_the_ids_it_holds(tmp_path):
    users = write(tmp_path, "users", {"user_id": ids_of("u"), "age": range(ROWS)})
    goods = tmp_path / "goods.tsv"  # whose ids are called as those of no table are
    goods.write_text("sku\tprice\n" + "".join(f"{each}\t{number}\n" for number, each in enumerate(ids_of("s"))))
    orders: dict[str, Sequence[Any]] = {"user_id": ["" if row % 4 == 0 else f"u{row:03d}" for row in range(ROWS)]}
    orders |= {"sku": ids_of("s"), "label": ["yes", "no", "no"] * (ROWS // 3)}
    draft = draft_config([users, str(goods), write(tmp_path, "orders", orders)])
    assert not draft.stops
    assert "{table: " in draft.text
    assert "src: user_id, dst: sku}  # rows without one of the ends are no edges: 25%" in draft.text
    run_draft(draft.text, tmp_path)


def test_text_ids_are_found_by_their_values_and_by_words_for_relatives(tmp_path):
    """Finds ids and ends in the words of another language, and a parent part that becomes a category."""
    codes = ids_of("DE")
    parts: dict[str, Sequence[Any]] = {"iban": codes, "parent": ["", *codes[:-1]], "size": range(ROWS)}
    parts |= {"label": ["x", "y"] * (ROWS // 2)}
    pays = write(tmp_path, "pays", {"von iban": codes, "nach iban": codes[5:] + codes[:5]})
    draft = draft_config([write(tmp_path, "konten", parts), pays])
    assert not draft.stops
    graph = content_of(draft.text)["graph"]
    assert {*graph["edges"]} == {"konten__pays__konten", "konten__parent__konten"}
    assert graph["id"] == "iban"
    assert graph["features"] == {"konten": ["size"]}


@pytest.mark.parametrize("name", ["no", "2024", "null", "the goods"])
def test_names_of_tables_and_columns_that_yaml_and_shells_read_otherwise_are_quoted(tmp_path, name):
    columns = {
        f"{name}: id": ids_of("G", 300),
        "kind no: id": ["K0", "K1"] * 150,
        "make's id": ["M0", "M1", "M2"] * 100,
    }
    tables = [
        write(tmp_path, name, columns | {"price": range(300), "label": ["hi", "lo", "lo"] * 100}),
        write(tmp_path, "kinds", {"kind no: id": ["K0", "K1"], "tax": [7, 19]}),
        write(tmp_path, "makes", {"make's id": ["M0", "M1", "M2"], "age": [1, 2, 9]}),
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
    ids = ids_of("p")
    replies = ["" if row < 9 or row % 5 == 0 else ids[row // 3] for row in range(ROWS)]
    columns = {"post_id": ids, "user_id": [f"u{row % 7:03d}" for row in range(ROWS)], column: replies}
    return write(folder, "posts", columns | {"words": range(ROWS), "label": ["x", "y"] * (ROWS // 2)})


@pytest.mark.parametrize("column", ["reply_to", "reply_to_id", "mgr", "successor"])
def test_rows_that_hold_ids_of_their_own_table_are_nodes_whatever_the_column_is_called(tmp_path, column):
    """Finds a self-reference that becomes a category, or that makes the rows edges to a type without a table."""
    users = write(tmp_path, "users", {"user_id": ids_of("u", 7), "age": range(7)})
    posts = _posts(tmp_path, column)
    graph = content_of(draft_config([users, posts]).text)["graph"]
    assert {*graph["edges"]} == {f"posts__{column}__posts", "posts__user_id__users"}
    assert graph["features"] == {"users": ["age"], "posts": ["words"]}
    for ends in ([], [("post_id", column)]):
        alone = content_of(draft_config([posts], ends=ends).text)["graph"]
        assert {*alone["edges"]} == {f"posts__{column}__posts"}


def test_a_column_that_repeats_the_ids_refers_to_no_other_row(tmp_path):
    copied = write_accounts(tmp_path, IBAN=ids_of("A"))
    assert "edges" in (graph := content_of(draft_config([copied, write_payments(tmp_path)]).text)["graph"])
    assert (graph["id"], graph["nodes"]) == ("account_id", copied)


@pytest.mark.parametrize(
    ("ids", "ends"),
    [(ids_of("X"), ("origin", "dest")), (ids_of("X"), ("von_ort", "nach_ort")), (range(7, 67), ("origin", "dest"))],
)
def test_the_column_that_holds_the_ends_is_the_id_and_not_the_one_called_name(tmp_path, ids, ends):
    names = [f"Airport {each}" for each in ids]
    places = write(tmp_path, "places", {"code": ids, "name": names, "land": ["D", "F"] * (ROWS // 2)})
    trips = dict(zip(ends, ([*ids], [*ids][::-1]), strict=True)) | {"label": ["x", "y"] * (ROWS // 2)}
    draft = draft_config([places, write(tmp_path, "trips", trips)])
    assert not draft.stops
    assert content_of(draft.text)["graph"]["id"] == "code"


def test_ends_that_the_user_names_and_no_table_holds_are_asked_about(tmp_path):
    links = write(tmp_path, "links", {"a": ids_of("N"), "b": ids_of("N")[::-1]})
    with pytest.raises(ConfigError, match="no table holds the nodes whose ids are in column 'a'"):
        draft_config([write_accounts(tmp_path), links], ends=[("a", "b")])


def test_ids_of_tables_with_foreign_keys_are_found_by_the_tables_that_hold_them(tmp_path):
    """Finds the number of a building taken for the id of a department, and a course without an id."""
    departments: dict[str, Sequence[Any]] = {"dept_code": ids_of("D", 8), "building_no": range(3, 27, 3)}
    courses = {"course_code": ids_of("C", 16), "title": ids_of("T", 16), "dept_code": ids_of("D", 8) * 2}
    students = {"student_id": ids_of("S"), "dept_code": (ids_of("D", 8) * 8)[:ROWS], "label": ["x", "y"] * (ROWS // 2)}
    marks = {"student_id": ids_of("S") * 2, "course_code": (ids_of("C", 16) * 8)[: 2 * ROWS]}
    tables = [
        write(tmp_path, name, columns)
        for name, columns in (("stud", students), ("cour", courses), ("marks", marks), ("dept", departments))
    ]
    graph = content_of(draft_config(tables).text)["graph"]
    assert graph["id"] == {"stud": "student_id", "cour": "course_code", "dept": "dept_code"}
    assert {*graph["edges"]} == {"stud__marks__cour", "stud__dept_code__dept", "cour__dept_code__dept"}
    assert {*content_of(draft_config([tables[0], tables[3]]).text)["graph"]["edges"]} == {"stud__dept_code__dept"}


def test_two_tables_of_the_same_nodes_are_said_to_be_so(tmp_path):
    numbers = range(100, 100 + ROWS)
    tables = [
        write(tmp_path, "sizes", {"txId": numbers, "size": range(ROWS)}),
        write(tmp_path, "classes", {"txId": numbers, "class": ["a", "b"] * (ROWS // 2)}),
        write(tmp_path, "flows", {"txId1": numbers, "txId2": [*numbers][::-1]}),
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
        claims = [(row, row % 20, row / 2, ("yes", "no")[row % 2]) for row in range(ROWS)]
        connection.executemany("INSERT INTO claims VALUES (?, ?, ?, ?)", claims)
        connection.execute("INSERT INTO schema_migrations VALUES ('2021')")
        connection.commit()
    draft = draft_config([place])
    assert not draft.stops
    assert {*content_of(draft.text)["graph"]["nodes"]} == {"persons", "claims"}
    assert any("schema_migrations: left out" in line for line in draft.told)
    with pytest.raises(ConfigError, match=r"no column of .*schema_migrations"):
        draft_config([f"{place}#{name}" for name in ("persons", "claims", "schema_migrations")])
