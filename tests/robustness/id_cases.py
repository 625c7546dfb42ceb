"""Ids: whatever a table spells must come back letter by letter, in every format; what cannot be an id is refused."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, either, refused
from tests.robustness.inputs import (
    FORMATS,
    Inputs,
    at,
    both,
    command,
    edge,
    expect,
    formats,
    ids_like,
    key,
    node,
    typed,
    without,
)
from tests.robustness.stored import differences, predictions_of

# What type inference would alter, refuse or take for something else. Each is the id of node number n.
SPELLINGS: dict[str, Callable[[int], str]] = {
    "leading zeros": lambda n: f"{n:05d}",
    "one leading zero among integers": lambda n: "007" if n == 7 else str(n + 10),
    "one text among integers": lambda n: "seven" if n == 7 else str(n + 10),
    "hexadecimal": lambda n: f"0x{n + 16:x}",
    "exponents": lambda n: f"{n + 1}e5",
    "decimals": lambda n: f"{n}.0",
    "dates": lambda n: (dt.date(2024, 1, 5) + dt.timedelta(n)).isoformat(),
    "times": lambda n: f"12:{n:02d}:00",
    "timestamps": lambda n: f"2024-01-05T12:{n:02d}:00Z",
    "plus signs": lambda n: f"+{n}",
    "minus zero": lambda n: "-0" if n == 0 else str(n),
    "underscores": lambda n: f"1_{n:03d}",
    "uuid": lambda n: str(uuid.UUID(int=n)),
    "words that mean null": lambda n: {1: "NA", 2: "nan", 3: "None", 4: "NaN", 5: "n/a", 6: "N/A"}.get(n, f"w{n}"),
    "words that mean truth": lambda n: {1: "true", 2: "false", 3: "True"}.get(n, f"w{n}"),
    "words that mean infinity": lambda n: {1: "inf", 2: "-inf", 3: "Infinity"}.get(n, f"{n}"),
    "spaces at the ends": lambda n: f" {n} ",
    "commas and quotes": lambda n: f'a,"{n}"',
    "other alphabets": lambda n: f"узел-{n}-节点-🙂",
    "combining marks": lambda n: f"e\u0301{n}",
    "very long": lambda n: f"{n:04d}" * 500,
    "beyond 2^63": lambda n: str(2**63 + n),
    "tabs": lambda n: f"a\t{n}",
    "slashes": lambda n: f"../{n}/..",
    "percent signs": lambda n: f"%20{n}",
    "only case differs": lambda n: f"{'A' if n % 2 else 'a'}{n // 2}",
}
INTEGERS: dict[str, Callable[[int], int]] = {
    "negative": lambda n: -n - 1,
    "near 2^63": lambda n: 2**63 - 1 - n,
    "near -2^63": lambda n: -(2**63) + n,
    "above 2^53": lambda n: 2**53 + n,
}
NO_IDS: dict[str, Any] = {
    "float64": pa.float64(),
    "float32": pa.float32(),
    "bool": None,
    "date32": None,
    "timestamp": None,
    "decimal128": None,
    "binary": None,
    "list": None,
    "struct": None,
    "duration": None,
    "null": None,
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, spelling in SPELLINGS.items():
        for form in FORMATS:
            yield accepted(f"ids: {name}, {form}", both(ids_like(spelling), formats(form)))
    for name, number in INTEGERS.items():
        for form in FORMATS:
            yield accepted(f"ids: integers {name}, {form}", both(ids_like(number), formats(form)))
    for name in ("leading zeros", "hexadecimal", "exponents", "dates", "one text among integers"):
        yield accepted(
            f"ids: {name}, csv, in the predictions",
            both(ids_like(SPELLINGS[name]), formats("csv"), command("run")),
            check=_predicted,
        )
        yield accepted(f"ids: {name}, nodes in Parquet, edges in CSV", both(ids_like(SPELLINGS[name]), _mixed))
    yield from _types()
    yield from _faults()


def _mixed(inputs: Inputs) -> None:
    inputs.edges_format = "csv"


def _predicted(inputs: Inputs, shown: Shown) -> list[str]:
    held = predictions_of(inputs.workspace)["id"].to_pylist()
    wanted = sorted(inputs.nodes["id"])
    return differences(inputs) + ([] if held == wanted else [f"predictions have ids {held[:3]}, not {wanted[:3]}"])


def _types() -> Iterator[Case]:
    integers = [pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    for kind in integers:
        yield accepted(f"ids: {kind} in the node table", typed("id", kind))
        yield accepted(f"ids: {kind} in the edge table", both(typed("src", kind, table="edges")))
    text = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    for kind in text:
        for column, table in (("id", "nodes"), ("src", "edges"), ("dst", "edges")):
            yield accepted(
                f"ids: {column} as {kind}", both(ids_like(lambda n: f"n{n}"), typed(column, kind, table=table))
            )
    yield accepted("ids: dictionary of integers", typed("id", pa.dictionary(pa.int8(), pa.int64())))
    for name in NO_IDS:
        for what, column, table in (("column", "id", "nodes"), ("column of sources", "src", "edges")):
            yield refused(
                f"ids: {name} {what}",
                _as(name, column, table),
                f"{table}.parquet",
                f"'{column}'",
                "int64 or string",
            )


def _as(name: str, column: str, table: str) -> Callable[[Inputs], None]:
    """Write a column of ids as a type that is no id."""

    def spoil(inputs: Inputs) -> None:
        columns = getattr(inputs, table)
        numbers = list(columns[column])
        columns[column] = {
            "float64": lambda: pa.array(numbers, pa.float64()),
            "float32": lambda: pa.array(numbers, pa.float32()),
            "bool": lambda: pa.array([number % 2 == 0 for number in numbers]),
            "date32": lambda: pa.array([dt.date(2024, 1, 1) + dt.timedelta(number) for number in numbers]),
            "timestamp": lambda: pa.array(numbers, pa.timestamp("us")),
            "decimal128": lambda: pa.array([Decimal(number) for number in numbers], pa.decimal128(10, 2)),
            "binary": lambda: pa.array([b"\xff" + bytes([number % 256]) for number in numbers], pa.binary()),
            "list": lambda: pa.array([[number] for number in numbers]),
            "struct": lambda: pa.array([{"id": number} for number in numbers]),
            "duration": lambda: pa.array(numbers, pa.duration("s")),
            "null": lambda: pa.nulls(len(numbers)),
        }[name]()

    return spoil


def _faults() -> Iterator[Case]:
    for form in FORMATS:
        nodes, edges = f"nodes.{form}", f"edges.{form}"
        yield refused(
            f"ids: null node id, {form}", both(formats(form), at(None, "id")), nodes, "'id'", "null id", "row 5"
        )
        yield refused(f"ids: repeated node id, {form}", both(formats(form), _repeat), nodes, "more than once")
        for end in ("src", "dst"):
            yield refused(
                f"ids: null {end}, {form}",
                both(formats(form), at(None, end, table="edges")),
                edges,
                f"'{end}'",
                "null id",
                "row 5",
            )
            yield refused(
                f"ids: unknown {end}, {form}",
                both(formats(form), at(99999, end, table="edges")),
                edges,
                f"{end} is not an id of the node table",
                "row 5",
                "99999",
            )
    for table, column in (("nodes", "id"), ("edges", "src"), ("edges", "dst")):
        yield refused(
            f"ids: no column {column}", without(table, column), f"{table}.parquet", f"'{column}'", f"graph.{column}"
        )
    yield refused(
        "ids: uint64 above 2^63", _above("id", "nodes"), "nodes.parquet", "'id'", "int64|2^63|9223372036854775"
    )
    yield refused("ids: uint64 above 2^63 in the edge table", _above("src", "edges"), "edges.parquet", "'src'|src")
    yield refused("ids: text nodes, integer edges", _only_nodes_text, "'src'", "string", "int64")
    yield refused("ids: integer nodes, text edges", edge(src=["a"] * 180), "'src'", "string", "int64")
    yield refused("ids: every id null", node(id=pa.nulls(60, pa.int64())), "nodes.parquet", "id")
    yield refused("ids: invalid UTF-8", both(ids_like(lambda n: f"n{n}"), _broken_text), "nodes.parquet", "id")
    yield either("ids: quoted line breaks, csv", both(ids_like(lambda n: f"a\n{n}"), formats("csv")), "csv")
    yield either("ids: NUL inside", ids_like(lambda n: f"a\0{n}"), "nodes.parquet")
    yield either("ids: NUL inside, csv", both(ids_like(lambda n: f"a\0{n}"), formats("csv")), "csv")
    yield either("ids: empty text is an id", both(ids_like(lambda n: f"n{n}" if n else "")), "id")
    yield either("ids: lone space", both(ids_like(lambda n: f"n{n}" if n else " "), formats("csv")), "id")
    yield refused("ids: the id column is a feature", key("graph.features", ["x", "id"]), "graph.features", "id")
    yield accepted("ids: 0 and -0 are one integer", both(ids_like(lambda n: n), at(0, "src", table="edges"), expect()))


def _repeat(inputs: Inputs) -> None:
    inputs.nodes["id"] = [inputs.nodes["id"][0], *inputs.nodes["id"][:-1]]


def _above(column: str, table: str) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        columns = getattr(inputs, table)
        columns[column] = pa.array([2**63 + number for number in columns[column]], pa.uint64())

    return spoil


def _only_nodes_text(inputs: Inputs) -> None:
    inputs.nodes["id"] = [str(number) for number in inputs.nodes["id"]]


def _broken_text(inputs: Inputs) -> None:
    texts = [f"n{n}".encode() for n in range(60)]
    texts[5] = b"n\xff\xfe"
    offsets, values = pa.array(texts, pa.binary()).buffers()[1:]
    inputs.nodes["id"] = pa.StringArray.from_buffers(60, offsets, values)
    for end in ("src", "dst"):
        inputs.edges[end] = ["n6" if held == "n5" else held for held in inputs.edges[end]]
