"""Files as other programs write them: each is read to the right graph, or asked about; each has siblings.

A test of a form finds what a test of its parts does not: that what was found in the file fits what reads it.
"""

import gzip
import sqlite3
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.datasets import GraphTables, import_spec
from gnnflow.graph.errors import GnnflowError

PAIRS = [(number % 6, (number * 5 + 1) % 6) for number in range(12)]
SNAP = "# Directed graph\n# FromNodeId\tToNodeId\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS)
RATINGS = "userId,movieId,rating,timestamp\n1,1,4.5,100\n1,3,3.0,200\n2,1,5.0,300\n3,2,1.5,400\n"
MOVIES = 'movieId,title,genres\n1,"Toy Story, The (1995)",Animation|Comedy\n2,Heat,Drama\n3,Jumanji,Comedy|Drama\n'
PEOPLE = (
    "accountId:ID(Account),name,score:float,tags:string[],:LABEL\n"
    "1,Ann,1.5,a;b,Person\n2,Bob,2,b,Person;Vip\n3,Ltd,,,Firm\n"
)
PAYMENTS = ":START_ID(Account),amount:float,:END_ID(Account),:TYPE\n1,10.5,2,PAYS\n2,3,3,PAYS\n1,1,3,OWNS\n"


@pytest.fixture
def write(tmp_path):
    """Write files below a folder: text as UTF-8, gzipped by name. Returns the folder, or the only file."""

    def written(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            raw = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(tmp_path / next(iter(files)) if len(files) == 1 and "/" not in next(iter(files)) else tmp_path)

    return written


def counts(tables):
    """Return the numbers of nodes and of edges; of typed tables by type and relation."""
    if isinstance(tables, GraphTables):
        return tables.nodes.num_rows, tables.edges.num_rows
    return (
        {kind: nodes.num_rows for kind, nodes in tables.nodes.items()},
        {name: edges.num_rows for name, edges in tables.edges.items()},
    )


def read(spec, **options):
    said = []
    return import_spec(spec, options=options, tell=said.append), " ".join(said)


@pytest.mark.parametrize(
    ("name", "content", "expected", "found"),
    [
        ("snap.txt", SNAP, (6, 12, ["src", "dst"]), "separator tab; no header"),
        ("snap.txt.gz", SNAP, (6, 12, ["src", "dst"]), "separator tab"),
        ("windows.txt", SNAP.replace("\n", "\r\n"), (6, 12, ["src", "dst"]), "separator tab"),
        ("later.txt", SNAP + "# more\n0\t5\n", (6, 13, ["src", "dst"]), "comments #"),
        ("konect.tsv", "% sym\n% 3 2 2\n1 2 1\n2 1 4\n", (2, 2, ["src", "dst", "f2"]), "separator space"),
        ("weights.txt", "0 1 0.5\n1 2 0.25\n", (3, 2, ["src", "dst", "f2"]), "separator space"),
        ("aligned.txt", "  0   1  0.5\n 10  2 0.25 \n", (4, 2, ["src", "dst", "f2"]), "separator spaces"),
        ("tabs.txt", "0\t1  0.5\r\n10 \t2 0.25\r\n", (4, 2, ["src", "dst", "f2"]), "separator spaces"),
        ("utf16.csv", "src,dst\nä,ö\nö,ü\n".encode("utf-16"), (3, 2, ["src", "dst"]), "utf-16"),
        ("mark.csv", "\ufeffsource;target\r\nä;ö\r\n", (2, 1, ["src", "dst"]), "separator semicolon"),
        ("quoted.csv", 'src,dst,n\n"a,1","b ""x""",2\n"b ""x""","a,1",3\n', (2, 2, ["src", "dst", "n"]), ""),
        ("single.csv", "'src','dst'\n'a,1','it''s'\n'it''s','b'\n", (3, 2, ["src", "dst"]), "quotes '"),
        ("double.dat", "1::2::5\n2::3::4\n", (3, 2, ["src", "dst", "f2"]), "separator ::"),
        ("pipes.csv", "src|dst|n\n1|2|a,b\n2|3|c\n", (3, 2, ["src", "dst", "n"]), "separator pipe"),
        ("text.csv", "ann,bob,1\nbob,cid,20\n", (3, 2, ["src", "dst", "f2"]), "no header"),
        ("named.csv", "src,dst,0,1\n1,2,3,4\n", (2, 1, ["src", "dst", "0", "1"]), ""),
    ],
)
def test_the_form_of_an_edge_list_is_found(write, name, content, expected, found):
    tables, said = read(f"csv:{write({name: content})}")
    assert (*counts(tables), tables.edges.column_names) == expected
    assert found in said


@pytest.mark.parametrize("name", ["commas.csv", "commas.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_decimal_commas_are_numbers_and_ids_and_text_stay(write, name, encoding):
    text = 'von;source;target;weight;n;note\nMüller;"1,5";2;1.234,5;7;"a;b"\nx;2;"1,5";-0,25;1.000;1,5x\n'
    chosen = {"encoding": "cp1252"} if encoding == "cp1252" else {}
    tables, said = read(f"csv:{write({name: text.encode(encoding)})}", **chosen)
    assert tables.edges.to_pydict() == {
        "src": ["1,5", "2"],
        "dst": ["2", "1,5"],
        "von": ["Müller", "x"],
        "weight": [1234.5, -0.25],
        "n": [7, 1000],
        "note": ["a;b", "1,5x"],
    }
    assert "decimal commas in weight, n" in said


@pytest.mark.parametrize(
    ("text", "fix", "options"),
    [
        ("1,5;2,5\n3,5;4,5\n", "sep=comma or --option sep=semicolon", {"sep": "semicolon"}),
        ("1 2,5\n3 4,5\n", "sep=comma or --option sep=space", {"sep": "space"}),
        ("1|1|0,5\n1|2|0,5\n", "sep=comma or --option sep=pipe", {"sep": "pipe"}),
        ("src;dst;n\n1;2;1,234\n", "decimal=comma or --option decimal=point", {"decimal": "comma"}),
        ("src;dst;n\n1;2;1.234\n", "decimal=comma or --option decimal=point", {"decimal": "comma"}),
        ("src,dst\nM\xfcller,b\n".encode("latin-1"), "encoding=cp1252", {"encoding": "latin-1"}),
        ("a\tlikes\tb\nb\tknows\tc\n", "--ends SRC,DST", {"header": "no", "src": "0", "dst": "2"}),
        ("3 2\n0 1\n1 2\n", "counts=true where it has", {"counts": "yes"}),
        ("%%MatrixMarket matrix\n% c\n3 3 2\n1 2 0.5\n2 3 1\n", "counts=false where it is an edge", {"counts": "yes"}),
        ("1::7::5::978\n2::7::3::979\n", "--types NAME for one type, --types SRC,DST", {"types": "user,movie"}),
        ("% bip unweighted\n1 2\n2 2\n", "--types NAME for one type, --types SRC,DST", {"types": "user,group"}),
        ("# c\n1,2\n#3,4\n", "quote the field if it is a row", None),
        ("#node1\tnode2\na\tb\n", "its '#' if it is the header", None),
    ],
)
def test_a_form_that_cannot_be_known_is_asked_for(write, text, fix, options):
    place = write({"e.csv": text})
    with pytest.raises(GnnflowError) as raised:
        import_spec(f"csv:{place}")
    assert fix in str(raised.value)
    if options is not None:
        edges = import_spec(f"csv:{place}", options=options).edges
        assert all(table.num_rows for table in (edges.values() if isinstance(edges, dict) else [edges]))


@pytest.mark.parametrize(
    ("files", "nodes"),
    [
        ({"ratings.csv": RATINGS, "movies.csv": MOVIES}, "movies.csv"),
        ({"ratings.csv.gz": "\ufeff" + RATINGS, "movies.csv.gz": MOVIES.replace("\n", "\r\n")}, "movies.csv.gz"),
        ({"ratings.tsv": RATINGS.replace(",", "\t"), "movies.csv": MOVIES}, "movies.csv"),
    ],
)
def test_ratings_join_users_and_the_films_of_another_file(write, files, nodes):
    folder = write(files)
    tables, said = read(f"csv:{folder}/{next(iter(files))}", nodes=f"{folder}/{nodes}")
    assert counts(tables) == ({"user": 3, "movie": 3}, {"user__to__movie": 4})
    assert tables.edges["user__to__movie"].column_names == ["src", "dst", "rating", "timestamp"]
    films = tables.nodes["movie"].to_pydict()
    assert films["genres"] == [["Animation", "Comedy"], ["Drama"], ["Comedy", "Drama"]]
    assert films["title"][0] == "Toy Story, The (1995)"
    assert "lists in genres" in said


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files,
        lambda files: {f"{name}.gz": text.replace("\n", "\r\n") for name, text in files.items()},
        lambda _: {
            "people-header.csv": "\ufeff" + PEOPLE.split("\n", 1)[0] + "\n",
            "people.csv": PEOPLE.split("\n", 1)[1],
            "pay.csv": PAYMENTS,
        },
    ],
)
def test_an_export_of_neo4j_has_labels_as_types(write, change):
    tables, _ = read(f"neo4j:{write(change({'people.csv': PEOPLE, 'pay.csv': PAYMENTS}))}")
    assert counts(tables) == (
        {"Firm": 1, "Person": 2},
        {"Person__PAYS__Person": 1, "Person__PAYS__Firm": 1, "Person__OWNS__Firm": 1},
    )
    assert tables.nodes["Person"].to_pydict() == {
        "id": [1, 2],
        "name": ["Ann", "Bob"],
        "score": [1.5, 2.0],
        "tags": [["a", "b"], ["b"]],
    }
    assert tables.edges["Person__PAYS__Person"].to_pydict() == {"src": [1], "dst": [2], "amount": [10.5]}


def ogb(**more):
    return {
        "raw/edge.csv.gz": "0,1\n1,2\n2,3\n",
        "raw/num-node-list.csv.gz": "4\n",
        "raw/num-edge-list.csv.gz": "3\n",
        "raw/node-feat.csv.gz": "0.5,1\n1,2\n2,3\n3,4\n",
        "raw/node-label.csv.gz": "1\n0\n1\n0\n",
        "raw/node_year.csv.gz": "2010\n2011\n2012\n2013\n",
        "split/time/train.csv.gz": "0\n1\n",
        "split/time/valid.csv.gz": "2\n",
        "split/time/test.csv.gz": "3\n",
        **more,
    }


def test_a_folder_of_ogb_is_read_with_its_splits(write):
    tables, said = read(f"ogb:{write(ogb())}")
    assert counts(tables) == (4, 3)
    assert tables.nodes["split"].to_pylist() == ["train", "train", "valid", "test"]
    assert tables.nodes["label"].to_pylist() == [1, 0, 1, 0]
    assert tables.nodes.column_names == ["id", "x", "node_year", "label", "split"]
    assert "splits from split/time" in said


def test_siblings_of_a_folder_of_ogb(write):
    files = ogb(**{"raw/edge_weight.csv.gz": "1\n2\n3\n", "raw/node-label.csv.gz": "1.0\nnan\n1.0\n0.0\n"})
    files = {name: text for name, text in files.items() if not name.startswith(("split", "raw/node-feat"))}
    tables, _ = read(f"ogb:{write(files)}")
    assert tables.nodes["label"].to_pylist() == [1, -1, 1, 0]
    assert tables.edges["weight"].to_pylist() == [1.0, 2.0, 3.0]


def test_a_typed_folder_of_ogb_has_a_table_for_each_relation(write):
    files = {
        "raw/num-node-dict.csv.gz": "author,paper\n2,3\n",
        "raw/relations/author___writes___paper/edge.csv.gz": "0,0\n1,2\n",
        "raw/relations/paper___cites___paper/edge.csv.gz": "0,1\n",
        "raw/node-feat/paper/node-feat.csv.gz": "1,2\n3,4\n5,6\n",
        "raw/node-label/paper/node-label.csv.gz": "0\n1\n0\n",
        "split/time/paper/train.csv.gz": "0\n",
        "split/time/paper/valid.csv.gz": "1\n",
        "split/time/paper/test.csv.gz": "2\n",
    }
    tables, _ = read(f"ogb:{write(files)}")
    assert counts(tables) == ({"author": 2, "paper": 3}, {"author__writes__paper": 2, "paper__cites__paper": 1})
    assert tables.nodes["paper"]["split"].to_pylist() == ["train", "valid", "test"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split/sales/train.csv.gz": "0\n"}, "--option split=NAME"),
        ({"raw/num-node-list.csv.gz": "2\n2\n"}, "holds 2 graphs"),
        ({"split/time/test.csv.gz": "9\n"}, "rows beyond the 4 nodes"),
    ],
)
def test_a_folder_of_ogb_that_cannot_be_read_says_why(write, change, message):
    with pytest.raises(GnnflowError, match=message):
        import_spec(f"ogb:{write(ogb(**change))}")


