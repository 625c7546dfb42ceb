"""What a place allows: variables, modules, locations and schedulers; and that no message shows a secret."""

from __future__ import annotations

import pytest

from gnnflow.config import config_from_dict, load_config
from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import ConfigError

TEXT = "name: a\nworkspace: /w\ngraph: {nodes: /d/n.parquet, edges: /d/e.parquet}\n"
VALUES = {"name": "a", "workspace": "/w", "graph": {"nodes": "/d/n.parquet", "edges": "/d/e.parquet"}}


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch):
    for name in ("SERVICE", "WORKSPACE", "MODULES", "ENV_ALLOW", "ALLOWED_URLS", "DASK_ADDRESS"):
        monkeypatch.delenv(f"GNNFLOW_{name}", raising=False)


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("GNNFLOW_SERVICE", "1")


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "HF_TOKEN", "MY_API_KEY", "AIRFLOW_CONN_DASK"],
)
def test_a_variable_that_looks_like_a_secret_is_never_read(name, monkeypatch):
    monkeypatch.setenv(name, "hunter2")
    with pytest.raises(ConfigError, match="looks like a secret") as caught:
        load_config(TEXT, overrides=[f"name=${{{name}}}"])
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("GNNFLOW_ENV_ALLOW", f"* {name}")
    assert load_config(TEXT, overrides=[f"name=${{{name}}}"]).name == "hunter2"


def test_a_service_reads_its_own_variables_only(service, monkeypatch):
    environment = {"GNNFLOW_DATA": "/data", "HOME": "/root", "TEAM_DATA": "/team"}
    read = {"overrides": ["graph.nodes=${GNNFLOW_DATA}/n"], "environment": environment}
    assert load_config(TEXT, **read).graph.nodes == "/data/n"
    with pytest.raises(ConfigError, match=r"HOME may not be read here; allowed are: GNNFLOW_\*"):
        load_config(TEXT, overrides=["graph.nodes=${HOME}/n"], environment=environment)
    monkeypatch.setenv("GNNFLOW_ENV_ALLOW", "TEAM_*")
    assert load_config(TEXT, overrides=["graph.nodes=${TEAM_DATA}/n"], environment=environment).graph.nodes == "/team/n"


def test_texts_of_a_form_are_never_expanded(monkeypatch):
    monkeypatch.setenv("GNNFLOW_DATA", "/data")
    held = config_from_dict({**VALUES, "graph": {**VALUES["graph"], "label": "${GNNFLOW_DATA}"}})
    assert held.graph.label == "${GNNFLOW_DATA}"
    with pytest.raises(ConfigError, match="read in files and --set only"):
        config_from_dict({**VALUES, "workspace": "${GNNFLOW_DATA}/runs"})


@pytest.mark.parametrize(
    "override",
    ["train.lr=${V}", "name='a b ${V}'", "model.kind=${V}", "graph={nodes: n, edges: e, features: ['${V}', '${V}']}",
     "train={'${V}': 1, lr: '${V}'}", "graph={nodes: n, edges: e, id: '${V}', features: ['${V}']}"],
)  # fmt: skip
def test_a_message_names_the_variable_and_never_its_value(override):
    with pytest.raises(ConfigError) as caught:
        load_config(TEXT, overrides=[override], environment={"V": "hunter2-value"})
    assert "hunter2" not in str(caught.value)
    assert "${V}" in str(caught.value)


