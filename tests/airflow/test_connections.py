"""The connection form and its test; storage that is reached with a connection's credentials, which stay secret."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

import jsonschema
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException
from distributed import Client
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from gnnflow.graph.errors import ConfigError, StorageError
from gnnflow.storage import access
from gnnflow.storage.filesystem import join, list_names
from gnnflow_airflow import hook, storage_connections
from gnnflow_airflow.connected import connected
from gnnflow_airflow.hook import DaskHook
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.provider import get_provider_info
from gnnflow_airflow.reading import read_config
from gnnflow_airflow.stages import IngestOperator
from gnnflow_airflow.storage_connections import access_of
from tests.airflow.running import TRAIN, Quiet, sync
from tests.conftest import REPOSITORY
from tests.mapreduce.foreign_cluster import foreign_cluster
from tests.s3 import local_bucket
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

SECRET = "planted-secret-Zq7-of-the-connection"


def set_connection(monkeypatch, name, **values):
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(values))


def test_the_form_is_what_airflow_draws():
    """Of the schema, whose other keys Airflow drops, and of the page's data."""
    import airflow
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    (ours,) = get_provider_info()["connection-types"]
    schema = json.loads((Path(airflow.__file__).parent / "provider.yaml.schema.json").read_text())
    jsonschema.validate(ours, schema["properties"]["connection-types"]["items"])
    drawn = next(each for each in HookMetaService.hook_meta_data() if each.connection_type == "dask")
    assert drawn.hook_name == ours["hook-name"] == DaskHook.hook_name
    assert drawn.standard_fields.host.title == "Address of the scheduler"
    assert drawn.standard_fields.password.hidden
    assert set(drawn.extra_fields) == set(ours["conn-fields"])


def test_all_fields_of_the_form_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (ours,) = get_provider_info()["connection-types"]
    extra = {name: 3 if name == "workers" else f"{name}.pem" for name in ours["conn-fields"]}
    set_connection(monkeypatch, "it", conn_type="dask", host="there", extra=extra)
    for name in ("tls_ca_file", "tls_client_cert"):
        (tmp_path / f"{name}.pem").write_text("")
    assert DaskHook("it").test_connection() == (
        False,
        "TLS files of the Dask connection are not here: tls_client_key (tls_client_key.pem)",
    )
    (tmp_path / "tls_client_key.pem").write_text("")
    found = DaskHook("it").get_conn()
    assert found.address == "tls://there:8786"
    assert found.security.tls_ca_file == "tls_ca_file.pem"
    assert found.asked == {"resource": "resource.pem", "workers": 3}
    assert (found.workspace, found.storage_conn_id) == ("workspace.pem", "storage_conn_id.pem")


def test_the_button_counts_fit_workers_and_writes_to_the_workspace(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("good", resources="ours=1")
        with Client(cluster.address, timeout=60) as client:
            client.wait_for_workers(1, timeout=60)

        def answer(**extra):
            set_connection(monkeypatch, "it", conn_type="dask", host="127.0.0.1", port=cluster.port, extra=extra)
            return DaskHook("it").test_connection()

        runs = str(tmp_path / "runs")
        is_good, text = answer(workspace=runs, resource="ours")
        assert is_good
        assert text.startswith(f"The scheduler {cluster.address} answers; 1 of its workers can run gnnflow's tasks.")
        assert text.endswith(f" The workspace {runs} can be written.")
        assert list_names(runs) == []
        is_good, text = answer(workers=2)
        assert not is_good
        assert "1 of its workers can run gnnflow's tasks, and 2 are asked for" in text
        is_good, text = answer(resource="theirs")
        assert not is_good
        assert "does not offer the resource theirs" in text
        is_good, text = answer(workspace=str(file / "runs"))
        assert not is_good
        assert "set another place" in text
        is_good, text = answer(storage_conn_id="none")
        assert not is_good
        assert "none" in text


def test_the_workspace_is_the_default_of_configs_alone(tmp_path, monkeypatch):
    set_connection(monkeypatch, "it", conn_type="dask", extra={"workspace": str(tmp_path / "of-connection")})
    write_graph(tmp_path)
    values = graph_config(tmp_path).model_dump(mode="json")
    del values["workspace"]
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(values))
    with connected("it"):
        assert read_config(str(file)).workspace == str(tmp_path / "of-connection")
        assert read_config(str(file), workspace=str(tmp_path / "own")).workspace == str(tmp_path / "own")
    assert "of-connection" not in read_config(str(file)).workspace


