"""A folder of models' files: one retraining DAG each, dates in configs, params of one run, and a person's approval."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow import registry
from tests.airflow.running import TRAIN, Quiet, sync
from tests.conftest import REPOSITORY
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

DAYS = [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 6)]


@pytest.fixture
def folder(tmp_path, monkeypatch, airflow_db):
    """Return the folder that DAGs are made of."""
    monkeypatch.setenv("GNNFLOW_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def write_model(folder, *, file="fraud.yaml", graph=None, train=None, **keys):
    """Write a model whose config stands in its file, and return the workspace and the model's name."""
    home = folder.parent
    model = {"kind": "sage", "hidden": 16, "dropout": 0.0}
    config = graph_config(home, graph=graph or {}, train={**TRAIN, **(train or {})}, model=model)
    # An asset's name means one place, and these tests share a database.
    name = f"{home.name.replace('_', '-')[:40]}-{file.partition('.')[0]}"
    values = {**config.model_dump(mode="json", exclude_unset=True), "name": name}
    (folder / file).write_text(yaml.safe_dump({"config": values, **keys}))
    return str(home / "runs"), name


def read_folder():
    """Return the bag of the DAG file."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(REPOSITORY / "dags" / "gnnflow_models.py")
    assert bag.import_errors == {}
    return bag


def told_errors(bag):
    """Return the ids that Airflow stores and the import errors that it shows."""
    from airflow.dag_processing.processor import _serialize_dags

    dags, errors = _serialize_dags(bag, logging.getLogger("test"))
    return sorted(dag.dag_id for dag in dags), errors


def run(dag_id="gnnflow_models.fraud", **options):
    """Run a model's DAG once and return the states of its tasks."""
    done = sync(read_folder().dags[dag_id]).test(**options)
    return {ti.task_id: ti.state for ti in done.get_task_instances()}


def backfill_of(dag):
    """Return the runs that Airflow would begin for the backfill that the documentation shows."""
    from airflow.models.backfill import ReprocessBehavior, _do_dry_run
    from airflow.utils.session import create_session

    page = (REPOSITORY / "docs" / "airflow.md").read_text()
    begin, end = re.search(r"--from-date (\S+) --to-date (\S+)", page).groups()
    with create_session() as session:
        found = _do_dry_run(
            dag_id=dag.dag_id,
            from_date=datetime.fromisoformat(begin).replace(tzinfo=UTC),
            to_date=datetime.fromisoformat(end).replace(tzinfo=UTC),
            reverse=False,
            reprocess_behavior=ReprocessBehavior.NONE,
            session=session,
        )
        return list(found)


def relabel(folder):
    """Let a column tell the labels, so that what is trained is better than what is not by more than chance."""
    nodes = pq.read_table(folder / "nodes.parquet")
    label = pa.array(nodes["label"].to_numpy() % 2)
    pq.write_table(nodes.set_column(nodes.column_names.index("label"), "label", label), folder / "nodes.parquet")


def test_twelve_models_are_twelve_dags_and_an_unreadable_file_breaks_only_its_own(folder):
    write_graph(folder.parent)
    for number in range(11):
        write_model(
            folder, file=f"m{number}.yaml", schedule="0 3 * * 0", owner="risk", pool="gpu", alerts=["a@b.example"]
        )
    wrong = {
        "typo.yaml": "config: m.yaml\nschedul: daily\n",
        "cron.yaml": yaml.safe_dump({**yaml.safe_load((folder / "m0.yaml").read_text()), "schedule": "every day"}),
        "gone.yaml": "config: nowhere.yaml\n",
        "text.yaml": "config: [\n",
        "twin.yaml": (folder / "m1.yaml").read_text(),
        "m0.yml": (folder / "m1.yaml").read_text(),
        "param.yaml": f"config: {folder.parent / 'm.yaml'}\nparams: {{train.epoch: 3}}\n",
        "asked.yaml": "config: m.yaml\napproval: {user: ada}\n",
        "guard.yaml": yaml.safe_dump({**yaml.safe_load((folder / "m0.yaml").read_text()), "guards": {"row": 1}}),
    }
    (folder.parent / "m.yaml").write_text(yaml.safe_dump(yaml.safe_load((folder / "m0.yaml").read_text())["config"]))
    for file, text in wrong.items():
        (folder / file).write_text(text)
    begin = time.process_time()
    bag = read_folder()
    seconds = time.process_time() - begin
    ids, errors = told_errors(bag)
    assert ids == sorted(f"gnnflow_models.m{number}" for number in range(11))
    assert sorted(errors) == sorted(f"models/{file}" for file in wrong)
    said = {
        "typo": "schedule",
        "cron": "not a cron expression",
        "gone": "no such file",
        "twin": "already retrains the model",
        "guard": "guards.row",
        "param": "param.yaml, with the config",
        "asked": "approval.user: unknown key. Did you mean 'users'? Keys here: users, hours.",
    }
    assert {file: text in errors[f"models/{file}.yaml"] for file, text in said.items()} == dict.fromkeys(said, True)
    task = bag.dags["gnnflow_models.m3"].get_task("train")
    assert (task.owner, task.pool) == ("risk", "gpu")
    # Airflow may lose any task before it starts, and nobody watches a run by night
    assert {task.retries for task in bag.dags["gnnflow_models.m3"].tasks} == {2}
    assert seconds < 5


