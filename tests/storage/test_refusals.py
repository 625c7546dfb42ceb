"""What the machine and storage libraries raise is one of our errors, with the place and what to do."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from gnnflow.graph.errors import MachineError, StorageError
from gnnflow.storage import filesystem
from gnnflow.storage.filesystem import read_bytes
from gnnflow.storage.refusals import refusal_of
from gnnflow.storage.writing import open_output, write_atomic


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, MachineError, "no space left on device"),
        (errno.EACCES, MachineError, "permission denied"),
        (errno.EROFS, MachineError, "read-only file system"),
        (errno.EIO, MachineError, "input/output error"),
        (errno.EMFILE, MachineError, "ulimit"),
        (errno.ENOTDIR, StorageError, "not a directory"),
        (errno.ENAMETOOLONG, StorageError, "shorter name"),
    ],
)
def test_what_a_write_raises_names_the_place_and_the_fix(number, kind, words, tmp_path, monkeypatch):
    def failing(self, mode):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "open", failing)
    uri = str(tmp_path / "a.json")
    with pytest.raises(kind, match=words) as caught:
        write_atomic(uri, b"{}")
    assert caught.value.where == uri
    assert caught.value.fix


def test_a_full_disk_is_said_while_a_table_is_written(tmp_path):
    uri = str(tmp_path / "a.parquet")
    with pytest.raises(MachineError, match="no space left"), open_output(uri):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("do", [read_bytes, lambda uri: write_atomic(uri, b"")])
def test_a_path_with_nul_is_refused(do, tmp_path):
    with pytest.raises(StorageError, match="NUL") as caught:
        do(f"{tmp_path}/a\0b")
    assert "\0" not in str(caught.value)


def test_a_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file where a folder is needed"):
        write_atomic(str(tmp_path / "file" / "a.json"), b"")


def test_a_storage_library_is_named_with_one_line_of_what_it_says(monkeypatch):
    class NoCredentialsError(Exception):
        __module__ = "botocore.exceptions"

    def failing(*_):
        raise NoCredentialsError("Unable to locate credentials\nfor https://u:p@h")

    monkeypatch.setattr(filesystem, "_open", failing)
    with pytest.raises(MachineError, match="NoCredentialsError: Unable to locate credentials") as caught:
        read_bytes("s3://bucket/a")
    assert "AWS_ACCESS_KEY_ID" in caught.value.fix
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "FSSPEC_S3_ENDPOINT_URL"])
@pytest.mark.parametrize(
    ("endpoint", "right"),
    [
        ("minio:9000", "http://minio:9000."),
        ("10.0.0.7", "http://10.0.0.7."),
        ("s3://minio:9000/", "http://minio:9000/."),
        ("https:/minio.example", "https://minio.example."),
        (" http://minio:9000 ", "http://minio:9000."),
        ("http://my_minio:9000", "http://HOST:PORT; a host has letters, digits, '-' and '.'"),
        ("http://minio:90000", "http://HOST:PORT; .* a port is at most 65535."),
        ("http://", "http://HOST:PORT; "),
    ],
)
def test_an_endpoint_that_is_no_url_is_named_with_the_right_one(
    endpoint: str, right: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "FSSPEC_S3_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for said in (f"Invalid endpoint: {endpoint}", f"Custom endpoint `{endpoint}` was not a valid URI"):
        elsewhere = str(refusal_of(ValueError(said), where="s3://bucket/a"))
        assert re.search(
            rf"s3://bucket/a: .* address '{endpoint}' is not .*Set endpoint_url in .*, to {right}", elsewhere
        )
        with monkeypatch.context() as context:
            context.setenv(variable, endpoint)
            assert f"Set {variable} to" in str(refusal_of(ValueError(said), where="s3://bucket/a"))


def test_a_password_in_an_endpoint_without_a_scheme_is_not_shown() -> None:
    shown = str(refusal_of(ValueError("Invalid endpoint: me:hidden@minio:9000")))
    assert "hidden" not in shown
    assert "http://minio:9000" in shown


def test_botocore_says_so_of_an_endpoint_without_a_scheme() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    with pytest.raises(ValueError, match="endpoint") as caught:
        session.create_client(
            "s3", "us-east-1", endpoint_url="minio:9000", aws_access_key_id="a", aws_secret_access_key="b"
        )
    assert isinstance(refusal_of(caught.value), StorageError)


def test_too_little_memory_is_the_machines_matter():
    assert isinstance(refusal_of(MemoryError()), MachineError)
    assert isinstance(refusal_of(RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")), MachineError)
    assert isinstance(refusal_of(RuntimeError("can't start new thread")), MachineError)
    mapped = ImportError("libtorch_python.so: failed to map segment from shared object")
    assert isinstance(refusal_of(mapped), MachineError)
    assert refusal_of(ImportError("No module named 'x'")) is None
    assert refusal_of(KeyError("x")) is None
    assert refusal_of(ValueError("x")) is None