@pytest.mark.parametrize(
    ("values", "scheme", "options"),
    [
        (
            {
                "conn_type": "aws",
                "login": "id",
                "password": SECRET,
                "extra": {"region_name": "eu-west-1", "service_config": {"s3": {"endpoint_url": "http://s3"}}},
            },
            "s3://",
            {
                "key": "id",
                "secret": SECRET,
                "client_kwargs": {"region_name": "eu-west-1", "endpoint_url": "http://s3"},
            },
        ),
        (
            {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": '{"type": "a"}', "project": "p"}},
            "gs://",
            {"token": {"type": "a"}, "project": "p"},
        ),
        ({"conn_type": "google_cloud_platform"}, "gs://", {}),
        (
            {"conn_type": "wasb", "login": "account", "password": SECRET},
            "az://",
            {"account_name": "account", "account_key": SECRET},
        ),
        (
            {
                "conn_type": "wasb",
                "login": "unread",
                "extra": {"connection_string": f"accountkey={SECRET}; AccountName=a"},
            },
            "abfs://",
            {"connection_string": f"accountkey={SECRET}; AccountName=a", "account_name": "a"},
        ),
        (
            {"conn_type": "wasb", "extra": {"connection_string": "BlobEndpoint=https://blobs.bank.example/"}},
            "az://",
            {"connection_string": "BlobEndpoint=https://blobs.bank.example/"},
        ),
        (
            {
                "conn_type": "adls",
                "host": "https://account.dfs.core.windows.net",
                "login": "client",
                "password": SECRET,
                "extra": {"tenant_id": "t"},
            },
            "abfss://",
            {"account_name": "account", "client_id": "client", "client_secret": SECRET, "tenant_id": "t"},
        ),
    ],
)
def test_connections_in_the_words_of_storage_libraries(values, scheme, options):
    found = access_of(Connection(conn_id="c", **{**values, "extra": json.dumps(values.get("extra", {}))}))
    assert found.opens[scheme] == options
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"conn_type": "http"}, "type 'http', not of an object store"),
        ({"conn_type": "aws", "extra": '{"role_arn": "r"}'}, "sets role_arn.*Install apache-airflow-providers-amazon"),
        (
            {"conn_type": "aws", "extra": '{"role_arn": "r", "regoin_name": "eu"}'},
            "sets regoin_name, which is not read here. Remove it; these are read: .* region_name",
        ),
        ({"conn_type": "google_cloud_platform", "extra": '{"key_secret_name": "k"}'}, "sets key_secret_name"),
    ],
)
def test_what_a_connection_cannot_do_is_said(values, message, monkeypatch):
    """A key that nobody knows is said with the provider too, whose hook drops it."""
    if "not read here" in message:
        monkeypatch.setattr(storage_connections, "_aws_keys", lambda *_: {})
    with pytest.raises(ConfigError, match=message):
        access_of(Connection(conn_id="c", **values))


