"""Credentials that a run brings along: which URLs they open, who inherits them, and that nobody reads them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import ConfigError
from gnnflow.storage import access, filesystem
from gnnflow.storage.filesystem import exists

SECRET = "planted-secret-Zq7"
OPTIONS = {"secret": SECRET, "client_kwargs": {"region_name": "eu"}}
WHOLE = access.Access("connection c", {"s3://": OPTIONS, "s3a://": OPTIONS})
STORE = access.Access("connection store", {"store://": {"secret": SECRET}})


class Store(MemoryFileSystem):
    """A store whose library takes a secret, and keeps its filesystems as every library of fsspec's does."""

    protocol = "store"
    cachable = True


def keepers():
    """Return the filesystems in this process that hold the secret."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Store) and SECRET in str(each.storage_options)]


def test_narrowed_to_the_buckets_of_a_config_it_opens_no_other():
    content = {"workspace": "s3://runs/a", "graph": {"nodes": {"x": "s3://tables/x.parquet"}, "edges": "/local"}}
    narrow = access.narrowed("gnnflow-ingest-1", content, [WHOLE, STORE])
    assert (narrow.name, [*narrow.opens]) == ("gnnflow-ingest-1", ["s3://runs", "s3://tables"])
    access.hold(narrow)
    try:
        assert access.options_of("s3://runs/b") == access.options_of("s3://runs") == OPTIONS
        assert access.options_of("s3://runs-of-others/b") == access.options_of("/local") == {}
        assert access.mask_credentials(f"eu denied {SECRET}") == "eu denied ..."
    finally:
        access.release("gnnflow-ingest-1")
    assert access.options_of("s3://runs/b") == {}


def test_parts_are_given_back_by_themselves_or_with_the_whole():
    access.hold(access.Access("a", WHOLE.opens))
    access.hold(access.Access("ab"))
    first, second = access.part_of("a"), access.part_of("a")
    access.hold(first)
    access.hold(second)
    access.release(first.name)
    assert (access.held(first.name), access.held("a") is None, access.held(second.name)) == (None, False, second)
    access.release("a")
    assert [access.held(name) is None for name in ("a", second.name, "ab")] == [True, True, False]
    access.release("ab")


def test_workers_of_this_machine_inherit_it_and_no_other_process_or_config():
    code = "from gnnflow.storage import access; print(access.options_of('s3://b/x').get('secret'))"

    def told():
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    with access.using(WHOLE):
        assert access.VARIABLE not in os.environ
        with access.inherited():
            assert told() == SECRET
            assert SECRET not in repr(access.held(WHOLE.name))
            with pytest.raises(ConfigError, match="looks like a secret"):
                Deployment.here({"GNNFLOW_SERVICE": "1"}).check_variable(access.VARIABLE, where="workspace")
        assert access.VARIABLE not in os.environ
    with access.inherited():
        assert access.VARIABLE not in os.environ


def test_an_opened_location_is_looked_up_once(monkeypatch):
    """Finds a second look-up for each file of a run."""
    fsspec.register_implementation("store", Store, clobber=True)
    asked = []
    monkeypatch.setattr(filesystem, "options_of", lambda uri: asked.append(uri) or access.options_of(uri))
    with access.using(STORE):
        filesystem.resolve("store://bucket/x")
    assert asked == ["store://bucket/x"]


@pytest.mark.parametrize("use", [access.using, access.using_here])
def test_no_filesystem_keeps_the_secret_once_it_is_given_back(use):
    fsspec.register_implementation("store", Store, clobber=True)
    with use(STORE):
        assert not exists("store://bucket/x")
        assert keepers()
    assert not keepers()
    assert not exists("store://bucket/x")
