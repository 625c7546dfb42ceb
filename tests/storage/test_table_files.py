"""A table's files are those pyarrow.dataset would take; what is left out is said, and nothing is read twice."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from gnnflow.config import GraphConfig
from gnnflow.graph.errors import ConfigError, GnnflowError, StorageError
from gnnflow.stages.resolve import stamps_of
from gnnflow.storage import snapshots
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.user_tables import read_whole, scan
from gnnflow.storage.writing import write_atomic


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def names(uri: str) -> list[str]:
    return [file.name for file in find_table_files(uri).files]


def test_hidden_files_and_folders_are_skipped_and_said(tmp_path: Path) -> None:
    make(tmp_path, "a.parquet", "_temporary/0/b.parquet", ".ipynb_checkpoints/a.parquet", "s/.c.parquet", "_SUCCESS")
    make(tmp_path, "s/d.PARQUET", "readme.md")
    found = find_table_files(str(tmp_path))
    assert [file.name for file in found.files] == ["a.parquet", "s/d.PARQUET"]
    assert "2 files" in found.summary
    assert "skipped 5" in found.summary
    assert "_temporary/0/b.parquet" in found.skipped


def test_a_hidden_parent_above_the_table_hides_nothing(tmp_path: Path) -> None:
    make(tmp_path, "_data/.cache/t/a.csv")
    assert names(str(tmp_path / "_data/.cache/t")) == ["a.csv"]
    assert names(str(tmp_path / "_data/.cache/t/a.csv")) == ["a.csv"]


def test_folders_called_key_value_become_columns(tmp_path: Path) -> None:
    make(tmp_path, "split=train/weight=0.5/a.csv", "split=a%20b/weight=__HIVE_DEFAULT_PARTITION__/a.csv")
    keys = {file.name: file.keys for file in find_table_files(str(tmp_path)).files}
    assert keys["split=train/weight=0.5/a.csv"] == (("split", "train"), ("weight", "0.5"))
    assert [value for _, value in keys["split=a%20b/weight=__HIVE_DEFAULT_PARTITION__/a.csv"]] == ["a b", None]
    assert find_table_files(f"{tmp_path}/split=*/weight=0.5/*.csv").files[0].keys == (
        ("split", "train"),
        ("weight", "0.5"),
    )


@pytest.mark.parametrize("name", ["nodes[1].csv", "a*b.csv", "what?.csv"])
def test_a_name_with_glob_characters_that_exists_is_that_file(tmp_path: Path, name: str) -> None:
    make(tmp_path, name, "nodes1.csv", "aXb.csv", "whatX.csv")
    assert names(str(tmp_path / name)) == [name]


def test_a_glob_takes_each_file_once_and_nothing_hidden(tmp_path: Path) -> None:
    make(tmp_path, "t/a.csv", "t/s/b.csv", "t/_old/c.csv", "t/x.txt")
    assert names(f"{tmp_path}/t/**") == ["a.csv", "s/b.csv"]
    assert names(f"{tmp_path}/t/_*/*.csv") == ["_old/c.csv"]


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_links_lead_to_no_file_twice(tmp_path: Path, scheme: str) -> None:
    make(tmp_path, "t/day/a.csv")
    (tmp_path / "t/latest").symlink_to(tmp_path / "t/day")
    (tmp_path / "t/day/up").symlink_to(tmp_path / "t")
    (tmp_path / "t/day/b.csv").symlink_to("a.csv")
    found = find_table_files(f"{scheme}{tmp_path}/t")
    assert [(file.uri, file.name) for file in found.files] == [(f"{scheme}{tmp_path}/t/day/a.csv", "day/a.csv")]
    assert set(found.skipped) == {"latest/", "day/up/", "day/b.csv"}
    (tmp_path / "t/c.csv").symlink_to("nothing.csv")
    with pytest.raises(StorageError, match="is a link to a file that is not there"):
        find_table_files(f"{scheme}{tmp_path}/t")


def test_no_link_leads_out_of_the_allowed_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "data/t/a.csv", "other/b.csv", "other/t/c.csv")
    (tmp_path / "data/t/b.csv").symlink_to(tmp_path / "other/b.csv")
    (tmp_path / "data/u").symlink_to(tmp_path / "other/t")
    (tmp_path / "data/v").mkdir()
    (tmp_path / "data/v/a.csv").symlink_to("../t/a.csv")
    (tmp_path / "allowed").symlink_to(tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "other/x.db")) as database:
        database.execute("CREATE TABLE t (id INTEGER)")
    (tmp_path / "data/x.db").symlink_to(tmp_path / "other/x.db")
    places = {
        "data/t/a.csv": True,
        "data/t": False,
        "data/t/b.csv": False,
        "data/*/*.csv": False,
        "data/u": False,
        "data/x.db#t": False,
    }
    monkeypatch.setenv("GNNFLOW_ALLOWED_URLS", f"{tmp_path}/allowed/")
    for place, fine in {**places, "data/v": True, "allowed/v/a.csv": True}.items():
        if fine:
            assert names(f"{tmp_path}/{place}") == ["a.csv"]
        else:
            with pytest.raises(ConfigError, match="is not allowed here"):
                find_table_files(f"{tmp_path}/{place}")


@pytest.mark.parametrize("other", ["a.csv.gz", "b.parquet"])
def test_the_same_rows_in_two_formats_are_refused(tmp_path: Path, other: str) -> None:
    make(tmp_path, "a.csv", other)
    with pytest.raises(StorageError, match="the same rows twice"):
        find_table_files(str(tmp_path))


@pytest.mark.timeout(10)
def test_what_is_no_file_is_refused_and_never_opened(tmp_path: Path) -> None:
    make(tmp_path, "t/a.csv")
    os.mkfifo(tmp_path / "t/pipe.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to("/proc/self/environ")
    for place in ("t", "pipe.csv", "link.csv"):
        with pytest.raises(StorageError, match="not a file"):
            find_table_files(str(tmp_path / place))
    for place in ("/dev/zero", "/proc/self/environ", "/proc", f"file://{tmp_path}/pipe.csv", f"file://{tmp_path}/t"):
        with pytest.raises(StorageError, match="not a file"):
            find_table_files(place)
    for place in ("a\0b.csv", "x" * 5000):
        with pytest.raises(StorageError):
            find_table_files(place)


LOGS = {
    "Delta Lake": "_delta_log/00000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Spark's streaming": "_spark_metadata/0",
    "Iceberg": "metadata/v2.metadata.json",
}


@pytest.mark.parametrize("scheme", ["", "memory://"])
@pytest.mark.parametrize("kind", LOGS)
def test_a_table_whose_log_is_not_read_is_refused_with_the_folders_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, scheme: str
) -> None:
    monkeypatch.setattr(snapshots, "find_spec", lambda _: None)
    root = f"{scheme}{tmp_path}/table"
    for name in (LOGS[kind], "data/day=1/a.parquet", "data/day=2/b.parquet"):
        write_atomic(f"{root}/{name}", b"")
    extra = {"Delta Lake": "delta", "Iceberg": "iceberg"}.get(kind)
    missing = rf"is a table of {kind}: .* not installed\. Install it .*gnnflow\[{extra}\]"
    with pytest.raises(ConfigError if extra else StorageError, match=missing if extra else "current files"):
        find_table_files(root)
    for folder in (f"{root}/data", f"{root}/data/day=1", f"{root}/data/day=1/"):
        with pytest.raises(StorageError, match=f"table.* of {kind}: its current files are listed in"):
            find_table_files(folder)
    assert names(f"{root}/data/day=*/*.parquet") == ["day=1/a.parquet", "day=2/b.parquet"]
    assert names(f"{root}/data/day=1/a.parquet") == ["a.parquet"]


def test_a_table_of_lance_is_refused_by_name_without_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "find_spec", lambda _: None)
    make(tmp_path, "t.lance/_versions/1.manifest", "t.lance/data/a.lance")
    with pytest.raises(ConfigError, match=r"is a table of Lance: .*'gnnflow\[lance\]'\), or: .*out as Parquet\.$"):
        find_table_files(str(tmp_path / "t.lance"))
    with pytest.raises(StorageError, match=r"lies in .*t\.lance, a table of Lance"):
        find_table_files(str(tmp_path / "t.lance" / "data"))


TYPED = pa.table({"id": [1, 2, 3], "day": ["a b", "c/d", None], "x": [1.5, 2.5, None]})


def versions(root: str) -> list[str]:
    return [each.version for each in stamps_of(GraphConfig(nodes=root, edges=root))["nodes"]]


@pytest.mark.keeps("threads")  # its pool stays
def test_the_current_files_of_an_iceberg_table_are_its_current_snapshot(tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.memory", reason="needs gnnflow[iceberg]")
    types = pytest.importorskip("pyiceberg.types", reason="needs gnnflow[iceberg]")
    catalog = catalogs.InMemoryCatalog("c", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=TYPED.schema)
    root = str(tmp_path / "n" / "t")
    with pytest.raises(StorageError, match="an empty table of Iceberg has no rows"):
        find_table_files(root)
    table.append(TYPED.slice(0, 2))
    table.append(TYPED.slice(2))
    first, metadata = find_table_files(root), table.metadata_location
    assert read_whole(scan(first)).sort_by("id").to_pydict() == TYPED.to_pydict()
    assert first.snapshot == f"snapshot {table.current_snapshot().snapshot_id} of Iceberg"
    before = versions(root)
    table.delete("id = 1")  # its file is written again without the row
    assert read_whole(scan(root)).sort_by("id")["id"].to_pylist() == [2, 3]
    assert versions(root) != before
    assert versions(metadata) == before
    with table.update_schema() as update:
        update.add_column("y", types.LongType())
        update.rename_column("x", "z")
    with pytest.raises(StorageError, match=r"columns were changed after .*: x, z, y"):
        find_table_files(root)


@pytest.mark.keeps("threads")  # its pool stays
def test_properties_of_an_iceberg_table_name_no_code_and_no_store(tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.memory", reason="needs gnnflow[iceberg]")
    catalog = catalogs.InMemoryCatalog("c", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=TYPED.schema)
    table.append(TYPED)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    held = json.loads(metadata.read_text())
    # its library would call the class with these properties, whose keys would be a command
    held["properties"] = {"touch": "", f"{tmp_path}/ran": "", "py-io-impl": "subprocess.Popen"}
    metadata.write_text(json.dumps(held))
    assert read_whole(scan(str(tmp_path / "n" / "t"))).num_rows == TYPED.num_rows
    time.sleep(0.2)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"delete_files": {"d.parquet"}}, "with deleted rows in .*gnnflow import iceberg:EDGES"),
        ({"format": "ORC"}, "not Parquet.*gnnflow import iceberg:EDGES"),
        ({}, "'/other/a' is not allowed here"),
    ],
)
def test_an_iceberg_table_whose_files_do_not_hold_its_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], problem: str
) -> None:
    file = SimpleNamespace(
        file_path="file:///other/a", file_format=SimpleNamespace(name=changed.get("format", "PARQUET"))
    )
    task = SimpleNamespace(file=file, delete_files=changed.get("delete_files", set()))
    schema = SimpleNamespace(fields=[SimpleNamespace(field_id=1, name="id")])
    opened = SimpleNamespace(
        current_snapshot=lambda: None,
        scan=lambda: SimpleNamespace(plan_files=lambda: [task]),
        schema=lambda: schema,
        metadata=SimpleNamespace(schemas=[schema]),
    )
    monkeypatch.setattr(snapshots, "open_iceberg", lambda _: opened)
    monkeypatch.setattr(snapshots, "find_spec", lambda _: True)
    make(tmp_path, "t/metadata/v1.metadata.json")
    monkeypatch.setenv("GNNFLOW_ALLOWED_URLS", str(tmp_path))
    with pytest.raises(GnnflowError, match=problem):
        find_table_files(str(tmp_path / "t"))


@pytest.mark.keeps("descriptors", "threads")  # its runtime in Rust stays
def test_the_fragments_of_a_lance_table_are_its_newest_version(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="needs gnnflow[lance]")
    root = str(tmp_path / "t.lance")
    lance.write_dataset(TYPED, root, max_rows_per_file=2)
    first, before = find_table_files(root), versions(root)
    chunks = scan(first)
    assert [chunk.num_rows for chunk in chunks] == [2, 1]
    assert read_whole(chunks).to_pydict() == TYPED.to_pydict()
    assert read_whole(chunks, columns=["x"]).to_pydict() == {"x": [1.5, 2.5, None]}
    lance.dataset(root).delete("id = 1")
    assert read_whole(scan(root))["id"].to_pylist() == [2, 3]
    assert read_whole(chunks)["id"].to_pylist() == [1, 2, 3]  # of the version that was listed
    assert versions(root) != before


@pytest.mark.keeps("descriptors", "threads")  # its runtime in Rust stays
def test_the_current_files_of_a_delta_table_are_its_newest_version(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="needs gnnflow[delta]")
    root, rows = str(tmp_path / "t"), pa.table({"id": [1, 2, 3], "day": ["a b", "c/d", None]})
    deltalake.write_deltalake(root, rows, partition_by=["day"])
    first = find_table_files(root)
    assert read_whole(scan(first)).sort_by("id").to_pydict() == rows.to_pydict()
    assert "3 files of" in first.summary
    assert ", version 0 of Delta Lake" in first.summary
    deltalake.DeltaTable(root).delete("id = 2")
    found = find_table_files(root)
    assert read_whole(scan(found)).sort_by("id")["id"].to_pylist() == [1, 3]
    assert found.snapshot == "version 1 of Delta Lake"
    nodes, edges = (stamps_of(GraphConfig(nodes=root, edges=root))[name] for name in ("nodes", "edges"))
    assert nodes == edges
    assert nodes[-1].version == found.snapshot
    deltalake.write_deltalake(root, rows.slice(0, 1), mode="overwrite")
    deltalake.DeltaTable(root).restore(1)
    assert [file.name for file in find_table_files(root).files] == [file.name for file in found.files]
    assert stamps_of(GraphConfig(nodes=root, edges=root))["nodes"] != nodes


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"features": ["deletionVectors", "timestampNtz"]}, "is a Delta Lake table with deletionVectors"),
        ({"mapping": "name"}, "is a Delta Lake table with columnMapping"),
        ({"path": "s3://other/a.parquet"}, "which lies elsewhere"),
        ({"path": "%2e%2e/../other/a.parquet"}, "which lies elsewhere"),
    ],
)
def test_a_delta_table_whose_files_do_not_hold_its_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], problem: str
) -> None:
    mapping = {"delta.columnMapping.mode": changed.get("mapping", "none")}
    opened = SimpleNamespace(
        protocol=lambda: SimpleNamespace(reader_features=changed.get("features")),
        metadata=lambda: SimpleNamespace(configuration=mapping),
        get_add_actions=lambda **_: pa.table({"path": [changed.get("path", "a.parquet")]}),
        version=lambda: 3,
    )
    monkeypatch.setitem(sys.modules, "deltalake", SimpleNamespace(DeltaTable=lambda _: opened))
    monkeypatch.setattr(snapshots, "find_spec", lambda _: True)
    make(tmp_path, "_delta_log/0.json", "a.parquet")
    with pytest.raises(StorageError, match=problem):
        find_table_files(str(tmp_path))


def test_other_folders_called_metadata_are_no_log(tmp_path: Path) -> None:
    make(tmp_path, "t/a.parquet", "t/metadata/columns.json", "metadata/notes.txt")
    assert names(str(tmp_path / "t")) == ["a.parquet"]
