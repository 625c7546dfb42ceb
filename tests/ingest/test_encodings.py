"""Tables with columns of any kind become a store, whose bytes depend on neither the files nor the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict
from gnnflow.graph.encodings import CategoricalState
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.ingest.encodings import fit_columns
from gnnflow.ingest.tables import read_tables
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.documents import read_document
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_facts
from tests.hearing import Heard
from tests.small_graphs import graph_config, stored_x, write_graph
from tests.typed_graphs import typed_tables, write_tables

FEATURES = ["age", "country", "signup", "tags", "member"]
ROWS = 60


def people(rows: int = ROWS, *, seed: int = 0) -> pa.Table:
    """Return a table of people with columns of every kind, of which some values are missing."""
    rng = np.random.default_rng(seed)
    missing = rng.random(rows) < 0.2
    countries = rng.choice(["de", "fr", "it", "se"], rows, p=[0.5, 0.3, 0.15, 0.05])
    days = np.datetime64("2020-01-01") + rng.integers(0, 1000, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "age": pa.array(rng.integers(18, 80, rows), mask=missing),
            "country": pa.array(countries, mask=rng.random(rows) < 0.1),
            "signup": pa.array(np.datetime_as_string(days)),
            "tags": ["|".join(rng.choice(["a", "b", "c"], 2)) for _ in range(rows)],
            "member": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.1),
            "label": rng.integers(0, 2, rows),
            "split": np.array(["train", "valid", "test"], dtype=object)[np.arange(rows) % 3],
        }
    )


COLUMNS = {"tags": {"kind": "multicategorical", "separator": "|"}}


def ingested(folder: Path, *, heard: Heard | None = None, graph: Any = None, **sections: Any) -> ArtifactResult:
    config = graph_config(folder, graph={"features": FEATURES, "columns": COLUMNS, **(graph or {})}, **sections)
    return make_artifact(StageContext.of(config, progress=heard or Heard()), "ingest")


def write(folder: Path, table: pa.Table | None = None, *, name: str = "nodes.parquet") -> None:
    folder.mkdir(exist_ok=True)
    write_graph(folder, num_nodes=ROWS)
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, ROWS, (2, 300))
    pq.write_table(pa.table({"src": src, "dst": dst}), folder / "edges.parquet")
    held = people() if table is None else table
    if name.endswith(".csv"):
        pa_csv.write_csv(held, folder / name)
    else:
        pq.write_table(held, folder / name)


def rows_of(result: ArtifactResult) -> Any:
    """Return the features in the order of ids [N, width]."""
    store = GraphStore.of(result.artifact, result.manifest)
    parts = [store.nodes(part, ["id", "x"]) for part in range(store.num_partitions)]
    ids = np.concatenate([part["id"].to_numpy() for part in parts])
    return np.concatenate([stored_x(part["x"]) for part in parts])[np.argsort(ids)]


def facts_of(result: ArtifactResult) -> GraphFacts:
    return read_facts(result.artifact, result.manifest, GraphFacts)


def test_columns_of_every_kind_arrive(tmp_path: Path) -> None:
    heard = Heard()
    write(tmp_path)
    result = ingested(tmp_path, heard=heard)
    table, held, facts = people(), rows_of(result), facts_of(result)
    outputs = [name for each in facts.encodings["nodes"] for name in each.state.outputs]
    assert outputs[:2] == ["age", "age is missing"]
    assert len(outputs) == facts.features.width == held.shape[1]
    age = table["age"]
    expected = age.cast(pa.float64()).fill_null(pc.mean(age).as_py()).to_numpy()
    countries = table["country"].to_pylist()
    np.testing.assert_allclose(held[:, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(held[:, outputs.index("country = fr")], [each == "fr" for each in countries])
    np.testing.assert_array_equal(held[:, outputs.index("country is missing")], [each is None for each in countries])
    np.testing.assert_array_equal(held[:, outputs.index("tags = a")], ["a" in each.as_py() for each in table["tags"]])
    assert any("column 'age' is numerical" in text and "are missing" in text for text in heard.messages)
    assert [column.name for column in facts.columns] == outputs


def test_neither_files_nor_partitions_of_a_table_change_its_rows(tmp_path: Path) -> None:
    graph = {"columns": {**COLUMNS, "age": {"kind": "numerical", "scale": "quantile"}}, "normalize": "standard"}
    write(tmp_path)
    one = ingested(tmp_path, graph=graph)
    (tmp_path / "nodes.parquet").unlink()
    (tmp_path / "nodes.parquet").mkdir()
    for number in range(4):
        piece = people().take(np.arange(ROWS)[::-1][number::4])
        pq.write_table(piece, tmp_path / "nodes.parquet" / f"{number}.parquet", row_group_size=5)
    assert ingested(tmp_path, graph=graph).digest == one.digest
    other = ingested(tmp_path, graph={**graph, "partitions": 2})
    np.testing.assert_array_equal(rows_of(other), rows_of(one))


def test_csv_gives_what_parquet_gives(tmp_path: Path) -> None:
    write(tmp_path)
    parquet = rows_of(ingested(tmp_path))
    write(tmp_path, name="nodes.csv")
    np.testing.assert_array_equal(rows_of(ingested(tmp_path, graph={"nodes": str(tmp_path / "nodes.csv")})), parquet)


def test_standard_scales_numbers_and_ages_alone(tmp_path: Path) -> None:
    write(tmp_path)
    result = ingested(tmp_path, graph={"normalize": "standard"})
    held = rows_of(result)
    scaled = [is_scaled for each in facts_of(result).encodings["nodes"] for is_scaled in each.state.scaled]
    np.testing.assert_allclose(held[:, scaled].std(0), 1, rtol=1e-5)
    plain = rows_of(ingested(tmp_path))
    np.testing.assert_array_equal(held[:, ~np.array(scaled)], plain[:, ~np.array(scaled)])


def test_numbers_without_gaps_are_read_as_before(tmp_path: Path) -> None:
    table = people()
    table = table.set_column(1, "age", pa.array(np.arange(ROWS)))
    write(tmp_path, table)
    result = ingested(tmp_path, graph={"features": ["age"], "columns": {}})
    np.testing.assert_array_equal(rows_of(result), np.arange(ROWS, dtype=np.float32)[:, None])


@pytest.mark.parametrize(
    ("column", "columns", "message"),
    [
        (["1", "2", "n/a"] * 20, {}, r"'age' is .*not numbers.*kind: categorical"),
        (["1", "2", "n/a"] * 20, {"age": {"kind": "numerical"}}, "'age': feature is not a number .*row 2: 'n/a'"),
        (["1.204,5", "7"] * 30, {"age": {"kind": "numerical"}}, r"row 0: '1.204,5'.*of CSV, set .*decimal: comma"),
        (["2024-01-31", "2024-02-30"] * 30, {}, "'age': feature is not an ISO date or time .*row 1: '2024-02-30'"),
        ([1.0, float("inf")] * 30, {}, "'age': feature is infinite or beyond"),
        ([[1.0]] * 60, {"age": {"kind": "categorical"}}, "'age' is list.*, not single values"),
        (["a"] * 60, {"age": {"kind": "multicategorical"}}, "'age' is string, not lists of values, or text with"),
        (["a"] * 60, {"age": {"kind": "embedding"}}, "'age' is string, not lists of numbers"),
    ],
)
def test_what_a_kind_cannot_hold_is_refused(tmp_path: Path, column: Any, columns: Any, message: str) -> None:
    write(tmp_path, people().set_column(1, "age", pa.array(column)))
    with pytest.raises(TableError, match=message):
        ingested(tmp_path, graph={"features": ["age"], "columns": columns})


def test_rows_that_sum_one_hold_numbers_alone(tmp_path: Path) -> None:
    write(tmp_path)
    columns: dict[str, Any] = {"country": {"kind": "categorical"}}
    with pytest.raises(TableError, match=r"'country' is categorical, and graph\.normalize: row"):
        ingested(tmp_path, graph={"features": ["country"], "columns": columns, "normalize": "row"})


@pytest.mark.parametrize("task", [{"kind": "node"}, {"kind": "edge", "split": {"kind": "random"}}])
@pytest.mark.parametrize("reverse", [False, True])
def test_attributes_of_edges_are_encoded_alike(tmp_path: Path, task: Any, *, reverse: bool) -> None:
    rng = np.random.default_rng(2)
    write(tmp_path)
    low, high = np.triu_indices(ROWS, 1)  # no pair twice, in either direction: the order of such edges is the table's
    pairs = rng.choice(len(low), 300, replace=False)
    kind, amount = rng.choice(["card", "cash"], 300), rng.normal(size=300)
    edges = {"src": low[pairs], "dst": high[pairs], "kind": kind, "label": np.arange(300) % 2}
    edges["amount"] = pa.array(amount, mask=np.arange(300) % 7 == 0)
    graph = {"edge_features": ["kind", "amount"], "edge_normalize": "standard", "reverse_edges": reverse}
    digests = []
    for order in (np.arange(300), rng.permutation(300)):
        pq.write_table(pa.table(edges).take(order), tmp_path / "edges.parquet", row_group_size=100)
        result = ingested(tmp_path, graph=graph, task=task)
        digests.append(result.digest)
    assert digests[0] == digests[1]
    facts, store = facts_of(result), GraphStore.of(result.artifact, result.manifest)
    assert facts.attribute_width == 4
    held = np.concatenate([to_matrix(store.edges(part, ["attributes"])["attributes"]) for part in range(3)])
    assert set(map(tuple, held[:, [0, 1, 3]].tolist())) == {(a, 1 - a, b) for a in (0, 1) for b in (0, 1)}
    np.testing.assert_allclose(held[:, 2][held[:, 3] == 1].std(), 0, atol=1e-6)


def test_tables_of_typed_graphs_have_their_own_states(tmp_path: Path) -> None:
    tables = typed_tables()
    account, merchant = tables["account"], tables["merchant"].drop_columns(["x_index"])
    tables["account"] = account.append_column("city", pa.array(["Oslo", "Rome"] * 20))
    tables["merchant"] = merchant.append_column("city", pa.array(np.arange(merchant.num_rows) % 5))
    pays = tables["account__pays__merchant"]
    tables["account__pays__merchant"] = pays.append_column("how", pa.array(["card"] * pays.num_rows))
    graph = {
        **write_tables(tmp_path, tables),
        "features": ["city"],
        "edge_features": ["how"],
        "columns": {"merchant.city": {"kind": "categorical", "values": 3}},
    }
    heard = Heard()
    config = config_from_dict(
        {"name": "a", "workspace": str(tmp_path / "runs"), "graph": graph, "cluster": {"kind": "synchronous"}}
    )
    found = make_artifact(StageContext.of(config, progress=heard), "ingest")
    states = facts_of(found).states
    assert [state.outputs for state in states["nodes/account"]] == [("city = Oslo", "city = Rome")]
    assert [state.outputs for state in states["nodes/merchant"]] == [
        ("city = 0", "city = 1", "city = 2", "city has another value")
    ]
    assert [state.outputs for state in states["edges/account__pays__merchant"]] == [("how = card",)]
    assert facts_of(found).features_of_types[1] is None
    assert any("nodes/merchant: column 'city' is categorical: 3 of 5 values" in text for text in heard.messages)


def test_many_values_cost_no_more_than_their_share(tmp_path: Path) -> None:
    """A million values, of which two are frequent: records stay small, and tasks see a part of the values each."""
    rows = 1_000_000
    names = pc.cast(pa.array(np.arange(rows)), pa.string()).to_numpy(zero_copy_only=False)
    names[::10], names[5::10] = "often", "seldom"
    write(tmp_path)
    table = pa.table({"id": np.arange(rows), "name": names, "label": np.arange(rows) % 2, "split": ["train"] * rows})
    pq.write_table(table, tmp_path / "nodes.parquet", row_group_size=250_000)
    runner = RoundRunner(str(tmp_path / "work"), Synchronous())
    graph = graph_config(
        tmp_path, graph={"features": ["name"], "columns": {"name": {"kind": "categorical", "values": 2}}}
    ).graph
    tables = fit_columns(read_tables(graph, runner), graph, runner, given={})
    (state,) = [part.state for part in tables.nodes[0].schema.parts]
    assert isinstance(state, CategoricalState)
    assert (state.values, state.distinct, state.rest) == (("often", "seldom"), 800_002, 800_000)
    merged = [read_document(str(path), fix="") for path in (tmp_path / "work" / "columns_merge").glob("*.json")]
    assert len(merged) == 3
    assert all(len(each["counts"]["values"]["0"]["values"]) == 2 for each in merged)
    assert all(each["counts"]["values"]["0"]["distinct"] < 300_000 for each in merged)


def test_all_reads_every_column_without_another_role(tmp_path: Path) -> None:
    write(tmp_path)
    named = rows_of(ingested(tmp_path, graph={"features": ["age", "country", "signup", "member"], "columns": {}}))
    result = ingested(tmp_path, graph={"features": "all", "exclude": ["tag*"], "columns": {}})
    assert facts_of(result).columns_read["nodes"] == ("age", "country", "signup", "member")
    np.testing.assert_array_equal(rows_of(result), named)
    with pytest.raises(TableError, match=r"no column matches amt_\*.*columns are: id, age"):
        ingested(tmp_path, graph={"features": ["amt_*"], "columns": {}})


ENCODER = """
import numpy as np
def lengths(texts):
    return [[len(text), text.count("e")] for text in texts]
