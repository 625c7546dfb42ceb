"""Two small graphs without mistakes, and the changes that make one: of the tables, of the config, of other files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

Tables = dict[str, pa.Table]
Content = dict[str, Any]
Spoil = Callable[[Tables], None]
Change = Callable[[Content], None]

ROWS = 20
IDS = [f"u{number}" for number in range(ROWS)]
ITEMS = [f"i{number}" for number in range(ROWS)]
SPLIT = ["train", "train", "valid", "test"] * (ROWS // 4)
NUMBERS = [*range(ROWS)]
HALVES = [number + 0.5 for number in NUMBERS]


def same(_held: Any) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Mistake:
    """One mistake, and parts of its one message. mended: the lines of the config that the message proposes.

    files: writes other files into the folder of the tables.
    """

    said: tuple[str, ...]
    change: Change = same
    spoil: Spoil = same
    mended: Change | None = None
    files: Callable[[Path], None] = same


def node_table() -> pa.Table:
    """Return a table of nodes with labels and splits."""
    return pa.table(
        {
            "id": IDS,
            "age": [float(20 + number) for number in NUMBERS],
            "country": ["de", "fr"] * (ROWS // 2),
            "label": [0, 1, 1, 0] * (ROWS // 4),
            "split": SPLIT,
        }
    )


def edge_table(sources: list[Any], targets: list[Any]) -> pa.Table:
    """Return a table of edges between these ids."""
    return pa.table({"src": sources, "dst": targets, "amount": [1.5] * len(sources), "weight": [1.0] * len(sources)})


def plain_graph() -> tuple[Tables, Content]:
    """Return the tables and the config of a graph without types."""
    tables = {"nodes": node_table(), "edges": edge_table(IDS, IDS[1:] + IDS[:1])}
    graph = {"nodes": "nodes.parquet", "edges": "edges.parquet", "features": ["age"]}
    return tables, {"name": "first", "graph": graph, "train": {"epochs": 1}}


def typed_graph() -> tuple[Tables, Content]:
    """Return the tables and the config of a shop: users who buy items and know each other, and items' categories."""
    items = {"id": ITEMS, "price": HALVES, "kind": ["a", "b"] * (ROWS // 2), "category_id": ["c0", "c1"] * (ROWS // 2)}
    tables = {
        "user": node_table(),
        "item": pa.table(items),
        "category": pa.table({"id": ["c0", "c1"], "size": [1.0, 2.0]}),
        "buys": edge_table(IDS, ITEMS),
        "knows": edge_table(IDS, IDS[1:] + IDS[:1]),
    }
    graph = {
        "nodes": {"user": "user.parquet", "item": "item.parquet", "category": "category.parquet"},
        "edges": {
            "user__buys__item": "buys.parquet",
            "user__knows__user": "knows.parquet",
            "item__in__category": {"table": "item", "src": "id", "dst": "category_id"},
        },
        "features": {"user": ["age"], "item": ["price"], "category": ["size"]},
        "target": "user",
    }
    return tables, {"name": "first", "graph": graph, "train": {"epochs": 1}}


def written(folder: Path, tables: Tables, content: Content) -> str:
    """Write the tables, and return the config with their places."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    content = copy.deepcopy(content) | {"workspace": str(folder / content.get("workspace", "work"))}
    graph = content["graph"]
    return yaml.safe_dump(content | {"graph": {key: _placed(key, held, folder) for key, held in graph.items()}})


def _placed(key: str, held: Any, folder: Path) -> Any:
    """Return a location as a path of the folder; other values stay."""
    if key in ("nodes", "edges") and isinstance(held, dict):
        return {name: _placed("nodes", each, folder) for name, each in held.items()}
    is_file = key in ("nodes", "edges", "table") and isinstance(held, str) and "." in held and ":" not in held
    return str(folder / held) if is_file and "$" not in held else held


def column(name: str, column: str, values: list[Any] | pa.Array) -> Spoil:
    """Return a change of a table: a column with other values, or one more."""

    def spoil(tables: Tables) -> None:
        held = tables[name]
        kept = held.drop_columns([column]) if column in held.column_names else held
        tables[name] = kept.append_column(column, values if isinstance(values, pa.Array) else pa.array(values))

    return spoil


def row_twice(name: str) -> Spoil:
    """Return a change of a table: its first row a second time."""

    def spoil(tables: Tables) -> None:
        tables[name] = pa.concat_tables([tables[name].slice(0, 1), tables[name]])

    return spoil


def without(name: str, *columns: str) -> Spoil:
    """Return a change of a table: no such columns."""

    def spoil(tables: Tables) -> None:
        tables[name] = tables[name].drop_columns(list(columns))

    return spoil


def renamed(name: str, column: str, other: str) -> Spoil:
    """Return a change of a table: another name of a column."""

    def spoil(tables: Tables) -> None:
        held = tables[name]
        tables[name] = held.rename_columns([other if each == column else each for each in held.column_names])

    return spoil


def empty(name: str) -> Spoil:
    """Return a change of a table: no rows."""

    def spoil(tables: Tables) -> None:
        tables[name] = tables[name].slice(0, 0)

    return spoil


def put(keys: str, value: Any) -> Change:
    """Return a change of a config: `a.b=value`."""

    def change(content: Content) -> None:
        *path, last = keys.split(".")
        for key in path:
            content = content.setdefault(key, {})
        content[last] = copy.deepcopy(value)

    return change


def left_out(keys: str) -> Change:
    """Return a change of a config: no such key."""

    def change(content: Content) -> None:
        *path, last = keys.split(".")
        for key in path:
            content = content[key]
        content.pop(last)

    return change


def both(*changes: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return several changes as one."""

    def change(held: Any) -> None:
        for each in changes:
            each(held)

    return change
