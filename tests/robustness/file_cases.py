"""Files: damaged, mis-encoded, ragged, of other kinds, with every character in their names."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.robustness.case import Case, accepted, anything, either, refused
from tests.robustness.folder_cases import in_folder
from tests.robustness.inputs import (
    Inputs,
    Spoil,
    both,
    command,
    disk,
    formats,
    ids_like,
    key,
    node,
    without,
)

Rewrite = Callable[[bytes], bytes]


BROKEN_TEXT: dict[str, Rewrite] = {
    "empty": lambda _: b"",
    "only line ends": lambda _: b"\n\n\n",
    "a header alone": lambda text: text.split(b"\n")[0] + b"\n",
    "cut in a row": lambda text: text[: text.rindex(b",", 0, -20)],
    "UTF-16 without its mark": lambda text: text.decode().encode("utf-16-le"),
    "UTF-32": lambda text: text.decode().encode("utf-32"),
    "a row too long": lambda text: _line(text, 5, lambda row: row + b",9,9"),
    "a row too short": lambda text: _line(text, 5, lambda row: row.rsplit(b",", 1)[0]),
    "an unbalanced quote": lambda text: _line(text, 5, lambda row: b'"' + row),
    "a NUL in a number": lambda text: _line(text, 5, lambda row: row[:-1] + b"\0"),
    "a column twice": lambda text: b"\n".join(row + b"," + row.split(b",")[1] for row in text.splitlines()),
    "no header": lambda text: text.split(b"\n", 1)[1],
    "binary": lambda _: bytes(range(256)) * 8,
    "Parquet's letters": lambda text: b"PAR1" + text,
}


SOUND_TEXT: dict[str, Rewrite] = {
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "semicolons": lambda text: text.replace(b",", b";"),
    "tabs": lambda text: text.replace(b",", b"\t"),
    "comments and bars": lambda text: b"# made by a program\n" + text.replace(b",", b"|"),
    "Windows line ends": lambda text: text.replace(b"\n", b"\r\n"),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "no last line end": lambda text: text.rstrip(b"\n"),
    "quotes everywhere": lambda text: b"\n".join(
        b",".join(b'"%s"' % c for c in row.split(b",")) for row in text.splitlines()
    ),
    "a further column": lambda text: b"\n".join(row + b",note, with a comma"[:5] for row in text.splitlines()),
}


BROKEN_BYTES: dict[str, Rewrite] = {
    "empty": lambda _: b"",
    "cut in half": lambda held: held[: len(held) // 2],
    "without its last bytes": lambda held: held[:-9],
    "zeros": lambda held: bytes(len(held)),
    "text": lambda _: b"id,x\n1,2\n",
    "without its first bytes": lambda held: held[8:],
    "with a broken footer": lambda held: held[:-300] + bytes(200) + held[-100:],
}


BROKEN_GZIP: dict[str, Rewrite] = {
    "not gzip": gzip.decompress,
    "cut": lambda held: held[: len(held) // 2],
    "without its end": lambda held: held[:-8],
    "with a wrong checksum": lambda held: held[:-8] + b"\0\0\0\0" + held[-4:],
    "with broken blocks": lambda held: held[:40] + bytes(20) + held[60:],
    "empty": lambda _: b"",
}


NAMES = (
    "part[1]",
    "a b",
    "узел",
    "50%20",
    "a#b",
    "a?b",
    "a*b",
    "a+b",
    "a=b",
    "a'b",
    "{a}",
    "a,b",
    "a&b",
    "~a",
    "a:b",
    "é",
)


def _line(text: bytes, number: int, change: Rewrite) -> bytes:
    lines = text.split(b"\n")
    lines[number] = change(lines[number])
    return b"\n".join(lines)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _damaged()
    yield from _late_blocks()
    yield from _names()
    yield from _special()


def _rewritten(table: str, change: Rewrite) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        file = inputs.nodes_file if table == "nodes" else inputs.edges_file
        file.write_bytes(change(file.read_bytes()))

    return disk(spoil)


def _damaged() -> Iterator[Case]:
    for table in ("nodes", "edges"):
        for name, change in BROKEN_TEXT.items():
            if (table, name) == ("edges", "no header"):
                continue
            yield refused(f"{table} in CSV: {name}", both(formats("csv"), _rewritten(table, change)), f"{table}.csv")
            if name in {"UTF-16 without its mark", "cut in a row", "a row too long"}:
                packed = lambda held, change=change: gzip.compress(change(gzip.decompress(held)))  # noqa: E731
                yield refused(
                    f"{table} in CSV, gzipped: {name}",
                    both(formats("csv.gz"), _rewritten(table, packed)),
                    f"{table}.csv.gz",
                )
        for name, change in SOUND_TEXT.items():
            yield accepted(f"{table} in CSV: {name}", both(formats("csv"), _rewritten(table, change)))
        for name, change in BROKEN_GZIP.items():
            yield refused(
                f"{table} in gzip {name}", both(formats("csv.gz"), _rewritten(table, change)), f"{table}.csv.gz"
            )
        for form in ("parquet", "arrow"):
            for name, change in BROKEN_BYTES.items():
                spoil = both(formats(form), _rewritten(table, change))
                yield refused(f"{table} in {form} {name}", spoil, f"{table}.{form}", "truncated")
        yield refused(
            f"{table} missing",
            disk(lambda i, table=table: getattr(i, f"{table}_file").unlink()),
            f"{table}.parquet",
            "no such table",
        )
        yield refused(
            f"{table}: a column twice in Parquet",
            disk(lambda i, table=table: _twice(getattr(i, f"{table}_file"))),
            f"{table}.parquet",
        )
        yield refused(
            f"{table} as an Arrow stream",
            both(formats("arrow"), disk(lambda i, table=table: _as_stream(getattr(i, f"{table}_file")))),
            f"{table}.arrow",
        )
        spoil = disk(lambda i, table=table: _unknown(i, table))
        yield refused(f"{table} of an unknown type", spoil, ".sav", "table format", ".parquet")
    yield refused(
        "text that is Latin-1",
        both(ids_like(lambda n: f"né{n}"), formats("csv"), _rewritten("nodes", lambda t: t.decode().encode("latin-1"))),
        "nodes.csv",
    )


def _late_blocks() -> Iterator[Case]:
    yield accepted("numbers that become fractions after the first block", _late("0.5"))
    yield refused("numbers that become text after the first block", _late("lots"), "nodes.csv", "age")
    yield refused(
        "a column of text among numbers, csv",
        both(formats("csv"), node(age=["old" if n == 5 else n for n in range(60)])),
        "nodes.csv",
        "age",
    )


def _late(value: str) -> Spoil:
    """Enough rows for several blocks of a text reader (1 MiB each); only the last rows are not integers."""

    def spoil(inputs: Inputs) -> None:
        count = 150_000
        ids = list(range(count))
        inputs.nodes = {
            "id": ids,
            "age": [*range(count - 1), value],
            "label": [n % 2 for n in ids],
            "split": [("train", "valid", "test")[n % 3] for n in ids],
        }
        inputs.edges = {"src": [0, 1], "dst": [1, 2], "weight": [1.0, 2.0], "amount": [0.1, 0.2]}
        inputs.config["graph"]["features"] = ["age"]
        inputs.nodes_format = "csv"
        if value == "0.5":
            inputs.expected["x"] = [[float(held)] for held in [*range(count - 1), 0.5]]

    return spoil


def _twice(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.append_column(table.column_names[0], table.column(0)), file)


def _as_stream(file: Path) -> None:
    table = pa.ipc.open_file(pa.BufferReader(file.read_bytes())).read_all()
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _unknown(inputs: Inputs, table: str) -> None:
    file = inputs.folder / f"{table}.sav"
    file.write_bytes(b"PK")
    text = inputs.config_file.read_text()
    inputs.config_file.write_text(text.replace(f"{table}.parquet", file.name))


def _names() -> Iterator[Case]:
    for name in NAMES:
        yield accepted(f"a file called {name}.parquet", _called(f"{name}.parquet"))
    for name in ("[a]", "a b", "é"):
        yield accepted(f"a folder called {name}", _called(f"{name}/nodes.parquet"))
    yield either("a file called N.PARQUET", _called("N.PARQUET"), "N.PARQUET")
    yield accepted("a relative path", both(key("graph.nodes", "nodes.parquet"), key("graph.edges", "./edges.parquet")))
    yield accepted("a file:// URL", lambda i: key("graph.nodes", f"file://{i.folder}/nodes.parquet")(i))
    yield accepted("a glob", lambda i: key("graph.nodes", f"{i.folder}/node*.parquet")(i))
    yield refused("a glob of nothing", lambda i: key("graph.nodes", f"{i.folder}/none*.parquet")(i), "none*.parquet")


def _called(name: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        inputs.config["graph"]["nodes"] = str(inputs.folder / name)
        inputs.after_write.append(lambda written: _rename(written, name))

    return spoil


def _rename(inputs: Inputs, name: str) -> None:
    (inputs.folder / name).parent.mkdir(exist_ok=True)
    inputs.nodes_file.rename(inputs.folder / name)


def _special() -> Iterator[Case]:
    yield refused(
        "the node table is a FIFO",
        disk(lambda i: [i.nodes_file.unlink(), os.mkfifo(i.nodes_file)]),
        "nodes.parquet",
        alone=True,
    )
    yield refused(
        "the CSV edge table is a FIFO",
        both(formats("csv"), disk(lambda i: [i.edges_file.unlink(), os.mkfifo(i.edges_file)])),
        "edges.csv",
        alone=True,
    )
    yield refused(
        "a FIFO in the folder",
        in_folder("nodes", lambda i: os.mkfifo(i.folder / "nodes" / "part-7.parquet")),
        "part-7.parquet",
        alone=True,
    )
    yield refused(
        "a dangling link", disk(lambda i: [i.nodes_file.unlink(), i.nodes_file.symlink_to("nowhere")]), "nodes.parquet"
    )
    yield refused(
        "a link to itself",
        disk(lambda i: [i.nodes_file.unlink(), i.nodes_file.symlink_to(i.nodes_file)]),
        "nodes.parquet",
    )
    yield accepted(
        "a link to the table",
        disk(lambda i: [i.nodes_file.rename(i.folder / "real.parquet"), i.nodes_file.symlink_to("real.parquet")]),
    )
    yield refused("/dev/zero as a table", key("graph.nodes", "/dev/zero"), "/dev/zero", alone=True)
    yield refused("/proc as a table", key("graph.nodes", "/proc"), "/proc", alone=True)
    yield refused(
        "/proc/self/mem as a CSV table",
        disk(lambda i: [i.nodes_file.unlink(), i.nodes_file.symlink_to("/proc/self/mem")]),
        "nodes.parquet",
        alone=True,
    )
    yield refused(
        "a file as a folder of the table's path",
        lambda i: key("graph.nodes", f"{i.edges_file}/nodes.parquet")(i),
        "nodes.parquet",
    )
    yield refused("the same file as both tables", lambda i: key("graph.edges", str(i.nodes_file))(i), "src")
    yield refused(
        "the tables exchanged",
        lambda i: [key("graph.nodes", str(i.edges_file))(i), key("graph.edges", str(i.nodes_file))(i)],
        "'id'|'x'",
    )
    yield either(
        "the workspace inside the table's folder",
        in_folder(
            "nodes",
            lambda i: i.config_file.write_text(
                i.config_file.read_text().replace(str(i.workspace), str(i.folder / "nodes" / "runs"))
            ),
        ),
        "workspace",
        check=anything,
    )
    yield accepted(
        "edges without weights and attributes",
        both(without("edges", "weight", "amount"), key("graph.edge_features", [])),
    )
    yield either("a weight column named and missing", key("graph.weight", "kilos"), "kilos", check=anything)
    yield accepted("a run on CSV", both(formats("csv"), command("run")))