def ragged(texts):
    return [[1.0] * len(text) for text in texts]
"""


def test_a_function_of_the_users_encodes_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_texts.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path)
    graph: Any = {"features": ["country"], "columns": {"country": {"kind": "text", "encoder": "own_texts:lengths"}}}
    result = ingested(tmp_path, graph=graph)
    countries = [each or "" for each in people()["country"].to_pylist()]
    np.testing.assert_array_equal(rows_of(result), [[len(each), each.count("e")] for each in countries])
    graph["columns"]["country"]["encoder"] = "own_texts:ragged"
    with pytest.raises(TableError, match="own_texts:ragged failed"):
        ingested(tmp_path, graph=graph)
    config = graph_config(tmp_path, graph=graph)
    changed = resolve(config).fingerprints["ingest"]
    (tmp_path / "own_texts.py").write_text(ENCODER + "# changed")
    with pytest.raises(ConfigError, match="has changed since"):  # its source is part of the fingerprint
        assert resolve(config).fingerprints["ingest"] != changed


def test_columns_of_names_are_told_of(tmp_path: Path) -> None:
    write(tmp_path, people().append_column("name", pa.array([f"person {number}" for number in range(ROWS)])))
    heard = Heard()
    columns: dict[str, Any] = {"name": {"kind": "categorical", "values": 5}}
    ingested(tmp_path, heard=heard, graph={"features": ["name"], "columns": columns})
    (said,) = [text for text in heard.messages if "'name'" in text]
    assert said.endswith(
        "55 of 60 values are rarer or unknown; raise values, leave the column out, or read its words with kind: text"
    )
    made = ingested(tmp_path, graph={"features": ["name"], "columns": columns})
    ((column,),) = made.facts(GraphFacts).encodings.values()
    scored = column.text(ROWS, is_given=True)  # a published model reads its values as it was trained to
    assert "the model was trained on other values" in scored
    assert "raise values" not in scored
