"""Every storage backend keeps the same promises: whole files or none, and errors that name the place."""

from __future__ import annotations

import ast
import contextlib
import threading
import time
import uuid
import zipfile
from typing import TYPE_CHECKING

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gnnflow.graph.errors import StorageError
from gnnflow.mapreduce.exchange import Emit, read_exchange, write_exchange
from gnnflow.stages import pipeline
from gnnflow.storage import filesystem
from gnnflow.storage.columns import from_matrix, from_ragged, id_keys, to_matrix, to_numpy, to_ragged
from gnnflow.storage.filesystem import exists, join, list_names, read_bytes, read_json, resolve, size_of, stamp
from gnnflow.storage.tables import read_table, write_table
from gnnflow.storage.user_tables import scan
from gnnflow.storage.writing import (
    copy_file,
    create_exclusive,
    move_folder,
    open_output,
    remove_tree,
    write_atomic,
    write_json,
)
from tests.conftest import REPOSITORY
from tests.s3 import local_bucket
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BACKENDS = ["local", "memory", pytest.param("s3", marks=pytest.mark.s3)]


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new folder on the backend the test is run for."""
    if request.param == "local":
        yield str(tmp_path / "folder")
    elif request.param == "memory":
        yield f"memory://{uuid.uuid4().hex}"
    else:
        with local_bucket() as bucket:
            yield f"{bucket}/folder"


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_a_folder_is_moved_with_its_files(folder: str) -> None:
    names = [f"part-{number}[*].bin" for number in range(3)]
    for name in names:
        write_atomic(join(folder, "_new", name), name.encode())
    move_folder(join(folder, "_new"), join(folder, "there"))
    assert {name: read_bytes(join(folder, "there", name)) for name in names} == {name: name.encode() for name in names}
    assert list_names(join(folder, "_new")) == []


def test_two_colons_without_a_scheme_are_a_file_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores").write_text("notes")
    for place in ("scores::v2.parquet", f"{tmp_path}/cached::x", "runs::v2/one"):
        write_atomic(place, place.encode())
        assert read_bytes(place) == (tmp_path / place).read_bytes() == place.encode()
    assert list_names(str(tmp_path)) == ["cached::x", "runs::v2", "scores", "scores::v2.parquet"]
    assert (tmp_path / "scores").read_text() == "notes"
    with pytest.raises(StorageError, match="no such file"):
        read_bytes("scores::")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner", "zipped")
    assert read_bytes(f"zip://inner::{tmp_path}/a.zip") == b"zipped"


def test_credentials_of_another_account_than_the_one_of_the_url_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec itself would call the library with two values of one argument, a TypeError."""

    class OfAzure(MemoryFileSystem):
        @staticmethod
        def _get_kwargs_from_urls(path: str) -> dict[str, str]:
            return {"account_name": path.partition("://")[2].partition(".")[0]}

    fsspec.register_implementation("accounts", OfAzure)
    options = {"account_name": "ours", "account_key": "planted"}
    monkeypatch.setattr(filesystem, "options_of", lambda _: options)
    assert resolve("accounts://ours.dfs.core.windows.net/tables/x").fs.storage_options["account_name"] == "ours"
    with pytest.raises(StorageError, match="is of account_name theirs, and the credentials are of ours"):
        resolve("accounts://theirs.dfs.core.windows.net/tables/x")