@pytest.mark.parametrize(("prefix", "suffix", "end"), [("elliptic_txs_", "", "\n"), ("", ".gz", "\r\n")])
def test_transactions_of_unknown_class_are_unlabelled_and_split_by_their_step(write, prefix, suffix, end):
    features = "".join(f"{100 + step},{step},0.5,-1.25{end}" for step in range(1, 11))
    classes = f"txId,class{end}" + "".join(
        f"{100 + step},{('1', '2', 'unknown')[step % 3]}{end}" for step in range(1, 11)
    )
    files = {
        f"{prefix}features.csv{suffix}": features,
        f"{prefix}classes.csv{suffix}": classes,
        f"{prefix}edgelist.csv{suffix}": f"txId1,txId2{end}101,102{end}109,110{end}",
    }
    tables, _ = read(f"elliptic:{write(files)}")
    nodes = tables.nodes.to_pydict()
    assert counts(tables) == (10, 2)
    assert nodes["label"] == [0, None, 1] * 3 + [0]
    assert nodes["split"] == ["train", None, "train", "train", None, "train", "valid", None, "test", "test"]
    assert nodes["time_step"] == list(range(1, 11))
    assert nodes["x"][0] == [0.5, -1.25]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\t_hypernym\tb\nb\t_hypernym\tc\na\t/has part/of\tc\n", {"hypernym": 2, "has_part_of": 1}),
        ("head,relation,tail\r\n1,r1,2\r\n2,r2,3\r\n1,r1,3\r\n", {"r1": 2, "r2": 1}),
        ("\ufeffsubject;predicate;object\n1;r1;2\n2;r2;3\n1;r1;3\n", {"r1": 2, "r2": 1}),
    ],
)
@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz"])
def test_triples_have_a_table_for_each_relation(write, text, expected, name):
    tables, _ = read(f"triples:{write({name: text})}")
    assert counts(tables) == ({"node": 3}, {f"node__{kind}__node": rows for kind, rows in expected.items()})