def test_the_documented_file_has_keys_that_are_read():
    from gnnflow_airflow.model_file import ModelFile

    page = (REPOSITORY / "docs" / "airflow.md").read_text().partition("### Many models")[2]
    written = yaml.safe_load(page.partition("```yaml")[2].partition("```")[0])
    assert set(ModelFile.model_validate(written).model_dump()) - {"partitions"} == set(written)


def test_the_process_of_a_task_reads_one_model(folder, monkeypatch):
    write_model(folder, file="ours.yaml")
    (folder / "theirs.yaml").write_text("config: [")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "gnnflow_models.ours")
    assert set(read_folder().dags) == {"gnnflow_models.ours"}


def test_a_table_whose_storage_does_not_answer_is_asked_for_by_the_next_attempt(folder, monkeypatch):
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    gone = {"nodes": "s3://bank/nodes.parquet", "edges": "s3://bank/edges.parquet"}
    write_model(folder, graph=gone)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    prepare = read_folder().dags["gnnflow_models.fraud"].get_task("prepare")
    with pytest.raises(AirflowException, match="storage failed") as failed:
        prepare.execute({"params": {}, "run_id": "r", "logical_date": DAYS[0], "ti": Quiet()})
    assert not isinstance(failed.value, AirflowFailException)


def test_a_backfill_reads_the_tables_of_each_date(folder):
    for day in DAYS:
        write_graph(folder.parent / f"{day:%Y-%m-%d}", seed=day.day)
    tables = {key: str(folder.parent / "{{ ds }}" / f"{key}.parquet") for key in ("nodes", "edges")}
    workspace, name = write_model(folder, file="daily.yaml", graph=tables, guards={"psi": None}, schedule="0 3 * * *")
    dag = sync(read_folder().dags["gnnflow_models.daily"])
    assert [f"{info.logical_date:%d}" for info in backfill_of(dag)] == ["01", "02", "03", "04", "05"]
    assert "{{ ds }}" in dag.get_task("prepare").model.config.graph.nodes
    for day in DAYS:
        assert dag.test(logical_date=day).state == "success"
    versions = registry.published_versions(workspace, name)
    read = [json.loads(registry.read_version(workspace, name, version).read("config.json")) for version in versions]
    assert [config["graph"]["nodes"] for config in read] == [
        str(folder.parent / f"{day:%Y-%m-%d}" / "nodes.parquet") for day in DAYS
    ]
    assert [config["publish"]["date"] for config in read] == [day.isoformat() for day in DAYS]
    # a run of today reads another date where a person says so
    assert set(run("gnnflow_models.daily", run_conf={"date": "2026-03-02"}).values()) == {"success"}
    assert registry.published_versions(workspace, name) == versions