@pytest.mark.parametrize(
    "text",
    [
        f"DefaultEndpointsProtocol=https;AccountName=ours;AccountKey={SECRET}==;EndpointSuffix=core.windows.net",
        f"BlobEndpoint=https://ours.blob.core.windows.net/;SharedAccessSignature=sv=2024&sig={SECRET}",
    ],
)
def test_a_url_of_another_account_than_that_of_the_connection_string_is_refused(text, monkeypatch):
    """adlfs would open the account of the string, whichever the URL names."""

    class OfAzure(MemoryFileSystem):
        @staticmethod
        def _get_kwargs_from_urls(path):
            return {"account_name": path.partition("@")[2].partition(".")[0]}

    monkeypatch.setitem(_registry, "abfss", OfAzure)
    set_connection(monkeypatch, "store", conn_type="wasb", extra={"connection_string": text})
    with connected(storage_conn_id="store"):
        assert list_names("abfss://tables@ours.dfs.core.windows.net/none") == []
        with pytest.raises(StorageError, match="is of account_name theirs, and the credentials are of ours") as refused:
            list_names("abfss://tables@theirs.dfs.core.windows.net/none")
    assert SECRET not in str(refused.value)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Yield a config whose tables and workspace lie on a server that only the connection `store` names."""
    with local_bucket() as bucket:
        given = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
        endpoint = given["AWS_ENDPOINT_URL"]
        write_graph(tmp_path)
        import s3fs

        s3fs.S3FileSystem().put([str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges")], f"{bucket}/")
        config = graph_config(tmp_path, train=TRAIN)
        values = config.model_dump(mode="json")
        values["graph"] |= {name: f"{bucket}/{name}.parquet" for name in ("nodes", "edges")}
        values["workspace"] = f"{bucket}/runs"
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(values))
        for name in given:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        set_connection(
            monkeypatch,
            "store",
            conn_type="aws",
            login="id",
            password=SECRET,
            extra={"endpoint_url": endpoint, "region_name": "us-east-1"},
        )
        yield SimpleNamespace(file=str(file), workspace=values["workspace"], bucket=bucket)


def texts_of(folder):
    """Return the content of all files below a URL."""
    import fsspec

    fs, path = fsspec.core.url_to_fs(folder, **access.options_of(folder))
    return [fs.cat_file(each) for each in fs.find(path)]


@pytest.mark.s3
def test_the_example_of_the_docs_ingests(stored, monkeypatch, airflow_db):
    page = (REPOSITORY / "docs" / "airflow.md").read_text()
    example = next(each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "storage_conn_id" in each)
    monkeypatch.setenv("AIRFLOW_CONN_BANK_S3", os.environ["AIRFLOW_CONN_STORE"])
    held = {}
    exec(example.replace("s3://bank/configs/fraud.yaml", stored.file), held)
    run = sync(held["dag"]).test()
    assert run.state == "success"


def test_the_connection_of_the_docs_is_read(monkeypatch):
    page = (REPOSITORY / "docs" / "airflow.md").read_text()
    text = re.search(r"AIRFLOW_CONN_DASK_GPUS='(.*?)'", page, re.DOTALL)[1]
    monkeypatch.setenv("AIRFLOW_CONN_DASK_GPUS", text)
    found = DaskHook("dask_gpus").get_conn()
    assert (found.address, found.asked) == ("tcp://scheduler.example.com:8786", {"resource": "gpu", "workers": 4})
    assert (found.workspace, found.storage_conn_id) == ("s3://bank/runs", "bank_s3")


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["local", "distributed:LocalCluster"])
def test_a_stage_reaches_tables_and_workspace_with_the_connection_here_and_in_its_workers(stored, monkeypatch, kind):
    """Workers that a class starts inherit nothing: they are handed what the config names."""
    options = {"n_workers": 0, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    file, own = Path(stored.file), {"options": options} if ":" in kind else {}
    values = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**values, "cluster": {"kind": kind, "workers": 1, **own}}))
    monkeypatch.setenv("GNNFLOW_MODULES", "distributed")
    task = IngestOperator(task_id="ingest", config=stored.file, storage_conn_id="store")
    outcome = task.execute({"ti": Quiet(), "outlet_events": {}})
    assert outcome["artifact"].startswith(stored.workspace)
    assert access.VARIABLE not in os.environ
    assert access.options_of(stored.workspace) == {}
    with connected(storage_conn_id="store"):
        kept = texts_of(stored.workspace)
    assert kept
    assert SECRET not in json.dumps(outcome)
    assert not [each for each in kept if SECRET.encode() in each]


@pytest.mark.s3
def test_lineage_of_the_first_task_reads_its_tables_with_the_connection(stored):
    """Airflow asks for lineage after the task's own work, when nothing opens the storage any more."""
    pytest.importorskip("airflow.providers.openlineage")
    prepare = PrepareOperator(task_id="prepare", config=stored.file, storage_conn_id="store")
    prepare.execute({"ti": Quiet()})
    told = prepare.get_openlineage_facets_on_complete(None)
    assert [each.name for each in told.inputs] == ["nodes.parquet", "edges.parquet"]
    assert told.inputs[1].inputFacets["dataQualityMetrics"].rowCount == 400