def test_triples_of_a_folder_have_its_splits(write):
    files = {"train.txt": "a\tr\tb\nb\ts\tc\n", "valid.txt": "a\tr\tc\n", "test.txt": "1\tr\ta\n"}
    tables, _ = read(f"triples:{write(files)}")
    assert tables.edges["node__r__node"].to_pydict() == {
        "src": ["a", "a", "1"],
        "dst": ["b", "c", "a"],
        "split": ["train", "valid", "test"],
    }


@pytest.mark.parametrize(("name", "end"), [("e.jsonl", "\n"), ("e.ndjson", "\r\n"), ("e.jsonl.gz", "\n")])
def test_json_lines_are_a_table_of_edges(write, name, end):
    lines = ['{"source": "2024-01-01", "target": "b", "weight": 1}', '{"source": "b", "target": "c", "weight": 2.5}']
    tables, _ = read(f"jsonl:{write({name: end.join(lines) + end})}")
    assert counts(tables) == (3, 2)
    assert tables.edges.to_pydict() == {"src": ["2024-01-01", "b"], "dst": ["b", "c"], "weight": [1.0, 2.5]}


def test_a_table_of_sqlite_is_named(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE users (user_id INTEGER, age INTEGER)")
        connection.execute("CREATE TABLE orders (user_id INTEGER, item_id TEXT, amount REAL)")
        connection.executemany("INSERT INTO users VALUES (?, ?)", [(1, 30), (2, None)])
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(1, "7", 2.5), (2, "8", None), (1, "8", 1)])
        connection.commit()
    spec = f"sqlite:{tmp_path / 'shop.db'}"
    tables, _ = read(spec, edges="orders", nodes="users")
    assert counts(tables) == ({"user": 2, "item": 2}, {"user__to__item": 3})
    assert tables.nodes["user"].to_pydict() == {"id": [1, 2], "age": [30, None]}
    with pytest.raises(GnnflowError, match=r"has 2 tables: users, orders\. Name one: --edges NAME"):
        import_spec(spec)
    with pytest.raises(GnnflowError, match="has no table 'sales': users, orders"):
        import_spec(spec, options={"edges": "sales"})