def test_a_backfill_that_ends_with_the_last_slot_begins_no_run_beside_it(folder):
    """Airflow counts from a backfill's last run as from one by the clock; nothing else finds that it does otherwise."""
    from airflow.models import DagModel
    from airflow.models.backfill import ReprocessBehavior, _create_backfill
    from airflow.utils.session import create_session

    write_graph(folder.parent)
    now, due = datetime.now(UTC), {}
    for end, days in (("early", 3), ("now", 0)):
        write_model(folder, file=f"{end}.yaml", schedule=f"0 {(now.hour + 12) % 24} * * *")  # no slot begins meanwhile
        dag_id = f"gnnflow_models.{end}"
        dag = sync(read_folder().dags[dag_id])
        _create_backfill(
            dag_id=dag_id,
            from_date=now - timedelta(days=5),
            to_date=now - timedelta(days=days),
            max_active_runs=1,
            reverse=False,
            dag_run_conf=None,
            triggering_user_name=None,
            reprocess_behavior=ReprocessBehavior.NONE,
        )
        sync(dag)  # as at the next parse
        with create_session() as session:
            due[end] = session.get(DagModel, dag_id).next_dagrun_create_after
    assert due["early"] < now < due["now"]


@pytest.fixture
def mails(monkeypatch):
    """Return the mails that were sent, in place of a mail server."""
    from airflow.providers.smtp.hooks.smtp import SmtpHook

    sent = []
    server = SimpleNamespace(from_email="gnnflow@bank.example", send_email_smtp=lambda **mail: sent.append(mail))
    monkeypatch.setattr(SmtpHook, "__enter__", lambda _: server)
    monkeypatch.setattr(SmtpHook, "__exit__", lambda *_: None)
    return sent


def test_guards_are_raised_for_one_run_and_force_trains_again(folder, mails):
    home = folder.parent
    write_graph(home, num_nodes=60)
    workspace, name = write_model(folder, guards={"psi": None, "label_rate": None}, alerts=["risk@bank.example"])
    assert run()["score"] == "success"
    assert mails == []
    write_graph(home, num_nodes=300)
    assert run()["guards"] == "failed"
    (mail,) = mails
    assert (mail["to"], mail["subject"]) == (["risk@bank.example"], "gnnflow_models.fraud: guards failed")
    assert "300 nodes, 60 before" in mail["html_content"]
    assert run(run_conf={"guards.rows": "high"})["prepare"] == "failed"
    assert run(run_conf={"guards.rows": "9"})["score"] == "success"
    assert registry.published_versions(workspace, name) == (1, 2)
    # these tables are the ones of version 2, whose run would be reused
    assert run(run_conf={"guards.rows": "null", "force": True})["score"] == "success"
    assert registry.published_versions(workspace, name) == (1, 2, 3)


@pytest.fixture
def answers(monkeypatch):
    """Return a function that answers requests with these options, in order; and the requests, once made."""
    asked = []

    def answer(*options):
        from airflow.models.hitl import HITLDetail
        from airflow.models.trigger import handle_event_submit
        from airflow.triggers.base import TriggerEvent
        from airflow.utils.session import create_session
        from sqlalchemy import select

        left = list(options)
        sleep = time.sleep

        def respond(seconds):  # `dag.test()` sleeps while a task waits for a person
            with create_session() as session:
                for detail in session.scalars(select(HITLDetail).where(HITLDetail.responded_at.is_(None))):
                    if detail.task_instance.state != "awaiting_input":
                        continue
                    asked.append((detail.subject, detail.body))
                    detail.chosen_options = [left.pop(0)]
                    detail.responded_at = datetime.now(UTC)
                    detail.responded_by = {"id": "7", "name": "Ada"}
                    detail.params_input = {"why": "too slow"}
                    event = TriggerEvent(detail.as_resume_event_payload())
                    handle_event_submit(event, task_instance=detail.task_instance, session=session)
                    return
            sleep(seconds)

        monkeypatch.setattr(time, "sleep", respond)

    return answer, asked