@pytest.mark.parametrize("override", ["graph.nodes='https://${GNNFLOW_V}/n'", "model.kind='${GNNFLOW_V}:Gated'"])
def test_a_message_of_what_is_not_allowed_here_names_the_variable_too(override, service):
    with pytest.raises(ConfigError, match=r"allowed here|imported here") as caught:
        load_config(TEXT, overrides=[override], environment={"GNNFLOW_V": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "${GNNFLOW_V}" in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "https://ghp_abc123@example.com/n.parquet",
        "https://example.com/n.parquet?sig=abc123",
        "https://example.com/n.parquet?sv=1&key=abc123",
        "https://example.com/n.parquet?access_token=abc123",
        "https://b.s3.amazonaws.com/n?X-Amz-Algorithm=A&X-Amz-Credential=abc123&X-Amz-Signature=abc123",
        "https://b.s3.amazonaws.com/n?AWSAccessKeyId=abc123&Signature=abc123",
        "simplecache::https://abc123@example.com/n.parquet",
    ],
)
@pytest.mark.parametrize("key", ["workspace", "graph.nodes", "graph.edges"])
def test_a_url_with_a_secret_is_refused_and_masked(key, uri):
    with pytest.raises(ConfigError) as caught:
        load_config(TEXT, overrides=[f"{key}={uri}"])
    assert "abc123" not in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "abfss://container@account.dfs.core.windows.net/n.parquet",
        "sftp://me@host/n.parquet",
        "s3://bucket/n.parquet?versionId=abc",
        "s3://bucket/a@b/n.parquet",
        "https://example.com/n.parquet?page=2",
    ],
)
def test_a_url_without_a_secret_is_taken(uri):
    assert load_config(TEXT, overrides=[f"graph.nodes={uri}"]).graph.nodes == uri


def test_an_error_masks_what_a_library_says():
    where, fix = "s3://u:TOKEN123@b", "see ?key=TOKEN123"
    error = ConfigError("GET https://TOKEN123@h/a?sig=TOKEN123 failed", where=where, fix=fix)
    assert "TOKEN123" not in str(error)


@pytest.mark.parametrize("uri", ["a\x00b", "a\nb", "\x1b[31mred"])
def test_control_characters_in_a_path_are_refused(uri):
    with pytest.raises(ConfigError, match="control character"):
        config_from_dict({**VALUES, "workspace": uri})


@pytest.mark.parametrize(("allowed", "fine"), [(None, True), ("", False), ("mine", True), ("mine.layers other", True),
                                               ("min", False), ("other", False)])  # fmt: skip
def test_modules_are_allowed_by_package(allowed, fine, monkeypatch):
    if allowed is not None:
        monkeypatch.setenv("GNNFLOW_MODULES", allowed)
    read = {**VALUES, "model": {"kind": "mine.layers:Gated"}}
    if fine:
        assert config_from_dict(read).model.kind == "mine.layers:Gated"
    else:
        with pytest.raises(ConfigError, match=r"module 'mine\.layers' may not be imported here"):
            config_from_dict(read)


def test_a_loss_is_imported_where_a_layer_would_be(service, monkeypatch):
    read = {**VALUES, "train": {"loss": {"kind": "mine.losses:focal"}}}
    with pytest.raises(ConfigError, match=r"train\.loss\.kind: module 'mine\.losses' may not be imported here"):
        config_from_dict(read)
    monkeypatch.setenv("GNNFLOW_MODULES", "mine")
    assert config_from_dict(read).train.loss.kind == "mine.losses:focal"


def test_a_service_imports_nothing_unless_told(service, monkeypatch):
    read = {**VALUES, "model": {"kind": "os:system"}}
    with pytest.raises(ConfigError, match="GNNFLOW_MODULES"):
        config_from_dict(read)
    assert config_from_dict({**VALUES, "model": {"kind": "gat"}}).model.kind == "gat"
    assert config_from_dict({**VALUES, "model": {"kind": "gnnflow.layers.gcn:GCN"}})
    monkeypatch.setenv("GNNFLOW_MODULES", "os")
    assert config_from_dict(read)


def test_a_service_takes_no_scheduler_from_a_config(service, monkeypatch):
    read = {**VALUES, "cluster": {"kind": "address", "address": "tcp://evil:8786"}}
    with pytest.raises(ConfigError, match=r"cluster\.address"):
        config_from_dict(read)
    monkeypatch.setenv("GNNFLOW_DASK_ADDRESS", "tcp://evil:8786")
    assert config_from_dict(read)


