import gzip

import pyarrow as pa
import pytest

from gnnflow.datasets import from_edge_csv
from gnnflow.graph.errors import GnnflowError, StorageError, TableError
from gnnflow.storage.tables import write_table


@pytest.fixture
def write(tmp_path):
    def written(text, name="edges.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return str(path)

    return written


def ends(tables):
    return tables.edges["src"].to_pylist(), tables.edges["dst"].to_pylist()


def test_columns_by_name_and_nodes_from_the_ends(write):
    path = write("when,from,to,calls\n1,7,3,2\n2,3,9,5\n")
    tables = from_edge_csv(path, src="from", dst="to", weight="calls")
    assert ends(tables) == ([7, 3], [3, 9])
    assert tables.edges.column_names == ["src", "dst", "when", "weight"]
    assert tables.nodes["id"].to_pylist() == [3, 7, 9]
    assert tables.nodes.column_names == ["id", "log_in_degree", "log_out_degree"]


@pytest.mark.parametrize("name", ["edges.txt", "edges.txt.gz"])
def test_public_edge_lists_have_comments_tabs_and_no_header(write, name):
    tables = from_edge_csv(write("# Nodes: 3\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n", name), sep="\t", header=False)
    assert ends(tables) == ([0, 1], [1, 2])
    assert ends(from_edge_csv(write("0\t1\n1\t2\n", name))) == ([0, 1], [1, 2])


@pytest.mark.parametrize(("time", "is_text"), [("2024-01-31", True), ("1.5", False), ("7", False)])
def test_a_time_in_text_is_left_an_attribute_and_how_to_take_it_is_said(write, time, is_text):
    said = []
    path = write(f"src,dst,date\n1,2,{time}\n")
    from_edge_csv(path, tell=said.append)
    assert said[1:] == [f"{path}: date is text; --option time=date takes text of ISO dates as times"] * is_text
    assert from_edge_csv(path, time="date").edges.column_names == ["src", "dst", "timestamp"]


def test_attributes_of_integers_beyond_64_bits_are_named_with_their_first(write):
    said, code = [], "12345678901234567890123"
    path = write(f"src,dst,code\n1,2,5\n{code},2,{code}\n")
    tables = from_edge_csv(path, tell=said.append)
    assert tables.edges["src"].to_pylist() == ["1", code]
    assert said[1].startswith(
        f"{path}: column 'code' holds integers beyond 64 bits, the first is '{code}' in {path}, row 1"
    )
    assert len(said) == 2


def test_ids_that_are_not_all_integers_are_text_letter_by_letter(write):
    tables = from_edge_csv(write("src,dst\n007,m1\n010,m1\n"))
    assert ends(tables) == (["007", "010"], ["m1", "m1"])
    assert tables.nodes["id"].to_pylist() == ["007", "010", "m1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":START_ID,amount,:END_ID\n1,10,2\n", {"src": [1], "dst": [2], "amount": [10]}),
        ("who:START_ID,:END_ID,n:int,x:IGNORE\n1,2,3,4\n", {"src": [1], "dst": [2], "n": [3]}),
        (":START_ID(P),:END_ID(P),:TYPE\n1,2,KNOWS\n", {"src": [1], "dst": [2], "type": ["KNOWS"]}),
        ("SRC,DST,WEIGHT,TIME\n1,2,0.5,9\n", {"src": [1], "dst": [2], "weight": [0.5], "timestamp": [9]}),
        ("to,from,date\n1,2,2024-01-01\n", {"src": [2], "dst": [1], "date": ["2024-01-01"]}),
        ('\ufeff"source";"target"\r\n"a b";c\r\n', {"src": ["a b"], "dst": ["c"]}),
        ("u\tv\n1\t2\n", {"src": [1], "dst": [2]}),
        ("# c\n0 1 7\n1 2 8\n", {"src": [0, 1], "dst": [1, 2], "f2": [7, 8]}),
        ("userId,movieId\n1,1\n", None),
    ],
)
def test_the_header_says_what_the_columns_are(write, text, expected):
    types = [] if expected else ["node"]
    for name in ("e.csv", "e.csv.gz"):
        assert from_edge_csv(write(text, name), types=types).edges.to_pydict() == (expected or {"src": [1], "dst": [1]})


def test_ids_of_two_things_give_nodes_of_two_types(write):
    tables = from_edge_csv(write("userId,movieId,rating,timestamp\n1,1,5,100\n2,m1,3,200\n"))
    assert {kind: nodes.to_pydict() for kind, nodes in tables.nodes.items()} == {
        "user": {"id": [1, 2]},
        "movie": {"id": ["1", "m1"]},
    }
    (edges,) = tables.edges.values()
    assert list(tables.edges) == ["user__to__movie"]
    assert edges.to_pydict() == {"src": [1, 2], "dst": ["1", "m1"], "rating": [5, 3], "timestamp": [100, 200]}


def test_types_that_the_caller_names_come_before_those_of_the_header(write):
    path = write("userId,movieId\n1,1\n")
    assert from_edge_csv(path, types=["person", "film"]).nodes.keys() == {"person", "film"}
    assert from_edge_csv(path, types=["node"]).nodes["id"].to_pylist() == [1]


def test_a_neo4j_type_is_a_relation(write):
    header = ":START_ID(Person),:TYPE,:END_ID(Movie)"
    tables = from_edge_csv(write(f"{header}\n1,SAW,1\n2,MADE,1\n3,SAW,2\n"))
    assert {name: edges.to_pydict() for name, edges in tables.edges.items()} == {
        "Person__SAW__Movie": {"src": [1, 3], "dst": [1, 2]},
        "Person__MADE__Movie": {"src": [2], "dst": [1]},
    }
    assert tables.nodes["Movie"]["id"].to_pylist() == [1, 2]