def test_a_better_model_goes_into_service_once_a_person_approves(folder, answers, mails, monkeypatch):
    """Finds an answer that does not reach the registry, and a rejected version that the next run asks for again."""
    answer, asked = answers
    write_graph(folder.parent, num_nodes=240, num_edges=500)
    relabel(folder.parent)
    workspace, name = write_model(folder, train={"epochs": 1, "lr": 1e-6}, approval=True, alerts=["risk@bank.example"])
    answer("Approve", "Reject", "Approve")
    assert set(run().values()) == {"success"}
    assert registry.read_aliases(workspace, name).champion == 1
    assert asked[-1][0] == f"Promote {name} version 1?"
    assert "[report]" not in asked[-1][1]
    assert [mail["subject"] for mail in mails] == ["gnnflow_models.fraud: approve waits for an answer"]
    monkeypatch.setenv("GNNFLOW_LINKS", f"{workspace}=https://pages.example")
    write_model(folder, train={"epochs": 40, "lr": 0.02}, approval=True)
    rejected = run()
    assert (rejected["approve"], rejected["promote"], rejected["score"]) == ("success", "skipped", "success")
    aliases = registry.read_aliases(workspace, name)
    assert (aliases.champion, aliases.candidate, aliases.rejected) == (1, None, (2,))
    assert aliases.rejection(2)["reason"] == "rejected in Airflow by Ada: too slow"
    again = run()
    assert (again["publish"], again["approve"], again["promote"]) == ("success", "skipped", "skipped")
    assert len(asked) == 2
    write_model(folder, train={"epochs": 41, "lr": 0.02}, approval=True)
    assert set(run().values()) == {"success"}
    aliases = registry.read_aliases(workspace, name)
    assert aliases.champion == 3
    assert aliases.history[-1]["reason"].startswith("approved by Ada: waits for approval, would be promoted: test.")
    subject, body = asked[-1]
    assert subject == f"Promote {name} version 3?"
    assert "| | version 3 (new) | version 1 (in service) |" in body
    assert re.search(r"^Run: `.+`, \[report\]\(https://pages.example/runs/.+/report.html\)$", body, re.MULTILINE)
    assert re.search(
        r"^\| test\.\w+ \| [\d.]+ \([\d.]+ to [\d.]+\) \| [\d.]+ \([\d.]+ to [\d.]+\) \|$", body, re.MULTILINE
    )
    assert "_low" not in body
    write_model(folder, train={"epochs": 1, "lr": 1e-7}, approval=True)
    worse = run()
    assert (worse["approve"], worse["promote"], worse["score"]) == ("skipped", "skipped", "success")
    assert len(asked) == 3


def test_a_partition_names_the_tables_of_its_run(folder):
    from airflow.sdk import PartitionedAssetTimetable

    graph = {key: f"/tables/{{{{ partition_key }}}}/{key}.parquet" for key in ("nodes", "edges")}
    write_model(folder, graph=graph, partitions=True)
    dag = read_folder().dags["gnnflow_models.fraud"]
    assert isinstance(dag.timetable, PartitionedAssetTimetable)
    assert told_errors(read_folder()) == (["gnnflow_models.fraud"], {})
    prepare = dag.get_task("prepare")
    context = {"params": {}, "run_id": "r", "partition_key": "2026-03-01|eu", "partition_date": DAYS[0]}
    assert prepare._read(context).graph.nodes == "/tables/2026-03-01|eu/nodes.parquet"


class TestDates:
    """Texts know dates and nothing that a config's author may not read."""

    @pytest.fixture
    def filled(self):
        from gnnflow_airflow.data_date import DataDate, fill_in

        return lambda text: fill_in({"key": [text]}, DataDate(DAYS[1], "test"))["key"][0]

    def test_dates_are_filled_in_with_airflows_words(self, filled):
        assert filled("a/{{ ds }}/{{ ds_nodash }}") == "a/2026-03-02/20260302"
        assert filled("{{ macros.ds_add(ds, -7) }} {{ logical_date.strftime('%Y/%m') }}") == "2026-02-23 2026/03"
        assert filled("${HOME} { ds }") == "${HOME} { ds }"

    @pytest.mark.parametrize(
        "text",
        ["{{ var.value.secret }}", "{{ conn.db }}", "{{ ''.__class__.__mro__ }}", "{{ ds", "{{ partition_key }}"],
    )
    def test_other_names_are_refused_by_the_key_that_holds_them(self, filled, text):
        from gnnflow.graph.errors import ConfigError

        with pytest.raises(ConfigError, match=r"key\[0\].*ds, ds_nodash"):
            filled(text)

    def test_the_partition_is_told_of_where_a_run_has_none(self, filled):
        from gnnflow.graph.errors import ConfigError

        with pytest.raises(ConfigError, match="and partition_key in the run of a partition"):
            filled("{{ partition_key }}")

    @pytest.mark.parametrize("key", ["../x", "${SECRET}", "a/b", "", "a\nb"])
    def test_a_partition_that_would_leave_its_folder_is_refused(self, key):
        from gnnflow.graph.errors import ConfigError
        from gnnflow_airflow.data_date import data_date

        with pytest.raises(ConfigError, match="partition_key"):
            data_date({"params": {}, "partition_key": key})

    def test_the_date_is_the_params_else_the_runs(self):
        from gnnflow.graph.errors import ConfigError
        from gnnflow_airflow.data_date import data_date

        run = {"params": {}, "dag_run": SimpleNamespace(run_after=DAYS[4])}
        assert data_date(run).names["ds"] == "2026-03-05"
        run |= {"partition_date": DAYS[3]}
        assert data_date(run).names["ds"] == "2026-03-04"
        run |= {"logical_date": DAYS[2]}
        assert data_date(run).names["ds"] == "2026-03-03"
        assert data_date({**run, "params": {"date": "2026-02-01"}}).names["ts"] == "2026-02-01T00:00:00+00:00"
        with pytest.raises(ConfigError, match="'yesterday' is not a date"):
            data_date({**run, "params": {"date": "yesterday"}})