@pytest.mark.parametrize(
    ("uri", "fine"),
    [
        ("s3://bucket/a/n.parquet", True),
        ("s3://bucket", True),
        ("s3://bucket-of-another/n.parquet", False),
        ("s3://bucket/../other/n.parquet", False),
        ("s3://other/../bucket/n.parquet", False),  # of bucket `other`
        ("http://h/t/a/n.parquet", True),
        ("http://h/t/%2e%2e/n.parquet", False),  # fetched as http://h/n.parquet
        ("http://h/t/a://../../../n.parquet", False),
        ("http://other/../h/t/n.parquet", False),
        ("http://other/?/../../h/t/n.parquet", False),
        ("file:///w/../etc/n.parquet", False),
        ("/data/n.parquet", True),
        ("/data/../etc/n.parquet", False),
        ("/database/n.parquet", False),
        ("https://example.com/n.parquet", False),
        ("s3://bucket/a::https://example.com/n.parquet", False),
        ("gs://any/n.parquet", True),
    ],
)
def test_locations_are_allowed_by_prefix(uri, fine, monkeypatch):
    monkeypatch.setenv("GNNFLOW_ALLOWED_URLS", "s3://bucket/ /data gs:// http://h/t /w /d")
    read = {**VALUES, "graph": {**VALUES["graph"], "nodes": uri}}
    if fine:
        assert config_from_dict(read).graph.nodes == uri
    else:
        with pytest.raises(ConfigError, match="GNNFLOW_ALLOWED_URLS"):
            config_from_dict(read)


@pytest.mark.parametrize("uri", ["http://169.254.169.254/latest", "zip://a::http://b/c", "ftp://h/n.parquet"])
def test_a_service_fetches_nothing_from_other_hosts_unless_told(uri, service):
    with pytest.raises(ConfigError, match="GNNFLOW_ALLOWED_URLS"):
        config_from_dict({**VALUES, "graph": {**VALUES["graph"], "nodes": uri}})


def test_the_workspace_is_looked_for_in_the_documented_order(monkeypatch):
    named, unnamed = TEXT, TEXT.replace("workspace: /w\n", "")
    assert load_config(unnamed).workspace == "runs"
    monkeypatch.setenv("GNNFLOW_WORKSPACE", "/from-environment")
    assert load_config(unnamed).workspace == "/from-environment"
    assert load_config(named).workspace == "/w"
    assert load_config(named, workspace="/from-option").workspace == "/from-option"


@pytest.mark.parametrize("told", ["service", "address"])
def test_relative_paths_become_absolute_before_they_travel(told, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    read = {"name": "a", "workspace": "runs", "graph": {"nodes": "d/n.parquet", "edges": "file://d/e.parquet"}}
    if told == "service":
        monkeypatch.setenv("GNNFLOW_SERVICE", "1")
    else:
        read["cluster"] = {"kind": "address", "address": "tcp://scheduler:8786"}
    config = config_from_dict(read)
    assert config.workspace == str(tmp_path / "runs")
    assert config.graph.nodes == str(tmp_path / "d/n.parquet")
    assert config.graph.edges == f"file://{tmp_path}/d/e.parquet"


@pytest.mark.parametrize("uri", ["s3://", "memory://", "file:///", "s3:/bucket/runs", "s3:"])
def test_a_scheme_without_a_place_is_refused(uri):
    with pytest.raises(ConfigError, match="names a scheme and no place"):
        config_from_dict({**VALUES, "workspace": uri})


@pytest.mark.parametrize("uri", ["s3://bucket/*", "runs/r?", "runs/[ab]"])
def test_a_workspace_has_no_wildcards(uri):
    with pytest.raises(ConfigError, match=r"workspace: .*wildcard"):
        config_from_dict({**VALUES, "workspace": uri})


def test_a_workspace_lies_beside_the_tables():
    with pytest.raises(ConfigError, match=r"lies inside graph\.edges"):
        config_from_dict({**VALUES, "workspace": "/d/e/runs", "graph": {"nodes": "/d/n", "edges": "/d/e"}})


def test_settings_come_from_the_environment_alone():
    said = Deployment.here({"GNNFLOW_SERVICE": "0", "GNNFLOW_MODULES": "a, b c"})
    assert not said.service
    assert said.modules == ("a", "b", "c")