@pytest.mark.s3
def test_workers_of_a_shared_cluster_have_the_credentials_for_the_stage_and_no_longer(stored, tmp_path, monkeypatch):
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("bare", modules=None)
        cluster.start_worker("good")
        cluster.start_worker("other")
        with Client(cluster.address, timeout=60) as client:
            client.wait_for_workers(3, timeout=60)
            good = [
                address
                for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()
                if worker["name"] != "bare"
            ]
            task = IngestOperator(
                task_id="ingest",
                config=stored.file,
                storage_conn_id="store",
                cluster_address=cluster.address,
                deferrable=False,
                poll_seconds=1,
            )
            outcome = task.execute({"ti": Quiet(), "outlet_events": {}})
            assert outcome["artifact"].startswith(stored.workspace)
            extra = {"workspace": stored.workspace, "storage_conn_id": "store", "workers": 2}
            set_connection(
                monkeypatch, "dask", conn_type="dask", host="127.0.0.1", port=cluster.port, extra=json.dumps(extra)
            )
            assert DaskHook("dask").test_connection()[0]
            held = client.run(access.options_of, stored.workspace, workers=good)
            assert list(held.values()) == [{}, {}]
        said = "".join(cluster.log(name) for name in ("scheduler", "bare", "good", "other"))
    assert "Run out-of-band function 'admit'" in said  # so these are the logs of who was handed the credentials
    assert SECRET not in said
    with connected(storage_conn_id="store"):
        assert not [each for each in texts_of(stored.workspace) if SECRET.encode() in each]


def test_the_button_changes_nothing_for_other_requests_of_the_server(tmp_path, monkeypatch):
    """Airflow tests connections in a thread of the process that also serves the pages of workspaces."""
    seen = []

    def look():
        named = [name for name in ("GNNFLOW_WORKSPACE", access.VARIABLE) if name in os.environ]
        seen.append((dict(access.options_of("s3://bank/x")), named))

    async def asked(*_, **__):
        elsewhere = threading.Thread(target=look)
        elsewhere.start()
        elsewhere.join()
        return access.options_of("s3://bank/x")["secret"] == SECRET, "It answers."

    monkeypatch.delenv("GNNFLOW_WORKSPACE", raising=False)
    monkeypatch.setattr(hook, "_look", asked)
    set_connection(monkeypatch, "store", conn_type="aws", login="me", password=SECRET)
    extra = {"workspace": str(tmp_path / "runs"), "storage_conn_id": "store"}
    set_connection(monkeypatch, "it", conn_type="dask", host="there", extra=extra)
    assert DaskHook("it").test_connection()[0]
    assert seen == [({}, [])]


def test_a_storage_connection_of_another_kind_fails_without_a_retry(monkeypatch):
    set_connection(monkeypatch, "store", conn_type="http")
    with pytest.raises(AirflowFailException, match="not of an object store"), connected(storage_conn_id="store"):
        pass


def test_neither_form_nor_overrides_start_a_cluster_by_its_class(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNFLOW_MODULES", "distributed")
    write_graph(tmp_path)
    values = graph_config(tmp_path).model_dump(mode="json")
    own = {"kind": "distributed:LocalCluster", "options": {"n_workers": 0}}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**values, "cluster": own}))
    assert read_config(str(file), overrides=["cluster.workers=3"]).cluster.workers == 3
    with pytest.raises(ConfigError, match="read in config files only"):
        read_config(str(file), overrides=["cluster.options.n_workers=1"])
    prepare = PrepareOperator(task_id="prepare", configs=str(tmp_path))
    for params in ({"cluster.kind": own["kind"]}, {"settings": yaml.safe_dump({"cluster": own})}):
        with pytest.raises(AirflowFailException, match="read in config files only"):
            prepare.execute({"ti": Quiet(), "params": params})
    uri = prepare.execute({"ti": Quiet(), "params": {"config": "config.yaml", "cluster.workers": 4}})
    assert read_config(join(uri)).cluster.kind == own["kind"]
    for typed in ({**values, "cluster": own}, yaml.safe_dump({**values, "cluster": own})):
        with pytest.raises(ConfigError, match="read in config files only"):
            read_config(typed)
    prepared = Path(uri)
    prepared.write_text(prepared.read_text().replace('"n_workers": 0', '"n_workers": 9'))
    with pytest.raises(ConfigError, match="was changed since a task prepared it"):
        read_config(uri)