def test_a_path_that_is_not_utf8_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "x\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for uri in (f"{folder}/runs", f"file://{folder}/runs", "runs", "a::b"):
        with pytest.raises(StorageError, match=r"x\\udcff/.*: a name in this path is not UTF-8. Rename that"):
            resolve(uri)
    write_graph(tmp_path)
    (tmp_path / "nodes.parquet").rename(folder / "n.parquet")
    with pytest.raises(StorageError, match=r"x\\udcff/n.parquet: a name in this path is not UTF-8"):
        scan(f"{tmp_path}/**/n.parquet")


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_what_another_process_wrote_is_seen_at_once(folder: str) -> None:
    """A worker that listed a folder yesterday must find today's partition, and the new size of a replaced one."""
    write_atomic(join(folder, "part-0"), b"12345")
    fs, path = resolve(folder)
    assert [entry["size"] for entry in fs.ls(path, detail=True)] == [5]
    other = type(fs)(skip_instance_cache=True)
    other.pipe_file(f"{path}/part-0", b"1234567")
    other.pipe_file(f"{path}/part-1", b"1")
    assert read_bytes(join(folder, "part-1")) == b"1"
    assert size_of(join(folder, "part-0")) == 7
    assert read_bytes(join(folder, "part-0")) == b"1234567"


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_files_are_written_read_listed_and_removed(folder: str) -> None:
    entry = write_atomic(join(folder, "a", "one.bin"), b"12345")
    assert (entry.name, entry.size) == ("one.bin", 5)
    write_json(join(folder, "a", "two.json"), {"b": 1, "a": [1, 2]})
    assert read_bytes(join(folder, "a", "one.bin")) == b"12345"
    assert read_json(join(folder, "a", "two.json")) == {"a": [1, 2], "b": 1}
    assert list_names(join(folder, "a")) == ["one.bin", "two.json"]
    assert size_of(join(folder, "a", "one.bin")) == 5
    assert copy_file(join(folder, "a", "one.bin"), join(folder, "c.bin")).sha256 == entry.sha256
    remove_tree(join(folder, "a"))
    assert not exists(join(folder, "a", "one.bin"))
    assert list_names(join(folder, "a")) == []


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_a_folder_is_no_empty_file(folder: str) -> None:
    write_atomic(join(folder, "a", "one.bin"), b"12345")
    with pytest.raises((StorageError, IsADirectoryError)):
        read_bytes(join(folder, "a"))


@pytest.mark.parametrize("name", ["*", "a*", "[ab]", "?"])
@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_deleting_names_exact_keys_and_expands_nothing(folder: str, name: str) -> None:
    for other in ("a", "ab", "b"):
        write_atomic(join(folder, other, "file.bin"), b"other")
    write_atomic(join(folder, name, "below", "[x]*.bin"), b"ours")
    write_atomic(join(folder, name, "plain.bin"), b"ours")
    remove_tree(join(folder, name))
    assert list_names(join(folder, name)) == []
    assert [read_bytes(join(folder, other, "file.bin")) for other in ("a", "ab", "b")] == [b"other"] * 3
    remove_tree(join(folder, "nothing*"))
    assert list_names(folder) == ["a", "ab", "b"]


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_what_is_kept_stays(folder: str) -> None:
    for name in ("lease.json", "round/00000.json", "round/channel/00000.arrow"):
        write_atomic(join(folder, name), b"1")
    remove_tree(folder, keep=("lease.json",))
    assert list_names(folder) == ["lease.json"]


def test_a_folder_goes_although_files_come_while_it_is_deleted(tmp_path: Path) -> None:
    folder, stop = tmp_path / "work", threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with contextlib.suppress(OSError, StorageError):  # its folder goes while it writes
                write_atomic(str(folder / "round" / f"{number % 50}.json"), b"1", durable=False)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    time.sleep(0.05)
    threading.Timer(0.2, stop.set).start()
    remove_tree(str(folder))
    stop.set()
    for writer in writers:
        writer.join()
    remove_tree(str(folder))
    assert not folder.exists()


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_missing_files_are_named(folder: str) -> None:
    for read in (read_bytes, read_json, stamp, read_table, scan):
        with pytest.raises(StorageError, match=r"nothing\.parquet"):
            read(join(folder, "nothing.parquet"))
    assert size_of(join(folder, "nothing.parquet")) is None
    remove_tree(join(folder, "nothing"))


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_tables_and_exchanges_come_back_as_written(folder: str) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    offsets, values = np.array([0, 2, 2, 3, 5]), np.arange(5, dtype=np.int32)
    table = pa.table({"id": ["a", "b", "c", "d"], "x": from_matrix(matrix), "r": from_ragged(offsets, values)})
    write_table(join(folder, "t.parquet"), table)
    back = read_table(join(folder, "t.parquet"))
    assert back["id"].to_pylist() == ["a", "b", "c", "d"]
    assert np.array_equal(to_matrix(back["x"]), matrix)
    assert [part.tolist() for part in to_ragged(back["r"])] == [offsets.tolist(), values.tolist()]
    write_exchange(join(folder, "e.arrow"), Emit("c", table, np.array([1, 0, 1, 0])), 2)
    assert read_exchange(join(folder, "e.arrow"), 1)["id"].to_pylist() == ["a", "c"]


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_a_file_whose_writer_fails_never_appears(folder: str) -> None:
    uri = join(folder, "half.bin")

    def write(*, to_the_end: bool) -> None:
        with open_output(uri) as sink:
            sink.write(b"half")
            if not to_the_end:
                raise StorageError("disk full")

    with pytest.raises(StorageError, match="disk full"):
        write(to_the_end=False)
    assert list_names(folder) == []
    write(to_the_end=True)
    assert read_bytes(uri) == b"half"


