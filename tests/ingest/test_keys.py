"""Tables whose columns are called otherwise in each give the store of tables that call them alike."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.config import GraphConfig, config_from_dict
from gnnflow.config.stage_keys import ingest as ingest_keys
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.ingest.subsample import read_subsample
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from tests.small_graphs import graph_config
from tests.typed_graphs import ingested, typed_tables, write_tables

USES, PAYS = "account__uses__device", "account__pays__merchant"
NAMES: dict[str, dict[str, str]] = {
    "id": {"account": "account_id", "device": "serial"},
    "label": {"account": "risk"},
    "split": {"account": "part"},
    "src": {USES: "account_id"},
    "dst": {USES: "serial", PAYS: "shop"},
    "weight": {PAYS: "share"},
}


def renamed(folder: Path) -> dict[str, Any]:
    """Write the tables with their columns called as NAMES has it, and return the graph section."""
    tables = typed_tables()
    for key, names in NAMES.items():
        for table, name in names.items():
            held = tables[table]
            tables[table] = held.rename_columns([name if own == key else own for own in held.column_names])
    return {**write_tables(folder, tables), **NAMES}


def test_a_map_of_names_reads_what_one_name_for_all_reads(tmp_path: Path) -> None:
    _, alike = ingested(tmp_path / "alike", write_tables(tmp_path / "alike", typed_tables()))
    _, own = ingested(tmp_path / "own", renamed(tmp_path / "own"))
    assert own.digest == alike.digest
    assert own.facts["labelled"] == 40


def test_a_plan_reads_them_too(tmp_path: Path) -> None:
    found = read_subsample(GraphConfig(**renamed(tmp_path)), targets=None, smallest=1, largest=100, progress=Silent())
    small = found.subsample.write(str(tmp_path / "small"), one_in=found.levels[0], chunks=1)
    store, _ = ingested(tmp_path, small.model_dump())
    assert store.facts.num_nodes > 0


unquoted = pa_csv.WriteOptions(quoting_style="none")


def foreign_tables() -> dict[str, pa.Table]:
    """Return tables in which some devices have an owner: a column of ids of accounts, with nulls."""
    tables, rng = typed_tables(), np.random.default_rng(1)
    owner = rng.choice(tables["account"]["id"].to_numpy(), tables["device"].num_rows)
    column = pa.array(owner, mask=np.arange(len(owner)) % 3 == 0)
    tables["device"] = tables["device"].append_column("owner", column).append_column("weight", pa.array(owner * 2.0))
    tables["device"] = tables["device"].append_column("half", pa.array(owner + 0.5))
    return tables


@pytest.mark.parametrize("form", ["parquet", "csv", "floats", "floats in csv"])
@pytest.mark.parametrize("table", ["device", "its file"])
def test_a_foreign_key_is_a_relation_and_a_null_no_edge(tmp_path: Path, table: str, form: str) -> None:
    tables = foreign_tables()
    owned = tables["device"].filter(pc.is_valid(tables["device"]["owner"]))
    tables["device__of__account"] = owned.select(["id", "owner"]).rename_columns(["src", "dst"])
    graph = write_tables(tmp_path, tables)
    if "csv" in form:
        for name, held in [("device", tables["device"]), ("device__of__account", tables["device__of__account"])]:
            pa_csv.write_csv(held, tmp_path / f"{name}.csv")
            graph["edges" if "__" in name else "nodes"][name] = str(tmp_path / f"{name}.csv")
    _, plain = ingested(tmp_path / "plain", graph)
    if form == "floats in csv":
        text = pa.array([None if each is None else f"{each}.0" for each in tables["device"]["owner"].to_pylist()])
        pa_csv.write_csv(tables["device"].set_column(1, "owner", text), tmp_path / "device.csv", unquoted)
    if form == "floats":  # as pandas has integers with nulls
        floats = tables["device"]["owner"].cast(pa.float64())
        pq.write_table(tables["device"].set_column(1, "owner", floats), tmp_path / "device.parquet")
    where = "device" if table == "device" else graph["nodes"]["device"]
    graph["edges"]["device__of__account"] = {"table": where, "src": "id", "dst": "owner"}
    _, foreign = ingested(tmp_path / "foreign", graph)
    assert foreign.digest == plain.digest
    rows = foreign.facts["tables"]["edges/device__of__account"]
    assert (rows["rows_in"], rows["rows_quarantined"]) == (len(owned), 0)


@pytest.mark.parametrize("kinds", [["a", "b"], [1, 2], [1.0, 2.0]])
def test_one_table_serves_several_relations(tmp_path: Path, kinds: list[Any]) -> None:
    tables = typed_tables()
    tables["account__trusts__account"] = tables["account__sends__account"].slice(0, 50)
    graph = write_tables(tmp_path, tables)
    _, plain = ingested(tmp_path / "plain", graph)
    both, names = [], ("account__sends__account", "account__trusts__account")
    for name, kind in zip(names, kinds, strict=True):
        both.append(tables[name].append_column("kind", pa.array([kind] * tables[name].num_rows)))
    rows = pa.concat_tables(both)
    other = rows.slice(0, 5).set_column(rows.column_names.index("kind"), "kind", pa.nulls(5, rows["kind"].type))
    pq.write_table(pa.concat_tables([rows, other]), tmp_path / "all.parquet", row_group_size=40)
    for name, kind in zip(names, kinds, strict=True):
        graph["edges"][name] = {"table": str(tmp_path / "all.parquet"), "where": {"kind": kind}}
    _, shared = ingested(tmp_path / "shared", graph)
    assert shared.digest == plain.digest


def test_attributes_are_fitted_over_the_edges_of_a_relation_alone(tmp_path: Path) -> None:
    tables, rng = typed_tables(), np.random.default_rng(3)
    edges = tables["account__sends__account"]
    drawn = {"amount": rng.random(edges.num_rows), "city": rng.choice(["a", "b"], edges.num_rows)}
    for name, column in drawn.items():
        edges = edges.append_column(name, pa.array(column))
    tables["account__sends__account"] = edges
    columns = {"amount": {"kind": "numerical", "scale": "quantile"}, "city": {"kind": "categorical"}}
    own = {"edge_features": {"account__sends__account": list(columns)}, "columns": columns}
    graph = write_tables(tmp_path, tables) | own

    def digest(name: str) -> str:
        config = graph_config(tmp_path, graph=graph, workspace=str(tmp_path / name))
        return make_artifact(StageContext.of(config), "ingest").digest

    plain = digest("plain")
    other = edges.set_column(edges.column_names.index("amount"), "amount", pa.array(rng.random(edges.num_rows) + 5))
    other = other.set_column(other.column_names.index("city"), "city", pa.array(["c"] * edges.num_rows))
    both = [edges.append_column("kind", pa.array(["own"] * edges.num_rows))]
    both += [other.append_column("kind", pa.array(["other"] * edges.num_rows))]
    pq.write_table(pa.concat_tables(both), tmp_path / "all.parquet", row_group_size=40)
    graph["edges"]["account__sends__account"] = {"table": str(tmp_path / "all.parquet"), "where": {"kind": "own"}}
    assert digest("shared") == plain


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_type_without_a_table_is_the_ids_in_its_edge_tables(tmp_path: Path, form: str) -> None:
    tables = foreign_tables()
    # shops are named by one end of a table, by both of another, and by a foreign key with nulls
    paid, owner = tables[PAYS]["dst"].to_pylist(), tables["device"]["owner"].to_pylist()
    tables["shop__near__shop"] = pa.table({"src": [*paid[:9], 10_001], "dst": [*paid[9:18], 10_002]})
    ids = {*paid, 10_001, 10_002, *(each for each in owner if each is not None)}
    tables["shop"] = pa.table({"id": sorted(ids)})
    tables["account__pays__shop"] = tables.pop(PAYS)
    del tables["merchant"]
    graph = write_tables(tmp_path, tables, row_group_size=7)
    if form == "csv":
        for name in ("shop", "shop__near__shop", "account__pays__shop", "account__sends__account", "device"):
            pa_csv.write_csv(tables[name], tmp_path / f"{name}.csv")
            graph["edges" if "__" in name else "nodes"][name] = str(tmp_path / f"{name}.csv")
    graph["edges"]["device__of__shop"] = {"table": "device", "src": "id", "dst": "owner"}
    _, plain = ingested(tmp_path / "plain", graph)
    graph["nodes"]["shop"] = None
    _, implied = ingested(tmp_path / "implied", graph)
    assert implied.digest == plain.digest
    assert implied.facts["tables"]["nodes/shop"]["rows_out"] == len(ids)
    section = GraphConfig(**graph)
    found = read_subsample(section, targets=None, smallest=1, largest=100, progress=Silent())
    small = found.subsample.write(str(tmp_path / "small"), one_in=found.levels[-2], chunks=1)
    store, _ = ingested(tmp_path, small.model_dump())
    assert store.facts.types[2].num_nodes > 0


def test_edges_between_ids_of_no_table_train_and_score(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"userId": rng.integers(1, 60, 900), "movieId": rng.integers(1, 40, 900), "rating": rng.random(900)}
    pq.write_table(pa.table(rows), tmp_path / "ratings.parquet")
    config = {
        "name": "ratings",
        "workspace": str(tmp_path / "runs"),
        "graph": {
            "nodes": {"user": None, "movie": None},
            "edges": {"user__rates__movie": str(tmp_path / "ratings.parquet")},
            "src": "userId",
            "dst": "movieId",
            "target": "user__rates__movie",
            "reverse_edges": True,
        },
        "task": {"kind": "link"},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": [5]}},
        "model": {"kind": "sage", "layers": 1, "hidden": 8},
        "train": {"epochs": 1, "metric": "mrr"},
        "cluster": {"kind": "synchronous"},
    }
    found = pipeline.run_quietly(config_from_dict(config))
    assert found.metrics["test.mrr"] > 0


def test_a_plan_reads_foreign_keys_and_shared_tables_too(tmp_path: Path) -> None:
    graph = write_tables(tmp_path, foreign_tables())
    graph["edges"]["device__of__account"] = {"table": "device", "src": "id", "dst": "owner"}
    section = GraphConfig(**graph)
    found = read_subsample(section, targets=None, smallest=1, largest=100, progress=Silent())
    small = found.subsample.write(str(tmp_path / "small"), one_in=found.levels[0], chunks=1)
    store, _ = ingested(tmp_path, small.model_dump())
    assert "device__of__account" in [relation.name for relation in store.facts.relations]


def test_which_rows_are_edges_decides_the_fingerprint(tmp_path: Path) -> None:
    graph = write_tables(tmp_path, foreign_tables())

    def keys_of(table: Any) -> Any:
        section = {**graph, "edges": {**graph["edges"], "device__of__account": table}}
        return ingest_keys(config_from_dict({"name": "typed", "workspace": str(tmp_path), "graph": section}))

    plain = keys_of(graph["nodes"]["device"])
    asked = [{"table": "device"}, {"table": "device", "src": "id"}, {"table": "device", "where": {"owner": 3}}]
    found = [plain, *map(keys_of, asked)]
    assert all(one != other for one, other in combinations(found, 2))
    assert keys_of({"table": "device", "where": {"owner": [3]}}) == found[-1]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"tabel": "x"}, r"graph\.edges\.device__of__account\.tabel: unknown key.*Keys here: table, src, dst, where"),
        ({"src": "id"}, r"device__of__account\.table: required but missing"),
        ({"table": "device", "src": "dst"}, r"'dst' is the column of graph\.src too"),
        ({"table": "device", "where": {"kind": True}}, r"must be text or a number.*quotes"),
    ],
)
def test_edge_tables_that_cannot_be_are_refused_when_the_config_is_read(
    tmp_path: Path, table: dict[str, Any], words: str
) -> None:
    graph = write_tables(tmp_path, foreign_tables())
    graph["edges"]["device__of__account"] = table
    with pytest.raises(ConfigError, match=words):
        config_from_dict({"name": "typed", "workspace": str(tmp_path), "graph": graph})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"table": "device", "src": "id", "dst": "keeper"},
            r"device\.parquet: has no column 'keeper' \(graph\.edges\.device__of__account\.dst\)",
        ),
        ({"table": "device", "src": "id", "dst": "owner", "where": {"k": 1}}, r"has no column 'k' .*where"),
        ({"table": "device", "src": "id", "dst": "half"}, r"'half': id is no whole number in 13 row"),
    ],
)
def test_columns_that_a_foreign_key_needs_are_named(tmp_path: Path, table: dict[str, Any], words: str) -> None:
    graph = write_tables(tmp_path, foreign_tables())
    graph["edges"]["device__of__account"] = table
    with pytest.raises(TableError, match=words):
        ingested(tmp_path, graph)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"id": {"acount": "a"}}, r"graph\.id\.acount: 'acount' is not known: graph\.nodes has account, device, mer"),
        ({"src": {"account": "a"}}, r"graph\.src\.account: 'account' is not known: graph\.edges has account__pays"),
        ({"id": {"account": "label"}}, r"graph\.label: 'label' is the column of graph\.id too"),
        ({"dst": {USES: "src"}}, r"graph\.dst\.account__uses__device: 'src' is the column of graph\.src too"),
        ({"id": {"account": "k"}, "features": {"account": ["k"]}}, r"graph\.features\.account: 'k' is the column of"),
        ({"id": {}}, r"graph\.id"),
        (
            {"nodes": {"account": None, "device": "d", "merchant": "m"}},
            r"graph\.nodes\.account: is null, and the nodes",
        ),
        (
            {"nodes": {"account": "a", "device": "d", "merchant": "m", "shop": None}},
            r"graph\.nodes\.shop: is null, and no edge table has ids of this type",
        ),
    ],
)
def test_maps_that_cannot_be_are_refused_when_the_config_is_read(
    tmp_path: Path, graph: dict[str, Any], words: str
) -> None:
    section = {**write_tables(tmp_path, typed_tables()), **graph}
    with pytest.raises(ConfigError, match=words):
        config_from_dict({"name": "typed", "workspace": str(tmp_path), "graph": section})


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"id": {"device": "nr"}}, r"device\.parquet: has no column 'nr' .*graph\.id: \{device: COLUMN\}"),
        ({"weight": {PAYS: "none"}}, r"graph\.weight\.account__pays__merchant: its edge table has no column 'none'"),
        ({"label": {"account": "none"}}, r"has no column 'none' \(graph\.label\)"),
    ],
)
def test_names_that_a_table_lacks_are_refused(tmp_path: Path, graph: dict[str, Any], words: str) -> None:
    with pytest.raises(TableError, match=words):
        ingested(tmp_path, {**write_tables(tmp_path, typed_tables()), **graph})
