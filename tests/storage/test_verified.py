"""What is stored is what is read: a damaged file is found before its first use, and the message says what to do."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.storage import verified
from gnnflow.storage.documents import read_document, write_document
from gnnflow.storage.filesystem import join, read_bytes
from gnnflow.storage.manifest import Manifest, commit, read_manifest
from gnnflow.storage.tables import commit_table, iter_artifact_table, read_artifact_table
from gnnflow.storage.verified import check_file, expect_files, is_whole, read_verified
from gnnflow.storage.writing import FileEntry, remove_tree, write_atomic, write_json
from tests.storage.test_filesystem import BACKENDS, folder  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable


def artifact_at(uri: str) -> str:
    artifact = join(uri, "artifacts", "ingest", "abc")
    table = pa.table({"a": np.arange(4000), "b": np.random.default_rng(0).random(4000)})
    entry = commit_table(artifact, "part.parquet", table)
    commit(artifact, Manifest("ingest", "abc", 1, (entry,), {}, 4000, 4000))
    return artifact


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def zeroed(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes(512) + content[middle + 512 :]


@pytest.mark.parametrize("damage", [flipped, zeroed], ids=["one bit", "512 zeroed bytes"])
@pytest.mark.parametrize("folder", BACKENDS, indirect=True)
def test_a_damaged_file_is_found_on_its_first_read(folder: str, damage: Callable[[bytes], bytes]) -> None:  # noqa: F811
    artifact = artifact_at(folder)
    where = join(artifact, "part.parquet")
    expected = hashlib.sha256(read_bytes(where)).hexdigest()
    assert read_artifact_table(artifact, "part.parquet", ["a"]).num_rows == 4000
    content = damage(read_bytes(where))
    write_atomic(where, content)
    found = hashlib.sha256(content).hexdigest()
    for read in (read_artifact_table, read_verified, check_file, lambda *named: list(iter_artifact_table(*named))):
        with pytest.raises(StorageError) as caught:
            read(artifact, "part.parquet")
        message = str(caught.value)
        for words in (where, expected, found, "`gnnflow ingest CONFIG`"):
            assert words in message


def test_a_file_is_hashed_once_per_process_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, hashed = artifact_at(str(tmp_path)), []

    def counting(stream: Any, original: Any = verified._digest) -> str:
        hashed.append(stream.name)
        return original(stream)

    monkeypatch.setattr(verified, "_digest", counting)
    read_artifact_table(artifact, "part.parquet", ["a"])
    assert not hashed, "this process has written it"
    verified._verified.clear()  # as in another process
    for _ in range(3):
        read_artifact_table(artifact, "part.parquet", ["a"])
    assert len(hashed) == 1
    file = Path(artifact) / "part.parquet"
    status = file.stat()
    file.write_bytes(flipped(file.read_bytes()))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # the same size, and a modification time put back
    with pytest.raises(StorageError, match="sha256"):
        read_artifact_table(artifact, "part.parquet", ["a"])


def test_an_artifact_made_anew_is_read_under_its_new_manifest(tmp_path: Path) -> None:
    artifact = artifact_at(str(tmp_path))
    read_artifact_table(artifact, "part.parquet")
    remove_tree(artifact)
    entry = commit_table(artifact, "part.parquet", pa.table({"a": [1]}))
    commit(artifact, Manifest("ingest", "abc", 1, (entry,), {}, 1, 1))
    assert read_artifact_table(artifact, "part.parquet").num_rows == 1


def test_a_manifest_that_is_there_stays(tmp_path: Path) -> None:
    artifact = artifact_at(str(tmp_path))
    held = read_manifest(artifact)
    commit(artifact, Manifest("ingest", "other", 1, held.files, {}, 1, 1))
    assert read_manifest(artifact) == held


def test_a_file_the_manifest_does_not_list_is_refused(tmp_path: Path) -> None:
    artifact = artifact_at(str(tmp_path))
    write_atomic(join(artifact, "other.parquet"), b"other")
    with pytest.raises(StorageError, match=r"other\.parquet: is not listed by manifest\.json"):
        read_verified(artifact, "other.parquet")


def test_what_a_stage_wrote_without_a_list_is_checked_too(tmp_path: Path) -> None:
    entry = write_atomic(str(tmp_path / "a.bin"), b"12345")
    expect_files(str(tmp_path), [entry])
    assert read_verified(str(tmp_path), "a.bin") == b"12345"
    (tmp_path / "a.bin").write_bytes(b"12346")
    with pytest.raises(StorageError, match="its writer says"):
        read_verified(str(tmp_path), "a.bin")
    assert not is_whole(str(tmp_path), entry)
    assert not is_whole(str(tmp_path), FileEntry("b.bin", 5, entry.sha256))


@pytest.mark.parametrize("key", ["rows_in", "facts", "format_version", "fingerprint", "timings"])
def test_a_manifest_changed_in_any_key_is_refused(tmp_path: Path, key: str) -> None:
    artifact = artifact_at(str(tmp_path))
    file = Path(artifact) / "manifest.json"
    held = json.loads(file.read_text())
    file.write_text(json.dumps({**held, key: {"changed": 1}}))
    with pytest.raises(StorageError, match=r"manifest\.json: is damaged: .* run again: `gnnflow ingest CONFIG`"):
        read_manifest(artifact)


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "null", '{"files": 3}', '{"files": [1]}', '{"files": [{"name": 1}]}', "{"]
)
def test_a_manifest_that_is_something_else_is_a_readable_error(tmp_path: Path, text: str) -> None:
    artifact = artifact_at(str(tmp_path))
    (Path(artifact) / "manifest.json").write_text(text)
    with pytest.raises(StorageError, match=r"manifest\.json"):
        read_manifest(artifact)
    with pytest.raises(StorageError, match=r"manifest\.json"):
        read_verified(artifact, "part.parquet")


def test_a_document_of_an_earlier_version_is_read_as_it_is(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.json")
    write_json(uri, {"a": 1})
    assert read_document(uri, fix="") == {"a": 1}
    write_document(uri, {"a": 1})
    assert read_document(uri, fix="") == {"a": 1}


def test_content_is_on_the_disk_before_its_name_and_names_before_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Follows every sync, rename and folder sync of a commit through the calls to the kernel."""
    calls: list[tuple[str, str]] = []

    def fsync(number: int, original: Any = os.fsync) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        calls.append(("sync folder", path.name) if path.is_dir() else ("sync", path.name.split(".")[1]))
        original(number)

    def replace(self: Path, target: Path, original: Any = Path.replace) -> Path:
        calls.append(("name", Path(target).name.split(".")[0]))
        return original(self, target)

    def link(made: Path, target: Path, original: Any = os.link) -> None:
        calls.append(("name", Path(target).name.split(".")[0]))
        original(made, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(Path, "replace", replace)
    artifact_at(str(tmp_path))
    assert calls == [
        ("sync", "part"),
        ("name", "part"),
        ("sync folder", "abc"),
        ("sync", "manifest"),
        ("name", "manifest"),
        ("sync folder", "abc"),
    ]
