import gzip

import pyarrow as pa
import pytest

from gnnflow.datasets import from_edge_csv
from gnnflow.graph.errors import StorageError, TableError
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


def test_ids_that_are_not_all_integers_are_text_letter_by_letter(write):
    tables = from_edge_csv(write("src,dst\n007,m1\n010,m1\n"))
    assert ends(tables) == (["007", "010"], ["m1", "m1"])
    assert tables.nodes["id"].to_pylist() == ["007", "010", "m1"]


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
        ("a,b,src\n1,2,3\n", {}, "two columns would be called 'src'"),
    ],
)
def test_lines_that_do_not_fit_are_refused(write, text, options, message):
    with pytest.raises(TableError, match=message):
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