@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_one_claimant_of_many_gets_the_file(folder: str) -> None:
    won: list[int] = []

    def claim(number: int) -> None:
        if create_exclusive(join(folder, "claim"), str(number).encode()):
            won.append(number)

    claimants = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for claimant in claimants:
        claimant.start()
    for claimant in claimants:
        claimant.join()
    assert len(won) == 1
    assert read_bytes(join(folder, "claim")) == str(won[0]).encode()


@pytest.mark.parametrize("folder", ["local"], indirect=True)
def test_a_reader_never_sees_half_a_file(folder: str) -> None:
    uri = join(folder, "flip.bin")
    contents = [bytes([number]) * 200_000 for number in range(4)]
    write_atomic(uri, contents[0])
    writers = [threading.Thread(target=lambda c=c: [write_atomic(uri, c) for _ in range(25)]) for c in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert read_bytes(uri) in contents
    assert list_names(folder) == ["flip.bin"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["memory", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
def test_a_run_lives_in_any_workspace(folder: str, tmp_path: Path) -> None:
    write_graph(tmp_path)
    sections = {"neighbors": {"sampling": {"kind": "uniform", "fanout": [3, 2]}}, "train": {"epochs": 1}}
    local = pipeline.run_quietly(graph_config(tmp_path, **sections))
    remote = pipeline.run_quietly(graph_config(tmp_path, workspace=folder, **sections))
    assert remote.uri.startswith(folder)
    assert {n: s.digest for n, s in remote.stages.items()} == {n: s.digest for n, s in local.stages.items()}
    assert exists(remote.report)
    assert pipeline.run_quietly(graph_config(tmp_path, workspace=folder, **sections)).stages["flat"].reused


def test_keys_of_ids_are_pinned() -> None:
    # A change here is a change of every sample: it needs a new format version and a line in the changelog.
    assert id_keys(pa.array([0, 1, -1])).tolist() == [16294208416658607535, 10451216379200822465, 16490336266968443936]
    strings = ["", "a", "DE:17", "a string that is longer than eight bytes"]
    assert id_keys(pa.array(strings)).tolist() == id_keys(pa.array(strings, pa.large_string())).tolist()
    assert len(set(id_keys(pa.array(strings)).tolist())) == 4
    assert to_numpy(pa.array(id_keys(pa.array(strings)[1:]))).tolist() == id_keys(pa.array(strings)).tolist()[1:]


FORBIDDEN = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}
UNSAFE_CALLS = {
    ("torch", "load"),
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("pandas", "read_pickle"),
}


def test_nothing_from_storage_is_unpickled() -> None:
    found: list[str] = []
    for file in sorted((REPOSITORY / "gnnflow").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and (owner.id, node.func.attr) in UNSAFE_CALLS:
                    found.append(f"{file}:{node.lineno} {owner.id}.{node.func.attr}")
                found += [f"{file}:{node.lineno} allow_pickle" for key in node.keywords if key.arg == "allow_pickle"]
            found += [f"{file}:{node.lineno} {name}" for name in names if name in FORBIDDEN]
    assert not found