def test_a_header_whose_names_are_ids_too_is_asked_for(write):
    path = write("a,b\nb,c\nc,a\n")
    with pytest.raises(TableError, match=r"'a' and 'b', and other lines have both as ids.*header=false"):
        from_edge_csv(path)
    assert from_edge_csv(path, header=False).edges.num_rows == 3
    assert from_edge_csv(path, header=True).edges.num_rows == 2


@pytest.mark.parametrize(
    "header",
    ["account,amount,merchant", "paper,author", "id,friend_id", "src_a,src_b,dst_a,dst_b", "ann,bob", "x1,x2,x3"],
)
def test_ends_that_names_leave_open_are_asked_for(write, header):
    names = header.split(",")
    path = write(f"{header}\n{','.join('12345'[: len(names)])}\n")
    with pytest.raises(TableError, match=rf"are the ends of an edge: {', '.join(names)}\. Give --ends SRC,DST"):
        from_edge_csv(path)


@pytest.mark.parametrize("header", ["user_id,friend_id", "sender_account,receiver", ":START_ID(Person),:END_ID"])
def test_types_that_names_leave_open_are_asked_for(write, header):
    path = write(f"{header}\n1,2\n")
    with pytest.raises(TableError, match=r"nodes of one type or of two\. Give --types NAME"):
        from_edge_csv(path)
    assert from_edge_csv(path, types=["node"]).edges.to_pydict() == {"src": [1], "dst": [2]}


def test_node_tables_of_two_types_are_told_by_their_columns(write, tmp_path):
    users, films, other = (str(tmp_path / f"{name}.csv") for name in ("users", "films", "other"))
    write("userId,age\n1,30\n", "users.csv")
    write("movieId,title\n01,Heat\n", "films.csv")
    write("key,age\n1,30\n", "other.csv")
    path = write("userId,movieId\n1,01\n")
    tables = from_edge_csv(path, nodes=[films, users])
    assert tables.nodes["user"].to_pydict() == {"id": [1], "age": [30]}
    assert tables.nodes["movie"].to_pydict() == {"id": ["01"], "title": ["Heat"]}
    assert tables.edges["user__to__movie"].to_pydict() == {"src": [1], "dst": ["01"]}
    with pytest.raises(TableError, match=r"has no column 'userId' or 'movieId'; it has key, age"):
        from_edge_csv(path, nodes=other)
    with pytest.raises(TableError, match=r"is a second node table of user"):
        from_edge_csv(path, nodes=[users, users])


def test_a_node_table_decides_the_type_of_ids(write, tmp_path):
    nodes = str(tmp_path / "nodes.parquet")
    write_table(nodes, pa.table({"key": ["01", "02"], "x": [1.0, 2.0]}))
    tables = from_edge_csv(write("01,02\n"), header=False, nodes=nodes, node_id="key")
    assert ends(tables) == (["01"], ["02"])
    assert tables.nodes.column_names == ["id", "x"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n", {"src": "from"}, "has no column 'from'; it has a, b"),
        ("a,b\n1,2\n", {"dst": 5}, "has no column 5"),
        ("a,b\n1,2\n,3\n", {}, "column 'src' is empty in row 1"),
        ("a,b\nx,y\nz,\n", {}, "column 'dst' is empty in row 1"),
        ("a,b\n1,2\n1,2,3\n", {}, "line 3 has 3 fields, the header has 2"),
        ("a,b,src\n1,2,3\n", {"src": "a", "dst": "b"}, "two columns would have the name 'src'"),
        ("src,src\n1,2\n", {}, "two columns would have the name 'src'"),
        ("src\n1\n", {}, "has one column, 'src'"),
        (":START_ID,:END_ID,:TYPE\n1,2,\n", {}, "column 'type' is empty in row 0"),
        ("src,dst\n1,2\n", {"types": ["a", "b", "c"]}, "Give one name, or two: of sources and targets"),
    ],
)
def test_lines_that_do_not_fit_are_refused(write, text, options, message):
    with pytest.raises(GnnflowError, match=message):
        from_edge_csv(write(text), **options)


def test_a_node_table_may_have_files_of_two_widths_and_none_with_other_columns(write, tmp_path):
    nodes = str(tmp_path / "nodes")
    for number, kind in enumerate((pa.int32(), pa.int64())):
        write_table(f"{nodes}/{number}.parquet", pa.table({"id": pa.array([2**31 * number + 1], kind)}))
    assert from_edge_csv(write("a,b\n1,1\n"), nodes=nodes).nodes["id"].to_pylist() == [1, 2**31 + 1]
    write_table(f"{nodes}/2.parquet", pa.table({"id": [3], "x": [1.0]}))
    with pytest.raises(TableError, match=r"2.parquet: has columns \['id', 'x'\], the first file has \['id'\]"):
        from_edge_csv(write("a,b\n1,1\n"), nodes=nodes)


def test_text_ids_do_not_match_integer_nodes(write, tmp_path):
    nodes = str(tmp_path / "nodes.parquet")
    write_table(nodes, pa.table({"id": [1, 2]}))
    with pytest.raises(TableError, match="ids are text"):
        from_edge_csv(write("a,b\nx,y\n"), nodes=nodes)
    with pytest.raises(TableError, match="has no column 'key'"):
        from_edge_csv(write("a,b\nx,y\n"), nodes=nodes, node_id="key")


def test_a_missing_file_is_named():
    with pytest.raises(StorageError, match=r"absent\.csv: no such file"):
        from_edge_csv("absent.csv")