def test_a_parquet_table_of_edges_keeps_its_types(tmp_path):
    pq.write_table(pa.table({"from": ["1", "2"], "to": ["2", "3"], "n": [1, 2]}), tmp_path / "e.parquet")
    tables, _ = read(f"table:{tmp_path / 'e.parquet'}")
    assert tables.edges.to_pydict() == {"src": ["1", "2"], "dst": ["2", "3"], "n": [1, 2]}


EDGES = pa.table({"buyer_id": [1, 2, 1], "item_id": ["a", "b", "b"], "amount": [1.5, 2.5, 3.5]})
EXPECTED = ({"buyer": 2, "item": 2}, {"buyer__to__item": 3})


def test_a_sheet_of_excel_is_a_table(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs gnnflow[excel]")
    book = openpyxl.Workbook()
    for row in [EDGES.column_names, *(list(row.values()) for row in EDGES.to_pylist()), [None] * 3]:
        book.active.append(row)
    book.save(tmp_path / "e.xlsx")
    tables, _ = read(f"excel:{tmp_path / 'e.xlsx'}")
    assert counts(tables) == EXPECTED
    book.create_sheet("notes")
    book.save(tmp_path / "e.xlsx")
    with pytest.raises(GnnflowError, match="has 2 sheets: Sheet, notes"):
        import_spec(f"excel:{tmp_path / 'e.xlsx'}")
    assert counts(read(f"excel:{tmp_path / 'e.xlsx'}", edges="Sheet")[0]) == EXPECTED


def test_a_table_of_duckdb_is_a_table(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="needs gnnflow[duckdb]")
    with duckdb.connect(str(tmp_path / "e.duckdb")) as connection:
        connection.execute("CREATE TABLE orders (buyer_id INTEGER, item_id VARCHAR, amount DOUBLE)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", [list(row.values()) for row in EDGES.to_pylist()])
    assert counts(read(f"duckdb:{tmp_path / 'e.duckdb'}")[0]) == EXPECTED


@pytest.mark.keeps("descriptors", "threads")  # its runtime in Rust stays
def test_the_current_rows_of_a_delta_table_are_read(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="needs gnnflow[delta]")
    deltalake.write_deltalake(str(tmp_path / "t"), EDGES)
    deltalake.write_deltalake(str(tmp_path / "t"), EDGES.slice(0, 2), mode="overwrite")
    assert counts(read(f"delta:{tmp_path / 't'}")[0])[1] == {"buyer__to__item": 2}


@pytest.mark.keeps("threads")  # its pool stays
def test_the_current_rows_of_an_iceberg_table_are_read(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.memory", reason="needs gnnflow[iceberg]")
    catalog = catalogs.InMemoryCatalog("c", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=EDGES.schema)
    table.append(EDGES)
    table.overwrite(EDGES.slice(0, 2))
    assert counts(read(f"iceberg:{tmp_path / 'n' / 't'}")[0])[1] == {"buyer__to__item": 2}


@pytest.mark.keeps("descriptors", "threads")  # its runtime in Rust stays
def test_the_current_rows_of_a_lance_table_are_read(tmp_path):
    lance = pytest.importorskip("lance", reason="needs gnnflow[lance]")
    lance.write_dataset(EDGES, str(tmp_path / "t.lance"))
    lance.dataset(str(tmp_path / "t.lance")).delete("amount > 3")
    assert counts(read(f"lance:{tmp_path / 't.lance'}")[0])[1] == {"buyer__to__item": 2}


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("excel", "openpyxl"),
        ("duckdb", "duckdb"),
        ("delta", "deltalake"),
        ("iceberg", "pyiceberg.table"),
        ("lance", "lance"),
    ],
)
def test_a_missing_library_names_its_extra_and_another_way(monkeypatch, kind, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(GnnflowError, match=rf"pip install 'gnnflow\[{kind}\]'\), or (save|write) .*(CSV|Parquet)"):
        import_spec(f"{kind}:somewhere")


GEXF = """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2"><graph defaultedgetype="{kind}">
<attributes class="node"><attribute id="0" title="age" type="integer"/></attributes>
<nodes><node id="10" label="{first}"><attvalues><attvalue for="0" value="30"/></attvalues></node>
<node id="11" label="bob"><attvalues><attvalue for="0" value="40"/></attvalues></node>
<node id="12" label="bob2"><attvalues><attvalue for="0" value="50"/></attvalues></node></nodes>
<edges><edge id="0" source="10" target="11" weight="2"/><edge id="1" source="11" target="12"/></edges></graph></gexf>
"""
PAJEK = '*Vertices 3\n1 "ann" 0.1 0.2 0.5\n2 "bob b" 0.3 0.4 0.5\n3 "cid"\n*{kind}\n1 2 2.5\n2 3 1\n'


@pytest.mark.parametrize(
    ("name", "content", "expected", "ids"),
    [
        ("g.gexf", GEXF.format(kind="directed", first="ann"), (3, 2), ["ann", "bob", "bob2"]),
        ("g.gexf.gz", GEXF.format(kind="undirected", first="ann"), (3, 4), ["ann", "bob", "bob2"]),
        ("g.gexf", GEXF.format(kind="directed", first="bob"), (3, 2), ["10", "11", "12"]),
        ("g.net", PAJEK.format(kind="Arcs"), (3, 2), ["ann", "bob b", "cid"]),
        ("g.net.gz", PAJEK.format(kind="Edges"), (3, 4), ["ann", "bob b", "cid"]),
        ("g.paj", PAJEK.format(kind="arcs").replace("\n", "\r\n"), (3, 2), ["ann", "bob b", "cid"]),
        ("g.adjlist", "# c\na b c\nb c\n", (3, 6), ["a", "b", "c"]),
        ("g.adjlist.gz", "a b c\nb c\n", (3, 6), ["a", "b", "c"]),
        ("g.multiline_adjlist", "a 2\nb\nc\nb 1\nc\n", (3, 6), ["a", "b", "c"]),
    ],
)
def test_files_of_graph_programs_are_read(write, name, content, expected, ids):
    pytest.importorskip("networkx", reason="needs gnnflow[networkx]")
    tables, _ = read(f"networkx:{write({name: content})}")
    assert (counts(tables), tables.nodes["id"].to_pylist()) == (expected, ids)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.gexf", '<!DOCTYPE x [<!ENTITY a "b">]><gexf/>', "declares a DOCTYPE"),
        ("g.net", '*Vertices 2\n1 "a"\n2 "a"\n*Edges\n1 2\n', r"names 1 nodes, and \*Vertices says 2"),
    ],
)
def test_files_of_graph_programs_that_would_lose_nodes_are_refused(write, name, content, message):
    pytest.importorskip("networkx", reason="needs gnnflow[networkx]")
    with pytest.raises(GnnflowError, match=message):
        import_spec(f"networkx:{write({name: content})}")
