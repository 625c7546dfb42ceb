"""The first mistakes that people make: each has its message before a run starts, and all of a config come at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from gnnflow.config import load_config
from gnnflow.config.loading import read_config
from gnnflow.graph.errors import GnnflowError
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.progress import Silent
from gnnflow.remote.driver import run_here
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.first_look import Look, first_look, refuse_first
from gnnflow.stages.resolve import cluster_for, resolve
from gnnflow.storage.samples import MOST_ROWS

Tables = dict[str, pa.Table]
Change = Callable[[Tables], None]
Mistake = tuple[Change, Callable[[dict[str, Any]], None], list[str]]

_ROWS = 20
_IDS = [f"u{number}" for number in range(_ROWS)]
_ITEMS = [f"i{number}" for number in range(_ROWS)]
_SPLIT = ["train", "train", "valid", "test"] * (_ROWS // 4)


def _nodes() -> pa.Table:
    return pa.table(
        {
            "id": _IDS,
            "age": [float(20 + number) for number in range(_ROWS)],
            "country": ["de", "fr"] * (_ROWS // 2),
            "label": [0, 1] * (_ROWS // 2),
            "split": _SPLIT,
        }
    )


def _edges(sources: list[str], targets: list[str]) -> pa.Table:
    return pa.table({"src": sources, "dst": targets, "amount": [1.5] * len(sources), "weight": [1.0] * len(sources)})


def _plain() -> tuple[Tables, dict[str, Any]]:
    tables = {"nodes": _nodes(), "edges": _edges(_IDS, _IDS[1:] + _IDS[:1])}
    graph = {"nodes": "nodes.parquet", "edges": "edges.parquet", "features": ["age"]}
    return tables, {"name": "first", "graph": graph, "train": {"epochs": 1}}


def _typed() -> tuple[Tables, dict[str, Any]]:
    items = _ITEMS
    tables = {
        "user": _nodes(),
        "item": pa.table({"id": items, "price": [2.0 + number for number in range(_ROWS)], "kind": ["a", "b"] * 10}),
        "buys": _edges(_IDS, items),
        "knows": _edges(_IDS, _IDS[1:] + _IDS[:1]),
    }
    graph = {
        "nodes": {"user": "user.parquet", "item": "item.parquet"},
        "edges": {"user__buys__item": "buys.parquet", "user__knows__user": "knows.parquet"},
        "features": {"user": ["age"], "item": ["price"]},
        "target": "user",
    }
    return tables, {"name": "first", "graph": graph, "train": {"epochs": 1}}


def _look(folder: Path, tables: Tables, content: dict[str, Any]) -> Look:
    return first_look(read_config(_written(folder, tables, content), source="first.yaml"))


def _written(folder: Path, tables: Tables, content: dict[str, Any]) -> str:
    """Write the tables, and return the config with their places."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    content = copy.deepcopy(content) | {"workspace": str(folder / "work")}
    for key in ("nodes", "edges"):
        held = content.get("graph", {}).get(key)
        if isinstance(held, str):
            content["graph"][key] = str(folder / held)
        elif isinstance(held, dict):
            content["graph"][key] = {name: str(folder / uri) for name, uri in held.items()}
    return yaml.safe_dump(content)


def _with(name: str, column: str, values: list[Any] | pa.Array) -> Change:
    def change(tables: Tables) -> None:
        held = tables[name]
        kept = held.drop_columns([column]) if column in held.column_names else held
        tables[name] = kept.append_column(column, values if isinstance(values, pa.Array) else pa.array(values))

    return change


def _renamed(name: str, column: str, other: str) -> Change:
    def change(tables: Tables) -> None:
        held = tables[name]
        tables[name] = held.rename_columns([other if each == column else each for each in held.column_names])

    return change


def _same(tables: Tables) -> None:
    """Change nothing."""


