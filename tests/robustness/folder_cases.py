"""Tables in folders: what lies beside them, files that differ, columns that only folders' names hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.robustness.case import Case, accepted, either, refused
from tests.robustness.inputs import (
    Inputs,
    Spoil,
    as_type,
    both,
    disk,
    ids_like,
    key,
    node,
    write_columns,
)

Rewrite = Callable[[bytes], bytes]


BESIDE = {  # what writers, editors and file systems leave beside a table's files
    "_temporary": "_temporary/0/part-0.parquet",
    "hidden folder": ".staging/part-0.parquet",
    "notebook checkpoints": ".ipynb_checkpoints/part-0-checkpoint.parquet",
    "hidden in a good folder": "more/.hidden/part-0.parquet",
    "committed marker folder": "_committed_1/part-0.parquet",
    "hidden file": ".part-0.parquet",
    "underscore file": "_metadata.parquet",
    "Spark attempt": "_temporary/attempt_1/part-0.snappy.parquet",
}


HARMLESS = (
    "_SUCCESS",
    ".part-0.parquet.crc",
    "README.md",
    "part-0.parquet.tmp",
    "_metadata",
    "Thumbs.db",
    "part-0.parquet~",
)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _folders()
    yield from _differing()
    yield from _partitioned()


def in_folder(table: str, *more: Spoil, parts: int = 2) -> Spoil:
    """Write a table as a folder of part files."""

    def spoil(inputs: Inputs) -> None:
        folder = inputs.folder / table
        columns = getattr(inputs, table)
        size = len(next(iter(columns.values())))
        for part in range(parts):
            rows = slice(part * size // parts, (part + 1) * size // parts)
            write_columns(folder / f"part-{part}.parquet", {name: held[rows] for name, held in columns.items()})
        for each in more:
            each(inputs)

    return both(key(f"graph.{table}", ""), disk(lambda inputs: _points(inputs, table)), disk(spoil))


def _points(inputs: Inputs, table: str) -> None:
    text = inputs.config_file.read_text()
    inputs.config_file.write_text(text.replace(f'"{table}": ""', f'"{table}": "{inputs.folder / table}"'))


def _copy(table: str, name: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        target = inputs.folder / table / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(inputs.folder / table / "part-0.parquet", target)

    return spoil


def _part(table: str, change: Callable[[pa.Table], pa.Table], number: int = 1) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        file = inputs.folder / table / f"part-{number}.parquet"
        pq.write_table(change(pq.read_table(file)), file)

    return spoil


def _by_glob(table: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        text = inputs.config_file.read_text()
        inputs.config_file.write_text(text.replace(f'/{table}"', f'/{table}/*.parquet"'))

    return spoil


_OF_DELTA = ("descriptors", "threads")  # the runtime in Rust of what reads Delta Lake stays


def _folders() -> Iterator[Case]:
    for table in ("nodes", "edges"):
        yield accepted(f"{table} in a folder", in_folder(table))
        yield accepted(f"{table} in eleven files", in_folder(table, parts=11))
        for name, place in BESIDE.items():
            yield accepted(f"{table} in a folder beside {name}", in_folder(table, _copy(table, place)))
        yield accepted(
            f"{table} in a folder beside markers",
            in_folder(table, *(disk_file(table, name) for name in HARMLESS)),
        )
        yield accepted(f"{table} in folders below", in_folder(table, _moved(table)))
        for name, log in {"Delta Lake": "_delta_log/00000.json", "Hudi": ".hoodie/hoodie.properties"}.items():
            spoil = in_folder(table, _copy(table, log))
            words = (table, f"a table of {name}", log.split("/")[0])
            yield refused(f"{table} in a table of {name}", spoil, *words, keeps=_OF_DELTA)
        whole = both(in_folder(table, _copy(table, "_delta_log/00000.json")), disk(_by_glob(table)))
        yield accepted(f"{table} of Delta Lake by a glob", whole)
        broken = in_folder(table, lambda i, table=table: (i.folder / table / "z.parquet").symlink_to(i.folder / "gone"))
        yield refused(
            f"a folder of {table} with a broken link", broken, "z.parquet", "link to a file that is not there"
        )
        yield refused(
            f"{table} in an empty folder",
            in_folder(table, lambda i, table=table: [f.unlink() for f in (i.folder / table).iterdir()]),
            table,
            "no such table|empty|no file",
        )
        yield refused(
            f"{table}: one file of the folder is empty",
            in_folder(table, disk_file(table, "part-9.parquet")),
            "part-9.parquet",
        )
        yield refused(
            f"{table}: one file of the folder lacks a column",
            in_folder(table, _part(table, lambda held: held.drop_columns([held.column_names[1]]))),
            "part-1.parquet",
        )
        yield either(
            f"{table}: one file has its columns in another order",
            in_folder(table, _part(table, lambda held: held.select(held.column_names[::-1]))),
            "part-1.parquet",
        )
        yield either(
            f"{table}: one file has a further column",
            in_folder(table, _part(table, lambda held: held.append_column("more", pa.array([1] * held.num_rows)))),
            "part-1.parquet",
        )
        yield accepted(f"{table}: one file has no rows", in_folder(table, _no_rows(table)))
        yield either(
            f"{table}: a file of another format in the folder",
            in_folder(table, disk_file(table, "part-9.csv", b"id\n1\n")),
            "part-9.csv|part-0.parquet",
        )


def _differing() -> Iterator[Case]:
    for column, kinds in {
        "id": (pa.int32(), pa.uint64(), pa.string(), pa.float64()),
        "label": (pa.int8(), pa.float64(), pa.string(), pa.bool_()),
        "split": (pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
        "x": (pa.list_(pa.float64()), pa.large_list(pa.float32())),
    }.items():
        for kind in kinds:
            yield either(
                f"nodes: {column} is {kind} in one file",
                in_folder("nodes", _retyped("nodes", column, kind)),
                f"'{column}'|{column}",
            )
    for column, kinds in {
        "src": (pa.int32(), pa.string()),
        "weight": (pa.int64(), pa.string(), pa.float32()),
        "amount": (pa.int64(), pa.string()),
    }.items():
        for kind in kinds:
            yield either(
                f"edges: {column} is {kind} in one file",
                both(_whole, in_folder("edges", _retyped("edges", column, kind))),
                f"'{column}'|{column}",
            )


def _whole(inputs: Inputs) -> None:
    inputs.edges["weight"] = [float(1 + n % 4) for n in range(180)]
    inputs.edges["amount"] = [float(n % 7) for n in range(180)]


def _retyped(table: str, column: str, kind: pa.DataType) -> Spoil:
    def change(held: pa.Table) -> pa.Table:
        place = held.column_names.index(column)
        values = held.column(place)
        cast = as_type(values.to_pylist(), kind) if pa.types.is_dictionary(kind) else values.cast(kind)
        return held.set_column(place, column, cast)

    return _part(table, change)


def _no_rows(table: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        pq.write_table(
            pq.read_table(inputs.folder / table / "part-0.parquet").slice(0, 0),
            inputs.folder / table / "part-9.parquet",
        )

    return spoil


def disk_file(table: str, name: str, content: bytes = b"") -> Spoil:
    return lambda inputs: (inputs.folder / table / name).write_bytes(content)


def _moved(table: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        (inputs.folder / table / "deep" / "er").mkdir(parents=True)
        (inputs.folder / table / "part-1.parquet").rename(inputs.folder / table / "deep" / "er" / "part-1.parquet")

    return spoil


def _partitioned() -> Iterator[Case]:
    """Columns that only the folders' names hold, as Spark and pyarrow write them."""
    yield accepted(
        "hive: weight",
        both(lambda i: i.edges.update(weight=[float(1 + n % 3) for n in range(180)]), _hive("edges", "weight")),
    )
    yield accepted("hive: label", _hive("nodes", "label"))
    yield accepted("hive: split", _hive("nodes", "split"))
    yield accepted(
        "hive: an edge attribute",
        both(lambda i: i.edges.update(amount=[float(n % 3) for n in range(180)]), _hive("edges", "amount")),
    )
    yield accepted(
        "hive: a feature",
        both(node(age=[float(n % 4) for n in range(60)]), key("graph.features", ["x", "age"]), _hive("nodes", "age")),
    )
    yield accepted(
        "hive: a column that nobody asks for",
        both(node(day=[f"2024-01-0{1 + n % 3}" for n in range(60)]), _hive("nodes", "day")),
    )
    yield accepted("hive: two levels", both(_hive("nodes", "split", "label")))
    yield either("hive: escaped text ids", both(ids_like(lambda n: f"a b/{n}"), _hive("nodes", "id")), "id")
    names = both(node(label=[("a", "b")[n % 2] for n in range(60)]), _hive("nodes", "label"))
    numbered = both(names, lambda inputs: inputs.expected.update(label=[n % 2 for n in range(60)]))
    yield accepted("hive: label that is no number", numbered)
    yield refused(
        "hive: a negative weight",
        both(lambda i: i.edges.update(weight=[float(n % 2) - 0.5 for n in range(180)]), _hive("edges", "weight")),
        "weight",
        "negative",
    )


def _hive(table: str, *columns: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        held = pa.table(getattr(inputs, table))
        groups: dict[tuple[object, ...], list[int]] = {}
        for row, values in enumerate(zip(*(held[column].to_pylist() for column in columns), strict=True)):
            groups.setdefault(values, []).append(row)
        shutil.rmtree(inputs.folder / table, ignore_errors=True)
        for values, rows in groups.items():
            steps = [f"{column}={quote(str(value), safe='')}" for column, value in zip(columns, values, strict=True)]
            target = inputs.folder.joinpath(table, *steps, "part-0.parquet")
            target.parent.mkdir(parents=True)
            pq.write_table(held.take(rows).drop_columns(list(columns)), target)

    return both(key(f"graph.{table}", ""), disk(lambda inputs: _points(inputs, table)), disk(spoil))
