"""Credentials that a run brings along: which URLs they open, who inherits them, and that nobody reads them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import ConfigError
from gnnflow.storage import access

SECRET = "planted-secret-Zq7"
WHOLE = access.Access("connection c", ("s3://", "s3a://"), {"secret": SECRET, "client_kwargs": {"region_name": "eu"}})


def test_narrowed_to_the_buckets_of_a_config_it_opens_no_other():
    content = {"workspace": "s3://runs/a", "graph": {"nodes": {"x": "s3://tables/x.parquet"}, "edges": "/local"}}
    narrow = access.narrowed(WHOLE, "gnnflow-ingest-1", content)
    assert (narrow.name, narrow.places) == ("gnnflow-ingest-1", ("s3://runs", "s3://tables"))
    access.hold(narrow)
    try:
        assert access.options_of("s3://runs/b") == access.options_of("s3://runs") == WHOLE.options
        assert access.options_of("s3://runs-of-others/b") == access.options_of("/local") == {}
        assert access.mask_credentials(f"eu denied {SECRET}") == "eu denied ..."
    finally:
        access.release("gnnflow-ingest-1")
    assert access.options_of("s3://runs/b") == {}


def test_processes_that_are_started_meanwhile_inherit_it_and_a_config_cannot_read_it():
    code = "from gnnflow.storage import access; print(access.options_of('s3://b/x').get('secret'))"

    def told():
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    with access.using(WHOLE):
        assert told() == SECRET
        assert SECRET not in repr(access.held(WHOLE.name))
        with pytest.raises(ConfigError, match="looks like a secret"):
            Deployment.here({"GNNFLOW_SERVICE": "1"}).check_variable(access.VARIABLE, where="workspace")
    assert told() == "None"
    assert access.VARIABLE not in os.environ
