"""The user's tables arrive as given: ids, counts and values; what cannot is refused with file, row and column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict
from gnnflow.graph.errors import GnnflowError, TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage import csv_blocks
from gnnflow.storage.graph_store import GraphStore
from tests.hearing import Heard
from tests.small_graphs import stored_x

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.stages.base import ArtifactResult

NUM_NODES = 12
RING = [(i, (i + 1) % NUM_NODES) for i in range(NUM_NODES)]
Table = dict[str, Any]


def node_columns(ids: list[Any] | None = None, **columns: Any) -> Table:
    ids = list(range(NUM_NODES)) if ids is None else ids
    split = ["train", "valid", "test"] * 4
    return {"id": ids, "x": [i / 10 for i in range(NUM_NODES)], "label": [0, 1] * 6, "split": split} | columns


def edge_columns(ids: list[Any] | None = None, **columns: Any) -> Table:
    ids = list(range(NUM_NODES)) if ids is None else ids
    return {"src": [ids[i] for i, _ in RING], "dst": [ids[j] for _, j in RING]} | columns


def write(path: Path, columns: Table) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = zip(*columns.values(), strict=True)
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def ingest(folder: Path, nodes: str, edges: str, *, tell: Silent | None = None, **sections: Any) -> ArtifactResult:
    graph = {"nodes": nodes, "edges": edges, "partitions": 3, **sections.pop("graph", {})}
    content = {"name": "given", "workspace": str(folder / "runs"), "graph": graph, "cluster": {"kind": "synchronous"}}
    return make_artifact(StageContext.of(config_from_dict({**content, **sections}), progress=tell), "ingest")


def stored(result: ArtifactResult) -> tuple[pa.Table, pa.Table]:
    """Return the store's nodes, and its edges with the users' ids."""
    store = GraphStore.of(result.artifact, result.manifest)
    parts = range(store.num_partitions)
    nodes = pa.concat_tables([store.nodes(p, ["id", *store.feature_columns_of(0)]) for p in parts])
    edges = pa.concat_tables([store.edges(p, ["src", "dst", *store.edge_columns]) for p in parts])
    for end in ("src", "dst"):
        edges = edges.set_column(edges.column_names.index(end), end, nodes["id"].take(edges[end]))
    return nodes, edges


TEXT_IDS = {
    "leading zeros": [f"{i:05d}" for i in range(NUM_NODES)],
    "one with leading zeros": ["007", *map(str, range(1, NUM_NODES))],
    "hexadecimal": [hex(i) for i in range(NUM_NODES)],
    "one hexadecimal": ["0x33", *map(str, range(1, NUM_NODES))],
    "exponent": ["1e5", *map(str, range(1, NUM_NODES))],
    "dates": [f"2024-01-{i + 1:02d}" for i in range(NUM_NODES)],
    "truth": ["true", "False", *map(str, range(2, NUM_NODES))],
    "signs": ["-0", "+1", *map(str, range(2, NUM_NODES))],
    "words that others read as null": ["None", "NA", "NaN", *map(str, range(3, NUM_NODES))],
    "spaces": [f" {i}" for i in range(NUM_NODES)],
    "beyond int64": [str(2**63 + i) for i in range(NUM_NODES)],
    "decimals": [f"{i}.0" for i in range(NUM_NODES)],
}


@pytest.mark.table(6)
@pytest.mark.parametrize("block", [40, 1 << 20])
@pytest.mark.parametrize("name", TEXT_IDS)
def test_text_ids_arrive_letter_by_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block: int
) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", block)
    ids = TEXT_IDS[name]
    nodes, edges = write(tmp_path / "n.csv", node_columns(ids)), write(tmp_path / "e.csv", edge_columns(ids))
    found, pairs = stored(ingest(tmp_path, nodes, edges))
    assert sorted(found["id"].to_pylist()) == sorted(ids)
    given = sorted((ids[i], ids[j]) for i, j in RING)
    assert sorted(zip(pairs["src"].to_pylist(), pairs["dst"].to_pylist(), strict=True)) == given


def test_ids_that_are_all_integers_are_integers(tmp_path: Path) -> None:
    ids = [-5, 0, 2**63 - 1, *range(1, 10)]
    nodes, edges = write(tmp_path / "n.csv", node_columns(ids)), write(tmp_path / "e.csv", edge_columns(ids))
    found, _ = stored(ingest(tmp_path, nodes, edges))
    assert found["id"].type == pa.int64()
    assert sorted(found["id"].to_pylist()) == sorted(ids)


def test_a_typed_table_decides_what_ids_in_csv_are(tmp_path: Path) -> None:
    text = [str(i) for i in range(NUM_NODES)]
    edges = write(tmp_path / "e.csv", edge_columns())
    found, _ = stored(ingest(tmp_path, write(tmp_path / "text.parquet", node_columns(text)), edges))
    assert sorted(found["id"].to_pylist()) == sorted(text)
    found, _ = stored(ingest(tmp_path, write(tmp_path / "int.parquet", node_columns()), edges))
    assert found["id"].type == pa.int64()
    padded = write(tmp_path / "padded.csv", edge_columns([f"{i:03d}" for i in range(NUM_NODES)]))
    with pytest.raises(TableError, match="holds string ids, 'id' of the node table holds int64"):
        ingest(tmp_path, str(tmp_path / "int.parquet"), padded)


@pytest.mark.parametrize("files", [1, 2])
def test_a_column_has_one_type_over_all_blocks_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 50)
    weight = ["1"] * 6 + ["0.25"] * 6
    for number in range(files):
        rows = slice(number * NUM_NODES // files, (number + 1) * NUM_NODES // files)
        write(tmp_path / f"e/{number}.csv", {name: held[rows] for name, held in edge_columns(weight=weight).items()})
    nodes = write(tmp_path / "n.csv", node_columns())
    _, edges = stored(ingest(tmp_path, nodes, str(tmp_path / "e")))
    assert sorted(edges["weight"].to_pylist()) == [0.25] * 6 + [1.0] * 6
    write(tmp_path / "e/9.csv", edge_columns(weight=["1"] * 7 + ["much"] + ["1"] * 4))
    with pytest.raises(TableError, match=r"'weight' is .*not a weight \(the first text is 'much' in .*9\.csv, row 7"):
        ingest(tmp_path, nodes, str(tmp_path / "e"))


@pytest.mark.parametrize("text", ["1,234.50", "5 EUR", "1 000", "5%", "0x10", "1_000"])
def test_text_that_only_looks_like_a_number_is_refused_by_its_value(tmp_path: Path, text: str) -> None:
    nodes = write(tmp_path / "n.csv", node_columns())
    edges = write(tmp_path / "e.csv", edge_columns(amount=at(5, f'"{text}"', 1.5)))
    with pytest.raises(TableError, match=rf"'amount' is .*not numbers .*'{text}' in .*e\.csv, row 5.*separators"):
        ingest(tmp_path, nodes, edges, graph={"edge_features": ["amount"]})


def test_blocks_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = write(tmp_path / "n.csv", node_columns())
    edges = write(tmp_path / "e.csv", edge_columns(weight=np.linspace(0, 1, NUM_NODES).tolist()))
    whole = ingest(tmp_path / "one", nodes, edges)
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 33)
    assert ingest(tmp_path / "many", nodes, edges).digest == whole.digest


def test_a_row_of_a_late_block_is_named_by_its_place_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 20)
    weight: list[Any] = [1] * NUM_NODES
    weight[9] = -1
    nodes, edges = write(tmp_path / "n.csv", node_columns()), write(tmp_path / "e.csv", edge_columns(weight=weight))
    with pytest.raises(TableError, match=r"weight is negative in 1 row\(s\) of this piece \(row 9: -1\)"):
        ingest(tmp_path, nodes, edges)


@pytest.mark.parametrize("weight", [1e-39, 1e-300])
def test_a_weight_that_float32_would_make_nothing_of_is_refused(tmp_path: Path, weight: float) -> None:
    nodes = write(tmp_path / "n.csv", node_columns())
    edges = write(tmp_path / "e.csv", edge_columns(weight=[0.0, 2e-38, *[weight] * (NUM_NODES - 2)]))
    with pytest.raises(TableError, match=rf"smaller than float32 holds \(1.2e-38\) in 10 row\(s\).*\(row 2: {weight}"):
        ingest(tmp_path, nodes, edges)


def test_key_value_folders_become_columns(tmp_path: Path) -> None:
    for weight, rows in (("0.5", slice(0, 6)), ("2", slice(6, 12))):
        columns = {name: held[rows] for name, held in edge_columns().items()}
        write(tmp_path / f"e/weight={weight}/part.csv", columns)
        write(tmp_path / f"p/weight={weight}/part.parquet", columns)
    table = node_columns()
    for split in ("train", "valid", "test"):
        kept = [i for i in range(NUM_NODES) if table["split"][i] == split]
        write(
            tmp_path / f"n/split={split}/part.parquet",
            {name: [held[i] for i in kept] for name, held in table.items() if name != "split"},
        )
    result = ingest(tmp_path, str(tmp_path / "n"), str(tmp_path / "e"))
    assert result.facts(GraphFacts).splits == {"none": 0, "train": 4, "valid": 4, "test": 4}
    expected = sorted((i, j, 0.5 if i < 6 else 2.0) for i, j in RING)
    for folder in ("e", "p"):
        _, edges = stored(ingest(tmp_path, str(tmp_path / "n"), str(tmp_path / folder)))
        assert sorted(tuple(row.values()) for row in edges.select(["src", "dst", "weight"]).to_pylist()) == expected
    write(tmp_path / "e/weight=3/part.csv", edge_columns(weight=[1] * NUM_NODES))
    with pytest.raises(TableError, match="2 columns called 'weight', one of them from its folder's name"):
        ingest(tmp_path, str(tmp_path / "n"), str(tmp_path / "e"))


def test_a_file_that_moves_to_another_key_is_another_table(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.csv", node_columns())
    write(tmp_path / "e/weight=1/part.csv", edge_columns())
    first = ingest(tmp_path, nodes, str(tmp_path / "e"))
    (tmp_path / "e/weight=1").rename(tmp_path / "e/weight=5")
    second = ingest(tmp_path, nodes, str(tmp_path / "e"))
    assert not second.reused
    assert set(stored(first)[1]["weight"].to_pylist()) == {1.0}
    assert set(stored(second)[1]["weight"].to_pylist()) == {5.0}


def test_files_beside_the_table_are_not_read_and_a_line_says_so(tmp_path: Path) -> None:
    nodes, tell = write(tmp_path / "n.csv", node_columns()), Heard()
    for place in ("part.csv", "_temporary/0/part.csv", ".ipynb_checkpoints/part-checkpoint.csv"):
        write(tmp_path / "e" / place, edge_columns())
    result = ingest(tmp_path, nodes, str(tmp_path / "e"), tell=tell)
    assert result.facts(GraphFacts).num_edges == NUM_NODES
    assert any("1 file of" in line and "skipped 2" in line for line in tell.messages)


def at(row: int, value: Any, rest: Any) -> list[Any]:
    return [value if i == row else rest for i in range(NUM_NODES)]


LISTS = pa.list_(pa.float64(), 2)
CANNOT_HOLD = {
    "feature 1e39": (node_columns(x=at(5, 1e39, 1.0)), {}, {}, r"'x': .*float32 .*row 5: 1e\+39"),
    "feature list 1e39": (node_columns(x=pa.array(at(5, [0, 1e39], [0, 1]), LISTS)), {}, {}, "'x'.*row 5"),
    "standardised 1e101": (node_columns(x=at(5, 1e101, 1.0)), {}, {"normalize": "standard"}, r"'x': .*1e\+100.*row 5"),
    "weight 1e39": ({}, edge_columns(weight=at(5, 1e39, 1.0)), {}, r"'weight': .*row 5: 1e\+39"),
    "weights that add up": ({}, {"src": [1, 2], "dst": [3, 3], "weight": [3e38, 2e38]}, {}, "add up to 5e\\+38.*row 0"),
    "attribute 1e39": ({}, edge_columns(a=at(5, 1e39, 1.0)), {"edge_features": ["a"]}, "'a': edge attribute.*row 5"),
    "target inf": (node_columns(label=at(5, np.inf, 0.5)), {}, {}, "'label': label is infinite.*row 5"),
    "target 1e39": (node_columns(label=at(5, 1e39, 0.5)), {}, {}, "'label': label is infinite or beyond.*row 5"),
    "sparse value 1e39": (
        node_columns(s_index=[[0, 1]] * 12, s_value=at(5, [1.0, 1e39], [1.0, 2.0])),
        {},
        {"features": ["s"]},
        "'s_value': feature value.*row 5",
    ),
    "id 2**63": (node_columns(id=pa.array(at(5, 2**63, 1), pa.uint64())), {}, {}, "'id': id is beyond int64.*row 5"),
    "class 1e9": (node_columns(label=at(5, 10**9, 1)), {}, {}, "largest class is 1,000,000,000.*graph.num_classes"),
}


@pytest.mark.parametrize("name", CANNOT_HOLD)
def test_what_cannot_be_held_is_refused_with_its_row(tmp_path: Path, name: str) -> None:
    nodes, edges, graph, expected = CANNOT_HOLD[name]
    paths = (
        write(tmp_path / "n.parquet", nodes or node_columns()),
        write(tmp_path / "e.parquet", edges or edge_columns()),
    )
    with pytest.raises(TableError, match=expected):
        ingest(tmp_path, *paths, graph=graph, train={"metric": "loss"})


@pytest.mark.parametrize("value", [2**24, 2**24 + 2, 2**40, -(2**62)])
def test_integers_that_float32_holds_pass(tmp_path: Path, value: int) -> None:
    nodes = write(tmp_path / "n.parquet", node_columns(x=at(5, value, 1)))
    found, _ = stored(ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns())))
    assert stored_x(found["x"]).max() == max(value, 1)


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_standard_keeps_sixty_timestamps_apart(tmp_path: Path, kind: pa.DataType) -> None:
    count = 60
    x = pa.array([1_700_000_000 + i for i in range(count)]).cast(kind)
    columns = {"id": range(count), "x": x, "label": [0, 1] * 30, "split": ["train", "valid", "test"] * 20}
    nodes = write(tmp_path / "n.parquet", {name: pa.array(held) for name, held in columns.items()})
    found, _ = stored(
        ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns()), graph={"normalize": "standard"})
    )
    order = np.argsort(found["id"].to_numpy())
    x = stored_x(found["x"])[order, 0]
    exact = (np.arange(count) - 29.5) / np.arange(count).std()
    assert np.allclose(x, exact, atol=1e-6)
    assert len(np.unique(x)) == count


def test_row_sums_do_not_overflow(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.parquet", node_columns(x=pa.array([[3e38, 1e38]] * 12, LISTS)))
    edges = write(tmp_path / "e.parquet", edge_columns())
    found, _ = stored(ingest(tmp_path, nodes, edges, graph={"normalize": "row"}))
    assert np.allclose(stored_x(found["x"]), [0.75, 0.25])


def test_a_constant_column_becomes_zeros(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.parquet", node_columns(x=[0.1] * 12))
    edges = write(tmp_path / "e.parquet", edge_columns())
    found, _ = stored(ingest(tmp_path, nodes, edges, graph={"normalize": "standard"}))
    assert not stored_x(found["x"]).any()


SPARSE = {
    "fractions": (pa.array([[0.5, 1.0]] * 12), "Write lists of integers"),
    "strings": (pa.array([["a"]] * 12), "Write lists of integers"),
    "no list": (pa.array([1] * 12), "Write lists of integers"),
    "beyond int32": (pa.array(at(5, [0, 2**31], [0, 1])), "largest index is 2,147,483,648"),
    "beyond int64": (pa.array(at(5, [0, 2**63], [0, 1]), pa.list_(pa.uint64())), "largest index is 9,223,"),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_indices_are_integers_of_a_sane_size(tmp_path: Path, name: str) -> None:
    index, expected = SPARSE[name]
    nodes = write(tmp_path / "n.parquet", node_columns(s_index=index))
    with pytest.raises(TableError, match=f"'s_index'.*{expected}"):
        ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns()), graph={"features": ["s"]})


def test_sparse_features_may_be_lists_of_one_length(tmp_path: Path) -> None:
    index, value = pa.array([[0, 3]] * 12, pa.list_(pa.int32(), 2)), pa.array([[1.0, 2.0]] * 12, LISTS)
    nodes = write(tmp_path / "n.parquet", node_columns(s_index=index, s_value=value))
    result = ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns()), graph={"features": ["s"]})
    assert result.facts(GraphFacts).features.width == 4
    assert stored(result)[0]["x_index"].to_pylist() == [[0, 3]] * 12


@pytest.mark.parametrize("stated", ["abc", "-3", "0", "1e3", "99999999999", ""])
def test_a_malformed_feature_dim_is_refused(tmp_path: Path, stated: str) -> None:
    table = pa.table(node_columns(s_index=[[0, 1]] * 12)).replace_schema_metadata({"feature_dim": stated})
    pq.write_table(table, tmp_path / "n.parquet")
    with pytest.raises(TableError, match=r"metadata feature_dim: .*not a width"):
        ingest(
            tmp_path,
            str(tmp_path / "n.parquet"),
            write(tmp_path / "e.parquet", edge_columns()),
            graph={"features": ["s"]},
        )


def test_whole_floats_are_classes_by_the_metric_or_the_number_of_classes(tmp_path: Path) -> None:
    nodes = write(tmp_path / "n.csv", node_columns(label=["0.0", "1.0", "2.0"] * 4))
    edges, tell = write(tmp_path / "e.csv", edge_columns()), Heard()
    facts = ingest(tmp_path, nodes, edges).facts(GraphFacts)
    assert (facts.label_kind, facts.num_classes, facts.class_names) == ("single", 3, ())
    facts = ingest(tmp_path, nodes, edges, train={"metric": "loss"}, tell=tell).facts(GraphFacts)
    assert facts.label_kind == "regression"
    assert any("numbers to predict" in line for line in tell.messages)
    facts = ingest(tmp_path, nodes, edges, graph={"num_classes": 3}).facts(GraphFacts)
    assert (facts.label_kind, facts.num_classes) == ("single", 3)
    broken = write(tmp_path / "broken.csv", node_columns(label=["0.0", "1.5", "2.0"] * 4))
    with pytest.raises(TableError, match=r"no class number.*row 1: 1\.5"):
        ingest(tmp_path, broken, edges, graph={"num_classes": 3})
    with pytest.raises(TableError, match=r"train\.metric is accuracy.*graph\.classes: distinct"):
        ingest(tmp_path, broken, edges, train={"metric": "accuracy"})
    assert ingest(tmp_path, broken, edges).facts(GraphFacts).label_kind == "regression"


@pytest.mark.parametrize("partitions", [13, 300])
def test_more_partitions_than_nodes_are_refused(tmp_path: Path, partitions: int) -> None:
    nodes, edges = write(tmp_path / "n.csv", node_columns()), write(tmp_path / "e.csv", edge_columns())
    with pytest.raises(GnnflowError, match=f"partitions is {partitions}, the node table has 12 rows"):
        ingest(tmp_path, nodes, edges, graph={"partitions": partitions})


def test_columns_called_as_ours_are_quarantined_under_another_name(tmp_path: Path) -> None:
    columns = node_columns(
        reason=at(5, float("inf"), 1.0), row=[2.0] * 12, file=pa.array(at(6, None, [1.0, 2.0]), LISTS)
    )
    graph = {"features": ["reason", "row", "file"], "on_bad_rows": "quarantine", "max_bad_rows": 1}
    result = ingest(
        tmp_path, write(tmp_path / "n.parquet", columns), write(tmp_path / "e.parquet", edge_columns()), graph=graph
    )
    name = next(entry.name for entry in result.manifest.files if "nodes-read" in entry.name)
    held = pq.read_table(f"{result.artifact}/{name}")
    assert held["row"].to_pylist() == [5, 6]
    assert held["given_row"].to_pylist() == [2.0, 2.0]
    assert held["given_file"].to_pylist() == [[1.0, 2.0], None]
    assert set(held["file"].to_pylist()) == {str(tmp_path / "n.parquet")}


def differ(folder: Path, **second: Any) -> str:
    table = pa.table(node_columns())
    first, other = table.slice(0, 6), table.slice(6)
    for name, change in second.items():
        other = other.set_column(other.column_names.index(name), name, change(other[name]))
    write(folder / "n/a.parquet", {name: first[name] for name in first.column_names})
    write(folder / "n/b.parquet", {name: other[name] for name in other.column_names})
    return str(folder / "n")


@pytest.mark.parametrize(
    ("column", "kind"), [("id", pa.string()), ("label", pa.float64()), ("x", pa.string()), ("split", pa.large_binary())]
)
def test_a_column_that_means_something_else_in_another_file_is_refused(
    tmp_path: Path, column: str, kind: pa.DataType
) -> None:
    nodes = differ(tmp_path, **{column: lambda held: pc.cast(held, kind)})
    with pytest.raises(TableError, match=rf"b\.parquet: column '{column}' is .*, in .*a\.parquet it is"):
        ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns()))


def test_types_that_mean_the_same_may_differ_between_files(tmp_path: Path) -> None:
    nodes = differ(
        tmp_path,
        id=lambda held: pc.cast(held, pa.int16()),
        x=lambda held: pc.cast(held, pa.float32()),
        label=lambda held: pa.nulls(len(held)),
        split=lambda held: pa.nulls(len(held)),
    )
    result = ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns()))
    assert result.facts(GraphFacts).labelled == 6


@pytest.mark.parametrize("column", ["id", "x", "label"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, column: str) -> None:
    table = pa.table(node_columns())
    pq.write_table(table.append_column(column, table[column]), tmp_path / "n.parquet")
    (tmp_path / "n.csv").write_text(",".join([*node_columns(), column]) + "\n1,1,1,train,1\n")
    for name in ("n.parquet", "n.csv"):
        with pytest.raises(TableError, match=f"2 columns called '{column}'"):
            ingest(tmp_path, str(tmp_path / name), write(tmp_path / "e.parquet", edge_columns()))


def test_a_random_table_in_csv_is_the_one_in_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 500)
    rng = np.random.default_rng(0)
    nodes = pa.table(node_columns(x=rng.standard_normal(12).astype(np.float32)))
    edges = pa.table(edge_columns(weight=rng.random(12).astype(np.float32)))
    for name, table in (("n", nodes), ("e", edges)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        pa_csv.write_csv(table, tmp_path / f"{name}.csv")
    digests = {
        ingest(tmp_path, str(tmp_path / f"n.{one}"), str(tmp_path / f"e.{other}")).digest
        for one in ("csv", "parquet")
        for other in ("csv", "parquet")
    }
    assert len(digests) == 1
