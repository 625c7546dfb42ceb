"""Within a folder nothing outside of it is found, read or written, by links and pipes neither."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import (
    age_of,
    exists,
    is_below,
    is_folder,
    list_names,
    open_arrow,
    read_bytes,
    size_of,
    within,
)
from gnnflow.storage.writing import create_exclusive, write_atomic

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file, a link to a folder next to it, to a file there, to itself, and a pipe."""
    inside, outside = tmp_path / "inside", tmp_path / "inside-out"
    for each in (inside / "below", outside):
        each.mkdir(parents=True)
        (each / "file").write_text(each.name)
    (inside / "linked").symlink_to(outside)
    (inside / "file").symlink_to(outside / "file")
    (inside / "again").symlink_to(inside)
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.parametrize("name", ["linked/file", "file", "../inside-out/file", "pipe", "/dev/zero"])
def test_what_lies_elsewhere_is_absent(folder: Path, name: str) -> None:
    uri = name if name.startswith("/") else f"{folder}/{name}"
    with within(str(folder)):
        assert (exists(uri), is_folder(uri), size_of(uri), age_of(uri)) == (False, False, None, None)
        for read in (read_bytes, open_arrow):
            with pytest.raises(StorageError, match="no such file"):
                read(uri)
        for write in (write_atomic, create_exclusive):
            with pytest.raises(StorageError, match="outside of the workspace"):
                write(uri, b"x")
        assert list_names(f"{folder}/linked") == []
        assert not is_below(uri, str(folder))
    assert exists(uri)


def test_what_lies_there_is_as_before_and_only_in_the_block_of_this_thread(folder: Path) -> None:
    seen = []
    with within(str(folder / "again")):
        assert read_bytes(f"{folder}/again/below/file") == b"below"
        assert create_exclusive(f"{folder}/below/new", b"x")
        assert list_names(f"{folder}/below") == ["file", "new"]
        other = threading.Thread(target=lambda: seen.append(exists(f"{folder}/linked/file")))
        other.start()
        other.join()
    assert seen == [True]


def test_another_kind_of_storage_is_elsewhere(folder: Path) -> None:
    write_atomic("memory://elsewhere/a", b"x")
    write_atomic("memory://elsewhere-too/a", b"x")
    with within(str(folder)):
        assert not exists("memory://elsewhere/a")
    with within("memory://elsewhere"):
        assert exists("memory://elsewhere/a")
        assert not exists("memory://elsewhere-too/a")
        assert not exists(f"{folder}/below/file")
