"""Graphs of several types, one table spoilt: the refusal names the table, the type or relation, the row and a fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.robustness.case import Case, refused
from tests.robustness.inputs import Inputs, Spoil, both, command, fixed, key, write_columns

Table = dict[str, Any]
Change = Callable[[Table], Any]

USERS, ITEMS, EDGES = 40, 20, 90
LIKES, FOLLOWS = "user__likes__item", "user__follows__user"


def cases() -> Iterator[Case]:
    yield from _nodes()
    yield from _edges()
    yield from _targets()
    yield from _pairs()
    yield from _configs()


def _nodes() -> Iterator[Case]:
    infinite, texts = float("inf"), ["12"] * ITEMS
    for name, table, change, *words in (
        ("an id twice in one type", "item", _put("id", 7, 1003), "'id'", "row 7", "one row per id"),
        ("a null id in one type", "item", _put("id", 4, None), "null id", "row 4", "Give every row"),
        ("infinity in one type's features", "item", _put("price", 6, infinite), "'price'", "row 6", "Fill"),
        ("a ragged list in one type", "user", _ragged, "'x'", "row 5", "lists of one length"),
        ("text among one type's features", "item", _column("price", texts), "'price'", "Write numbers"),
        ("a type without rows", "item", _no_rows, "no rows", "graph.nodes.item"),
        ("a type without its id column", "item", _drop("id"), "'id'", "graph.id"),
        ("a feature that one type lacks", "item", _drop("price"), "'price'", "graph.features.item"),
    ):
        yield refused(f"types: {name}", _typed(table, change), f"{table}.parquet", *words)


def _edges() -> Iterator[Case]:
    texts, stars = ["1"] * EDGES, f"graph.edge_features.{LIKES}"
    for name, table, change, *words in (
        ("an edge to a node of another type", LIKES, _put("dst", 8, 3), "'dst'", "node table of item", "row 8"),
        ("an edge from a node of another type", LIKES, _put("src", 9, 1003), "'src'", "node table of user", "row 9"),
        ("a negative weight in one relation", LIKES, _put("weight", 2, -1.0), "'weight'", "row 2", "zero or more"),
        ("a null end in one relation", FOLLOWS, _put("src", 11, None), "null id", "'src'", "row 11", "Give every row"),
        ("infinity in one relation's attributes", LIKES, _put("stars", 5, float("inf")), "'stars'", "row 5", "Fill"),
        ("a relation without rows or types", FOLLOWS, _no_rows, "'src'", "is null, not an id"),
        ("a relation without one end", FOLLOWS, _drop("dst"), "'dst'", "graph.dst"),
        ("ends as text where ids are numbers", LIKES, _column("dst", texts), "'dst'", "node table of item"),
        ("an attribute that its relation lacks", LIKES, _drop("stars"), "'stars'", stars),
        ("text among one relation's attributes", LIKES, _column("stars", texts), "'stars'", "Write numbers"),
    ):
        yield refused(f"types: {name}", _typed(table, change), f"{table}.parquet", *words)


def _targets() -> Iterator[Case]:
    table, everyone = "node table of user", ["test"] * USERS
    for name, change, *words in (
        ("a target type without labels", _drop("label"), table, "graph.label", "'label'", "set graph.target"),
        ("no target to train on", _column("split", everyone), "user.parquet", "'split'", "'train'"),
        ("a negative class of a target", _put("label", 12, -4), "user.parquet", "'label'", "row 12"),
    ):
        yield refused(f"types: {name}", both(_typed("user", change), command("run")), *words, leaves=("runs",))
    named = both(_typed("user", _drop("split")), key("graph.split", "part"), command("run"))
    yield refused("types: a split that is not there", named, table, "graph.split", "'part'", "Name", leaves=("runs",))


def _pairs() -> Iterator[Case]:
    """Yield tables that lack what a task of one relation's edges reads, or hold what it cannot."""
    edge, link = {"kind": "edge"}, {"kind": "link", "split": {"kind": "column"}}
    by_time = {"kind": "link", "split": {"kind": "time"}}
    bad = {"label": [0] * EDGES, "split": [*["train"] * (EDGES - 1), "holiday"]}
    negative = {"label": [*[0] * 7, -4, *[1] * (EDGES - 8)], "split": ["train", "valid"] * (EDGES // 2)}
    for name, task, table, change, *words in (
        ("labels that the relation lacks", edge, LIKES, _column("split", ["train"] * EDGES), "'label'", "graph.label"),
        ("splits that the relation lacks", link, LIKES, _drop("stars"), "'split'", "task.split.kind is column"),
        ("a split of an edge that is none", edge, LIKES, _columns(bad), "'split'", "row 89", "holiday"),
        ("a negative class of an edge", edge, LIKES, _columns(negative), "'label'", "row 7"),
        ("times that the relation lacks", by_time, LIKES, _drop("weight"), "'timestamp'", "graph.timestamp"),
        ("times that are text", by_time, LIKES, _column("timestamp", ["now"] * EDGES), "'timestamp'"),
    ):
        features = key("graph.edge_features", [])
        settings = both(_typed(table, change), features, key("graph.target", LIKES), key("task", task))
        metric = key("train.metric", "mrr" if task["kind"] == "link" else "accuracy")
        yield refused(f"types: {name}", both(settings, metric), f"{table}.parquet", *words)


def _configs() -> Iterator[Case]:
    gone = both(_typed(), key(f"graph.edges.{LIKES}", "nowhere.parquet"))
    yield refused("types: a relation whose table is not there", gone, "nowhere.parquet", "no such table")
    list_of_none = both(_typed(), key("graph.features", ["height"]))
    yield refused("types: a feature that no type has", list_of_none, "graph.features", "height", "{type: columns}")
    for across in ("mean", "max", "attention"):
        spoil = key("model.across", across)
        yield refused(f"types: across is {across} without types", spoil, "model.across", across, "Leave it out")
    han = key("model", {"kind": "han", "across": "sum"})
    yield refused("types: han joins by sum without types", han, "model.across", "'sum'", "Leave it out")


def _typed(table: str = "", change: Change | None = None) -> Spoil:
    """Write users and items, what users like and whom they follow, one table changed, and a config that names them."""

    def spoil(inputs: Inputs) -> None:
        tables = _tables()
        if change is not None:
            change(tables[table])
        inputs.config["graph"] = {
            "nodes": {name: str(_file(inputs, name)) for name in tables if "__" not in name},
            "edges": {name: str(_file(inputs, name)) for name in tables if "__" in name},
            "features": {"user": ["x"], "item": ["price"]},
            "edge_features": {LIKES: ["stars"]},
            "target": "user",
            "partitions": 2,
        }
        inputs.after_write.append(lambda _: [write_columns(_file(inputs, name), held) for name, held in tables.items()])

    return spoil


def _file(inputs: Inputs, table: str) -> Any:
    return inputs.folder / f"{table}.parquet"


def _tables() -> dict[str, Table]:
    """Return users with ids from 0, items with ids from 1000, and random edges of both relations."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, (USERS, ITEMS, USERS, USERS), (EDGES, 4)).T.tolist()
    return {
        "user": {
            "id": list(range(USERS)),
            "x": fixed(rng.random((USERS, 3), dtype=np.float32)),
            "label": [number % 2 for number in range(USERS)],
            "split": [("train", "valid", "test")[number % 3] for number in range(USERS)],
        },
        "item": {"id": list(range(1000, 1000 + ITEMS)), "price": rng.random(ITEMS).tolist()},
        LIKES: {
            "src": ends[0],
            "dst": [1000 + end for end in ends[1]],
            "weight": rng.random(EDGES).tolist(),
            "stars": rng.random(EDGES).tolist(),
        },
        FOLLOWS: {"src": ends[2], "dst": ends[3]},
    }


def _column(column: str, values: list[Any]) -> Change:
    return lambda table: table.update({column: values})


def _columns(columns: Table) -> Change:
    return lambda table: table.update(columns)


def _put(column: str, row: int, value: Any) -> Change:
    def change(table: Table) -> None:
        table[column][row] = value

    return change


def _drop(column: str) -> Change:
    return lambda table: table.pop(column)


def _no_rows(table: Table) -> None:
    table.update({name: held[:0] for name, held in table.items()})


def _ragged(table: Table) -> None:
    lists = table["x"].to_pylist()
    lists[5] = lists[5][:2]
    table["x"] = lists
