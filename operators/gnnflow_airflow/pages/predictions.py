"""Decodes the predictions of a workspace, in a separate process whose memory is bounded.

A Parquet file of some kilobytes may hold gigabytes: a dictionary repeats one long text in every row. Neither its size
nor what its footer says of sizes tells, since whoever writes into a workspace writes both. In the process of the API
server such a file would end all of Airflow's pages. So that process starts this module as a program, which bounds its
own memory before it opens a file, decodes, and writes to a pipe.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.errors import GnnflowError, StorageError
from gnnflow.storage.filesystem import join, open_arrow, within
from gnnflow.storage.verified import open_verified

if TYPE_CHECKING:
    from gnnflow_airflow.places import Place

_MOST_BYTES = 512 << 20  # that decoding takes, in addition to what the program itself takes
_MOST_ROWS = 100
_MOST_CELL = 120  # characters
_MOST_ITEMS = 6  # of a list in a cell
_MOST_SHOWN = 16 << 20  # bytes of the first rows as text
_BATCH_ROWS = 1 << 14
_PIECE_BYTES = 1 << 20
# one thread, since the stack of each counts; the system's allocator, since others reserve memory, which counts too
_SMALL = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_NO_PARQUET = (pa.ArrowException, OSError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError)


@dataclass(frozen=True)
class FirstRows:
    """The first rows of predictions as texts; whole: there are no others."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: bool


def first_rows(place: Place, folder: str, names: Sequence[str]) -> FirstRows:
    """Return the first rows of predictions. Files are not verified, which would read all of each.

    Raises StorageError for a file that is no Parquet or takes too much memory.
    """
    shown = b""
    for piece in _decoded("rows", place, folder, names):
        shown += piece
        if len(shown) > _MOST_SHOWN:
            raise _too_large(folder)
    return FirstRows(**json.loads(shown))


def stream_parquet(place: Place, folder: str, names: Sequence[str]) -> Iterator[bytes]:
    """Yield all predictions as one Parquet file, in pieces; each file is verified before it is read.

    Raises StorageError as `first_rows` does, and for a file that is not as listed.
    """
    return _decoded("parquet", place, folder, names)


def _decoded(form: str, place: Place, folder: str, names: Sequence[str]) -> Iterator[bytes]:
    """Yield what the program writes. Raises the StorageError that it ends with."""
    asked = json.dumps({"form": form, "place": place.uri, "folder": folder, "names": names})
    environment = {**os.environ, **_SMALL, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with TemporaryFile() as source, TemporaryFile() as said:
        source.write(asked.encode())
        source.seek(0)
        command = [sys.executable, "-P", "-m", __name__]
        with subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, stderr=said, env=environment) as program:  # noqa: S603 - this module
            assert program.stdout is not None
            try:
                while piece := program.stdout.read(_PIECE_BYTES):
                    yield piece
            except GeneratorExit:  # nobody takes the rest
                program.kill()
                raise
        said.seek(0)
        if program.returncode:
            raise _error_of(said.read().decode(errors="replace").strip(), program.returncode, folder)


def _error_of(said: str, status: int, folder: str) -> Exception:
    """Return the error by which a program ended. Where memory is short it may be killed or not come to say so."""
    last = said.rpartition("\n")[2]
    if status < 0 or last.startswith("MemoryError"):
        return _too_large(folder)
    if not last.startswith("{"):
        return RuntimeError(said)
    document = json.loads(last)
    return StorageError(document["problem"], where=document["where"], fix=document["fix"])


def _too_large(where: str) -> StorageError:
    return StorageError(
        f"takes more than {_MOST_BYTES >> 20} MiB of memory to decode", where=where, fix="Open it where it lies."
    )


def _decode(*, form: str, place: str, folder: str, names: Sequence[str]) -> None:
    """Write the first rows, or all of them, to the standard output."""
    with within(place):
        for piece in _FORMS[form](folder, names):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


def _decode_first(folder: str, names: Sequence[str]) -> Iterator[bytes]:
    yield json.dumps(asdict(_first_rows(folder, names))).encode()


def _first_rows(folder: str, names: Sequence[str]) -> FirstRows:
    columns: list[str] = []
    rows: list[list[str]] = []
    for name in names:
        where = join(folder, name)
        with _readable(where), open_arrow(where) as stream:
            file = pq.ParquetFile(stream)
            columns = file.schema_arrow.names
            for batch in file.iter_batches(_MOST_ROWS + 1):
                rows += [[_cell_text(each) for each in row.values()] for row in batch.to_pylist()]
                if len(rows) > _MOST_ROWS:
                    return FirstRows(columns, rows[:_MOST_ROWS], whole=False)
    return FirstRows(columns, rows, whole=True)


def _cell_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        more = f", ... {len(value)} values" if len(value) > _MOST_ITEMS else ""
        return f"[{', '.join(map(_cell_text, value[:_MOST_ITEMS]))}{more}]"
    text = "" if value is None else str(value)
    return text if len(text) <= _MOST_CELL else f"{text[:_MOST_CELL]}..."


class _Written(io.RawIOBase):
    """A file that Parquet is written to and that hands out what was written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: Any) -> int:
        """Keep bytes."""
        part = bytes(content)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._size

    def take(self) -> bytes:
        """Return the bytes since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def _decode_all(folder: str, names: Sequence[str]) -> Iterator[bytes]:
    with _readable(join(folder, names[0])), open_arrow(join(folder, names[0])) as stream:
        schema: pa.Schema = pq.ParquetFile(stream).schema_arrow
    file = _Written()
    with pq.ParquetWriter(file, schema) as writer:
        for name in names:
            with _readable(join(folder, name)), open_verified(folder, name) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS):
                    writer.write_batch(batch)
                    yield file.take()
    yield file.take()


@contextmanager
def _readable(where: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:  # one of Arrow's is both
        raise _too_large(where) from error
    except _NO_PARQUET as error:  # texts that are not UTF-8, years beyond 9999
        raise StorageError(f"cannot be read as Parquet ({error})", where=where, fix="It is damaged.") from error


def _bound_memory() -> None:
    """Let this process have no more than _MOST_BYTES in addition to its present memory, where the system bounds it.

    Of memory for data, since files that are mapped count in the address space.
    """
    status = Path("/proc/self/status")
    if not status.exists():  # macOS bounds neither
        return
    held = next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmData:"))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = held + _MOST_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (bound if most == resource.RLIM_INFINITY else min(bound, most), most))


_FORMS: dict[str, Callable[[str, Sequence[str]], Iterator[bytes]]] = {"rows": _decode_first, "parquet": _decode_all}


def main() -> int:
    """Decode the predictions that the standard input names. The last line of an error is its document."""
    asked = json.load(sys.stdin)
    _bound_memory()
    try:
        _decode(**asked)
    except (GnnflowError, MemoryError) as error:
        told = error if isinstance(error, GnnflowError) else _too_large(asked["folder"])
        sys.stderr.write(json.dumps(told.document()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