def _set(keys: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of a config: `a.b=value`."""

    def change(content: dict[str, Any]) -> None:
        *path, last = keys.split(".")
        for key in path:
            content = content.setdefault(key, {})
        content[last] = value

    return change


_AGES: list[Any] = [None if number == 3 else float(number) for number in range(_ROWS)]
_TWICE = ["u0", *_IDS[:-1]]
_KEEP = _set("seed", 0)

# the change of the tables, the change of the config, and parts of the one message
_PLAIN_MISTAKES: dict[str, Mistake] = {
    "a key in the wrong section": (_same, _set("epochs", 3), ["epochs: unknown key", "elsewhere: train.epochs"]),
    "a misspelt key": (_same, _set("train.epohcs", 3), ["train.epohcs", "Did you mean 'epochs'?"]),
    "a misspelt kind": (_same, _set("model", {"kind": "gatt"}), ["model.kind", "Did you mean 'gat'?"]),
    "a key of another kind": (_same, _set("model", {"heads": 2}), ["where model.kind is gcn", "with heads: gat,"]),
    "a key of another strategy": (
        _same,
        _set("train", {"strategy": "global-batch", "batch_size": 8}),
        ["train.batch_size: unknown key where train.strategy is global-batch", "Kinds with batch_size: mini-batch"],
    ),
    "a number as text": (_same, _set("train.lr", "fast"), ["train.lr: 'fast' is not allowed: must be a number"]),
    "more ranks than workers": (_same, _set("train.workers", 4), ["train.workers", "Set cluster.workers to 4"]),
    "no name": (_same, lambda content: content.pop("name"), ["name: required but missing"]),
    "a missing file": (_same, _set("graph.nodes", "accounts.parquet"), ["accounts.parquet: no such table"]),
    "ids of another name": (
        _renamed("nodes", "id", "account_id"),
        _KEEP,
        ["has no column 'id' (graph.id)", "`graph: {id: account_id}`"],
    ),
    "ends of another name": (
        _renamed("edges", "src", "from_account"),
        _set("graph.dst", "to_account"),
        ["2 things", "no column 'src' (graph.src)", "no column 'to_account' (graph.dst)"],
    ),
    "a feature that is not there": (
        _same,
        _set("graph.features", ["age", "agee"]),
        ["no column 'agee'", "age, country"],
    ),
    "ids of two types": (_with("edges", "src", list(range(_ROWS))), _KEEP, ["'src' holds int64 ids", "string"]),
    "an id twice": (_with("nodes", "id", _TWICE), _KEEP, ["'id': id appears more than once", "Keep one row per id"]),
    "an end that is no node": (_with("edges", "dst", ["u99", *_IDS[1:]]), _KEEP, ["dst is not an id", "row 0: 'u99'"]),
    "an id written otherwise": (_with("edges", "dst", ["U0", *_IDS[1:]]), _KEEP, ["'U0' differs from it only in case"]),
    "a negative weight": (_with("edges", "weight", [-1.0] * _ROWS), _KEEP, ["'weight': weight is negative"]),
    "a class below zero": (_with("nodes", "label", [-7, 1] * 10), _KEEP, ["label out of range"]),
    "another word for a split": (
        _with("nodes", "split", ["training", "valid"] * 10),
        _KEEP,
        ["split is none of train, valid, test", "'training'"],
    ),
    "an empty table": (lambda tables: tables.update(nodes=_nodes().slice(0, 0)), _KEEP, ["the table has no rows"]),
    "a metric of other labels": (_same, _set("train.metric", "mae"), ["train.metric: mae is not defined for single"]),
}
_TYPED_MISTAKES: dict[str, Mistake] = {
    "no target": (_same, lambda content: content["graph"].pop("target"), ["graph.target: required", "item, user"]),
    "a target that is no type": (_same, _set("graph.target", "users"), ["graph.target: 'users' is not known"]),
    "a relation of unknown types": (
        _same,
        _set("graph.edges", {"user__buys__product": "buys.parquet"}),
        ["graph.edges: 'user__buys__product' does not join two of the node types"],
    ),
    "edges as one path": (_same, _set("graph.edges", "buys.parquet"), ["one is a path, the other a map of types"]),
    "features of no type": (_same, _set("graph.features", {"usr": ["age"]}), ["graph.features.usr", "not known"]),
    "nothing leads to the target": (
        _same,
        _set("graph.target", "item"),
        ["graph.label: the node table of item has no label column 'label'"],
    ),
    "no edges to the target": (
        _same,
        _set("graph.edges", {"user__buys__item": "buys.parquet"}),
        ["no relation leads to user", "Set graph.reverse_edges: true"],
    ),
    "a missing table of a type": (_same, _set("graph.nodes.item", "gone.parquet"), ["gone.parquet: no such table"]),
    "ids of one type of another name": (_renamed("item", "id", "item_id"), _KEEP, ["item.parquet", "no column 'id'"]),
    "ends of one relation of another name": (_renamed("knows", "dst", "friend"), _KEEP, ["knows.parquet", "'dst'"]),
    "a feature that its type has not": (_same, _set("graph.features.item", ["age"]), ["item.parquet", "'age'"]),
    "no table has a shared feature": (
        _same,
        _set("graph.features", ["size"]),
        ["no node table has any of the columns"],
    ),
    "an end that is no node of its type": (
        _with("buys", "dst", ["i99"] * _ROWS),
        _KEEP,
        ["buys.parquet", "dst is not an id of the node table of item"],
    ),
    "ids of a relation of another type": (
        _with("buys", "dst", list(range(_ROWS))),
        _KEEP,
        ["'dst' holds int64 ids", "of the node table of item holds string"],
    ),
    "an id twice in a type": (_with("user", "id", _TWICE), _KEEP, ["user.parquet", "id appears more than once"]),
    "a null id": (_with("item", "id", pa.array([None, *_ITEMS[1:]])), _KEEP, ["item.parquet", "null id"]),
    "no row in valid": (_with("user", "split", ["train", "test"] * 10), _KEEP, ["no row is in split 'valid'"]),
    "an attribute that no relation has": (
        _same,
        _set("graph.edge_features", ["size"]),
        ["graph.edge_features", "'size'"],
    ),
    "a link task without a relation": (
        _same,
        _set("task", {"kind": "link"}),
        ["2 things", "graph.target: 'user' is a type of nodes, where task.kind is link", "train.metric: accuracy"],
    ),
    "hops of other layers": (_same, _set("flat.hops", 1), ["flat.hops: 1 is not allowed"]),
}


def _cases(mistakes: dict[str, Any]) -> list[Any]:
    return [pytest.param(case, id=name) for name, case in mistakes.items()]


def test_a_graph_without_mistakes_is_stopped_by_nothing(tmp_path):
    for number, (tables, content) in enumerate((_plain(), _typed())):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not _look(folder, tables, content).stops


@pytest.mark.parametrize("case", _cases(_PLAIN_MISTAKES))
def test_a_first_mistake_has_its_message(tmp_path, case):
    _finds(tmp_path, *_plain(), case)


@pytest.mark.parametrize("case", _cases(_TYPED_MISTAKES))
def test_a_first_mistake_on_a_typed_graph_has_its_message(tmp_path, case):
    _finds(tmp_path, *_typed(), case)


def _finds(folder: Path, tables: Tables, content: dict[str, Any], case: Mistake) -> None:
    spoil, change, said = case
    spoil(tables)
    change(content)
    text = _written(folder, tables, content)
    stops = first_look(read_config(text)).stops
    heading = [f"{len(stops)} things"]
    shown = "\n".join([*heading, *map(str, stops)])
    assert all(part in shown for part in said), shown
    # one mistake gives one message, or one for each end
    assert len(stops) == (2 if said[0] == "2 things" else 1), shown
    with pytest.raises(GnnflowError):  # a run says the same, before its first stage
        perform(StageContext(refuse_first(read_config(text)), Synchronous(), Silent()), "run")
    assert not (folder / "work" / "artifacts").exists()


def test_all_mistakes_of_a_config_and_its_tables_come_in_one_answer(tmp_path):
    tables, content = _typed()
    for spoil in (
        _with("user", "age", [str(age) for age in range(_ROWS)]),
        _with("buys", "dst", ["i99"] * _ROWS),
        _renamed("knows", "src", "from"),
    ):
        spoil(tables)
    for change in (
        _set("epochs", 3),
        _set("train", {"strategy": "global-batch", "batch_size": 8, "lr": "fast"}),
        _set("model", {"kind": "sage", "layers": 0}),
        _set("graph.features.item", ["price", "size"]),
        _set("graph.nodes.shop", "shop.parquet"),
    ):
        change(content)
    text = _written(tmp_path, tables, content)
    said = "\n".join(map(str, first_look(read_config(text)).stops))
    for part in (
        "epochs: unknown key",
        "train.batch_size: unknown key",
        "train.lr: 'fast'",
        "model.layers: 0",
        "shop.parquet: no such table",
        "column 'age' is",
        "no column 'size'",
        "'dst': dst is not an id of the node table of item",
        "no column 'src'",
    ):
        assert part in said, f"{part}\n{said}"
    assert said.count("\n") == len(("epochs", "batch", "lr", "layers", "shop", "age", "size", "dst", "src")) - 1
    with pytest.raises(GnnflowError, match="9 things would stop this run"):
        refuse_first(read_config(text))


def test_the_look_shows_columns_roles_missing_values_classes_splits_and_keys(tmp_path):
    tables, content = _plain()
    _with("nodes", "income", _AGES)(tables)
    look = _look(tmp_path, tables, content)
    shown = "\n".join(look.lines())
    nodes = {column.name: column for column in look.tables[0].columns}
    assert nodes["id"].role == "id"
    assert nodes["age"].role == "feature (numerical)"
    assert nodes["country"].role == "not read (categorical)"
    assert nodes["income"].missing == 1 / _ROWS
    assert nodes["country"].examples == ("'de'", "'fr'")
    assert look.targets.classes == {"0": 10, "1": 10}
    assert look.targets.splits == {"train": 10, "valid": 5, "test": 5}
    assert "train (strategy: mini-batch): epochs=1, lr" in shown
    assert "cluster   none" in shown
    assert "Nothing that can be seen" in shown
    assert look.as_json()["tables"][0]["rows"] == _ROWS


@pytest.mark.parametrize("form", ["parquet", "csv", "arrow"])
def test_a_large_table_is_judged_by_its_first_rows_alone(tmp_path, form):
    """A later value may fill a column that is empty in the sample, so nothing may be said about it."""
    rows = 40 * MOST_ROWS
    empty = pa.array([None] * (rows - 1) + [1.5])
    table = pa.table({"id": range(rows), "f": empty, "label": [0, 1] * (rows // 2)})
    folder = tmp_path / "nodes"
    folder.mkdir()
    if form == "csv":
        pa_csv.write_csv(table, folder / "part.csv")
    elif form == "arrow":
        with pa.ipc.new_file(folder / "part.arrow", table.schema) as out:
            out.write_table(table, max_chunksize=rows)
    else:
        pq.write_table(table, folder / "part.parquet")
    pq.write_table(pa.table({"src": [0, 1], "dst": [rows - 1, 2]}), tmp_path / "edges.parquet")
    graph = {
        "nodes": str(folder),
        "edges": str(tmp_path / "edges.parquet"),
        "features": ["f"],
        "on_bad_rows": "quarantine",
    }
    content = {"name": "large", "graph": graph, "task": {"split": {"kind": "random"}}, "workspace": str(tmp_path / "w")}
    look = first_look(read_config(yaml.safe_dump(content)))
    assert not look.stops
    nodes = look.tables[0]
    assert nodes.sampled < rows
    assert abs(nodes.rows - rows) < rows / 10
    if form == "parquet":  # the footer counts the nulls of all rows
        assert {column.name: column.missing for column in nodes.columns}["f"] == (rows - 1) / rows


@pytest.mark.parametrize("task", ["node", "link"])
def test_files_that_the_sample_does_not_reach_have_the_same_columns(tmp_path, monkeypatch, task):
    monkeypatch.setattr("gnnflow.storage.samples.MOST_ROWS", _ROWS // 2)
    tables, content = _plain()
    content["task"] = {"kind": task}
    if task == "link":
        content["train"] = {"metric": "mrr"}
    text = _written(tmp_path, tables, content)
    (folder := tmp_path / "many").mkdir()
    pq.write_table(tables["nodes"], folder / "1.parquet")
    pq.write_table(_cast(tables["nodes"].slice(0, 0), "age", pa.string()), folder / "2.parquet")
    written = yaml.safe_load(text)
    written["graph"]["nodes"] = str(folder)
    (stop,) = first_look(read_config(yaml.safe_dump(written))).stops
    assert "column 'age' is string, in" in str(stop)
    assert stop.where.endswith("2.parquet")


def _cast(table: pa.Table, name: str, to: pa.DataType) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, table[name].cast(to))


def test_a_small_graph_starts_no_workers_unless_it_is_asked_to(tmp_path):
    tables, content = _plain()
    chosen = {}
    for name, more in {
        "default": {},
        "asked": {"cluster": {"kind": "local"}},
        "ranks": {"train": {"workers": 2}},
    }.items():
        run = resolve(load_config(_written(tmp_path, tables, content | more), environment={}))
        chosen[name] = cluster_for(run).kind
    assert chosen == {"default": "synchronous", "asked": "local", "ranks": "local"}
    said: list[str] = []  # an operator without a cluster has the same rule
    run_here("ingest", load_config(_written(tmp_path, tables, content), environment={}), say=said.append)
    assert any("the work runs in this process" in line for line in said)