@pytest.mark.parametrize(
    ("failed", "times"), [(ConnectionError("no route"), 1), (PermissionError("not yours"), 3), (None, 1)]
)
def test_storage_that_does_not_answer_is_asked_once_in_a_parse(tmp_path, monkeypatch, failed, times):
    from gnnflow.storage.refusals import locating
    from gnnflow_airflow import local_copies

    monkeypatch.setenv("GNNFLOW_MODELS_COPIES", str(tmp_path))
    monkeypatch.setattr(local_copies, "_silent", {})
    monkeypatch.setattr(local_copies, "_ANSWER_SECONDS", 0.5)
    asked, forever = [], threading.Event()

    def read(uri):
        asked.append(uri)
        with locating(uri):
            if len(asked) > 3 and failed:
                raise failed
        if len(asked) > 3:
            forever.wait()
        return "kept"

    monkeypatch.setattr(local_copies, "read_text", read)
    files = [f"s3://bank/models/{name}.yaml" for name in "abc"]
    for _ in range(2):
        assert [local_copies.text_near(file) for file in files] == ["kept"] * 3
        monkeypatch.setenv("GNNFLOW_MODELS_SECONDS", "0")
    forever.set()
    assert len(asked) == 3 + times


def test_object_storage_is_asked_once_and_its_copies_outlive_a_failure(tmp_path, monkeypatch):
    import fsspec

    from gnnflow.graph.errors import StorageError
    from gnnflow_airflow import local_copies

    storage = fsspec.filesystem("memory")
    storage.pipe("/models-here/a.yaml", b"first")
    monkeypatch.setenv("GNNFLOW_MODELS_COPIES", str(tmp_path / "copies"))
    asked = []
    for name in ("read_text", "list_yaml_files"):
        read = getattr(local_copies, name)
        monkeypatch.setattr(local_copies, name, lambda uri, read=read: (asked.append(uri), read(uri))[1])

    def parse():
        (uri,) = local_copies.names_near("memory://models-here")
        with contextlib.suppress(StorageError):
            local_copies.text_near("memory://models-here/gone.yaml")
        return local_copies.text_near(uri)

    try:
        assert parse() == parse() == "first"
        assert len(asked) == 3
        storage.pipe("/models-here/a.yaml", b"second")
        monkeypatch.setenv("GNNFLOW_MODELS_SECONDS", "0")
        assert parse() == "second"
        with monkeypatch.context() as earlier:  # the clock was ahead and was set back
            earlier.setattr(time, "time", lambda: 0.0)
            earlier.setenv("GNNFLOW_MODELS_SECONDS", "300")
            storage.pipe("/models-here/a.yaml", b"third")
            assert parse() == "third"

        def unreachable(uri):
            raise StorageError("cannot be reached", where=uri)

        monkeypatch.setattr(local_copies, "read_text", unreachable)
        assert parse() == "third"
        with pytest.raises(StorageError, match="cannot be reached"):
            local_copies.text_near("memory://models-here/new.yaml")
    finally:
        storage.rm("/models-here", recursive=True)
