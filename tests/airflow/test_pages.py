"""The pages of workspaces: who sees them, what they never serve, and what they do to the registry."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow import registry
from gnnflow.storage.documents import read_document, write_document
from tests.airflow.pages import HOSTILE, Answer, Links, crawl, hostile_config

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

SECRET = "not-for-this-page"
RECORDS = "runs/runs/small/*/run.json"


@pytest.fixture(scope="module")
def folder(hostile):
    """The hostile workspace, with a secret next to it."""
    (hostile / "secret").mkdir()
    (hostile / "runs" / "inner").mkdir(parents=True)  # in the workspace, and no run
    for above in (hostile, hostile / "secret", hostile / "runs" / "inner"):
        (above / "report.html").write_text(SECRET)
    return hostile


@pytest.fixture(scope="module")
def pages(airflow_db):
    """Airflow's application and ours below it, as the API server mounts it."""
    from airflow.api_fastapi.app import init_auth_manager
    from fastapi import FastAPI

    from gnnflow_airflow.plugin import GnnflowPlugin

    server = FastAPI()
    init_auth_manager(server)
    (made,) = GnnflowPlugin().fastapi_apps
    server.mount(made["url_prefix"], made["app"])
    return server, made["app"]


@pytest.fixture
def sign_in(pages, folder, monkeypatch):
    """A function that returns the client of a user with a role; None is nobody."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    server, app = pages
    monkeypatch.setenv("GNNFLOW_WORKSPACES", f"fraud={folder}/runs")

    def client(role, name="ann"):
        app.dependency_overrides = {}
        if role is not None:
            app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username=name, role=role)
        return TestClient(server, follow_redirects=False)

    yield client
    app.dependency_overrides = {}


def paths_of(folder: Path) -> dict[str, str]:
    """Return an address of each kind of page, and of the download and the sealed files."""
    below = folder / "runs"
    # runs that somebody wrote by hand have short names
    run = max(each.parent for each in below.glob("runs/small/?????????*/run.json")).relative_to(below)
    comparison = next(below.glob("comparisons/*/*/comparison.html")).relative_to(below)
    training = next(below.glob("artifacts/train/*")).relative_to(below)
    return {
        "places": "",
        "place": "fraud/",
        "report": f"fraud/{run}/report.html",
        "sealed report": f"fraud/sealed/{run}/report.html",
        "predictions": f"fraud/{run}/predictions",
        "download": f"fraud/{run}/predictions.parquet",
        "comparison": f"fraud/{comparison}",
        "sealed comparison": f"fraud/sealed/{comparison}",
        "training": f"fraud/{training}",
        "registry": "fraud/registry",
        "version": "fraud/registry/small/1",
        "scoring": "fraud/registry/small/scores/00000001.html",
        "sealed scoring": "fraud/sealed/registry/small/scores/00000001.html",
    }


@contextlib.contextmanager
def forged_run(folder: Path, name: str, **changed: object):
    """Keep a run whose record somebody wrote by hand: a run's with other values, None for a key left out."""
    small = folder / "runs" / "runs" / "small"
    real = small / paths_of(folder)["predictions"].split("/")[-2]
    record = read_document(str(real / "run.json"), fix="")
    held = {key: each for key, each in {**record, "run": name, **changed}.items() if each is not None}
    (small / name).mkdir()
    write_document(str(small / name / "run.json"), held)
    shutil.copy(real / "metrics.json", small / name)
    try:
        yield small / name
    finally:
        shutil.rmtree(small / name)


def get(client, path):
    return client.get(f"/gnnflow/{path}")


def token_of(page) -> str:
    return re.search(r'name="token" value="([^"]+)"', page.text)[1]


def seen_of(page) -> str:
    return re.search(r'name="seen" value="([^"]+)"', page.text)[1]


def test_every_page_opens_for_a_viewer_and_no_link_of_any_is_dead(sign_in, folder):
    client = sign_in("VIEWER")

    def answer(path):
        found = client.get(path)
        assert found.headers.get("X-Content-Type-Options", "nosniff") == "nosniff"
        return Answer(
            found.status_code, found.headers.get("Content-Type", ""), found.text, found.headers.get("Location", "")
        )

    found = crawl(answer, ["/gnnflow/"])
    assert found.dead == ()
    assert {f"/gnnflow/{path}" for path in paths_of(folder).values()} <= found.seen


def test_nobody_is_led_to_the_login_and_who_has_no_role_is_refused(sign_in, folder):
    for path in paths_of(folder).values():
        nobody = get(sign_in(None), path)
        assert (nobody.status_code, "/auth/login" in nobody.headers["Location"]) == (302, True)
        assert "next=" in nobody.headers["Location"]
        if path:
            assert get(sign_in(""), path).status_code == 403
    assert "fraud" not in get(sign_in(""), "").text
    assert sign_in(None).post("/gnnflow/fraud/registry/small/rollback").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "other/",
        "fraud/runs/small/../report.html",
        "fraud/runs/../secret/report.html",
        "fraud/runs/%2e%2e/%2e%2e/report.html",
        "fraud/sealed/runs/%2e%2e/%2e%2e/report.html",
        "fraud/sealed/runs/%2e%2e/inner/report.html",
        "fraud/sealed/runs/..%2f..%2fsecret/x/report.html",
        "fraud/sealed/runs/..%2f../secret/report.html",
        "fraud/sealed/runs/{folder}/secret/report.html",
        "fraud/sealed/runs/%2F{folder}%2Fsecret/x/report.html",
        "fraud/sealed/runs/small/file:%2f%2f{folder}%2fsecret/report.html",
        "fraud/sealed/runs/small/http:%2f%2fexample.com/report.html",
        "fraud/sealed/runs/small/*/report.html",
        "fraud/sealed/runs/small/./report.html",
        "fraud/sealed/runs/small/%00/report.html",
        "fraud/sealed/runs/linked/out/report.html",
        "fraud/sealed/runs/small/linked/report.html",
        "fraud/runs/small/linked/predictions.parquet",
        "fraud/runs/small/away/predictions",
        "fraud/runs/small/away/predictions.parquet",
        "fraud/artifacts/score/%2e%2e/predictions",
        "fraud/artifacts/ingest/x",
        "fraud/registry/small",
        "fraud/registry/small/3",
        "fraud/registry/%2e%2e/1",
        "fraud/registry/small/scores/00000009.html",
        "fraud/sealed/registry/small/scores/%2e%2e",
        "fraud/sealed/registry/small/scores/00000001.json",
    ],
)
def test_an_address_reaches_nothing_but_the_pages_of_a_workspace(sign_in, folder, path):
    small = folder / "runs" / "runs" / "small"
    for link, target in ((small.parent / "linked", folder), (small / "linked", folder / "secret")):
        if not link.is_symlink():
            link.symlink_to(target)
    (folder / "out").mkdir(exist_ok=True)
    name = "predictions/../../../../../secret/report.html"
    with forged_run(folder, "away", files=[{"name": name, "size": len(SECRET), "sha256": "0" * 64}]):
        answer = get(sign_in("ADMIN"), path.format(folder=folder))
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_a_record_that_names_places_elsewhere_has_nothing_read_there(sign_in, folder, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    asked = []
    for method in ("exists", "info", "ls", "_open", "cat_file"):
        monkeypatch.setattr(MemoryFileSystem, method, lambda *_, **__: asked.append("read") or {})
    places = dict.fromkeys(("ingest", "select", "flat", "train", "infer"), "memory://elsewhere/artifacts/stage/x")
    client = sign_in("VIEWER")
    with forged_run(folder, "unlisted", files=None, artifacts=places), forged_run(folder, "listed", artifacts=places):
        listed = get(client, "fraud/")
        opened = [get(client, f"fraud/runs/small/{name}/predictions").status_code for name in ("unlisted", "listed")]
    assert (listed.status_code, opened, asked) == (200, [404, 404], [])
    assert "outside the workspace" in listed.text


@contextlib.contextmanager
def another_model(folder: Path, name: str):
    """Keep a model of the registry that is a copy of `small`, with another name in its documents."""
    registered = folder / "runs" / "registry"
    shutil.copytree(registered / "small", registered / name)
    for file in (registered / name).glob("[0-9]*/version.json"):
        write_document(str(file), {**read_document(str(file), fix=""), "name": name})
    try:
        yield registered / name
    finally:
        shutil.rmtree(registered / name)


def test_a_link_within_a_model_has_nothing_read_or_moved_elsewhere(sign_in, folder):
    others, client = folder / "others", sign_in("USER", "eve")
    with another_model(folder, "mine") as mine:
        shutil.copytree(mine, others)
        (others / "scores" / "00000001.html").write_text(SECRET)
        state = {file: file.read_bytes() for file in others.rglob("*.json")}
        for linked in ("aliases", "2", "scores"):
            shutil.rmtree(mine / linked)
            (mine / linked).symlink_to(others / linked)
        page = get(client, "fraud/registry").text
        assert "registry/mine/1" in page
        assert "registry/mine/2" not in page
        form = {"token": token_of(get(client, "fraud/registry")), "seen": "0", "version": "1"}
        for action in ("promote", "rollback"):
            answer = client.post(f"/gnnflow/fraud/registry/mine/{action}", data=form)
            assert (answer.status_code, action) == (409, action)
        assert [get(client, f"fraud/registry/mine/{each}").status_code for each in ("2", "scores/00000001.html")] == [
            404,
            404,
        ]
        assert {file: file.read_bytes() for file in others.rglob("*.json")} == state


def test_a_pipe_in_a_workspace_stops_no_page(sign_in, folder):
    client, run = sign_in("VIEWER"), folder / "runs" / "runs" / "small" / "piped"
    run.mkdir()
    try:
        for name in ("run.json", "attempt.json"):
            os.mkfifo(run / name)
        with another_model(folder, "piped") as model:
            os.mkfifo(model / "aliases" / "00000099.json")
            (model / "2" / "version.json").unlink()
            os.mkfifo(model / "2" / "version.json")
            for path in ("fraud/", "fraud/registry", "fraud/registry/small/1"):
                assert get(client, path).status_code == 200
            assert get(client, "fraud/registry/piped/2").status_code in {404, 409}
    finally:
        shutil.rmtree(run)


def test_damage_to_one_model_is_said_and_the_others_can_be_moved(sign_in, folder):
    client = sign_in("USER", "eve")
    with another_model(folder, "lost") as lost, another_model(folder, "odd") as odd, another_model(folder, "no") as no:
        (lost / "aliases" / "newest.json").write_text("[" * 100_000)
        document = odd / "2" / "version.json"
        write_document(str(document), {**read_document(str(document), fix=""), "metrics": {"test.accuracy": "high"}})
        shutil.rmtree(no)
        (no / "aliases").mkdir(parents=True)
        (no / "aliases" / ".DS_Store").touch()
        page, version = (get(client, path).text for path in ("fraud/registry", "fraud/registry/odd/2"))
        form = {"token": token_of(get(client, "fraud/registry")), "seen": "1"}
        assert client.post("/gnnflow/fraud/registry/lost/rollback", data=form).status_code == 409
    assert "not valid JSON" in page
    assert "version 2 cannot be shown" in page
    assert "cannot be shown" in version
    assert "registry/small/promote" in page


def test_a_report_that_was_replaced_is_not_shown(sign_in, folder):
    client, paths = sign_in("VIEWER"), paths_of(folder)
    report = folder / "runs" / paths["report"].removeprefix("fraud/")
    content = report.read_bytes()
    try:
        report.write_bytes(content.replace(b"accuracy", b"accurate"))
        answer = get(client, paths["sealed report"])
    finally:
        report.write_bytes(content)
    assert (answer.status_code, "is damaged: its sha256" in answer.text) == (409, True)
    assert get(client, paths["sealed report"]).status_code == 200


def test_a_report_cannot_reach_the_cookies_of_airflow(sign_in, folder):
    client, paths = sign_in("ADMIN"), paths_of(folder)
    for name in ("sealed report", "sealed comparison", "sealed scoring"):
        policy = get(client, paths[name]).headers["Content-Security-Policy"]
        rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
        # an origin of its own; only the report's own script; nothing is loaded or sent
        assert rules["sandbox"] == ["allow-scripts", "allow-popups", "allow-popups-to-escape-sandbox"]
        assert rules["default-src"] == rules["form-action"] == ["'none'"]
        assert [len(rules["script-src"]), rules["script-src"][0][:8]] == [1, "'sha256-"]
    for name in ("report", "comparison", "scoring"):
        page = get(client, paths[name])
        assert '<iframe sandbox="allow-scripts allow-popups' in page.text
        assert "allow-same-origin" not in page.text
        assert "script-src" not in page.headers["Content-Security-Policy"]


def test_texts_of_users_are_escaped_in_our_pages(sign_in, folder):
    registry.promote(f"{folder}/runs", "small", 2, reason=HOSTILE)
    registry.rollback(f"{folder}/runs", "small", reason=HOSTILE)
    client, paths = sign_in("ADMIN"), paths_of(folder)
    shown = {
        name: get(client, path).text for name, path in paths.items() if "sealed" not in name and name != "download"
    }
    assert "&lt;script&gt;window.ran" in shown["predictions"]
    assert "&lt;script&gt;window.ran" in shown["registry"]
    assert [name for name, text in shown.items() if "<script" in text.lower()] == []


def test_a_comparison_leads_to_the_reports_of_its_runs(sign_in, folder):
    page = get(sign_in("VIEWER"), paths_of(folder)["comparison"]).text
    runs = {f"/gnnflow/fraud/{each.parent.relative_to(folder / 'runs')}/report.html" for each in folder.glob(RECORDS)}
    assert runs <= Links(page).found
    assert page.count(f"{escape(HOSTILE)}0</a>") == 1


def test_a_comparison_whose_list_of_runs_is_damaged_says_so(sign_in, folder):
    page = folder / "runs" / paths_of(folder)["comparison"].removeprefix("fraud/")
    listed = (page.parent / "runs.csv").read_bytes()
    try:
        (page.parent / "runs.csv").write_bytes(listed + b"x" * 200_000)
        answer = get(sign_in("VIEWER"), paths_of(folder)["comparison"])
    finally:
        (page.parent / "runs.csv").write_bytes(listed)
    assert (answer.status_code, "cannot be read as CSV" in answer.text) == (409, True)


def test_a_version_shows_its_metrics_its_certificate_and_where_it_comes_from(sign_in, folder):
    client = sign_in("VIEWER")
    version = registry.read_version(f"{folder}/runs", "small", 2)
    page = get(client, "fraud/registry/small/2").text
    assert "Parity holds</strong>: 60 random targets were scored again" in page
    assert f"{version.metrics['test.accuracy']:.3f}" in page
    assert '<a href="/gnnflow/fraud/registry/small/1">small/1</a>' in page  # its weights at the start
    made = {
        *version.tables.values(),
        *(each[:12] for each in (*version.fingerprints.values(), *version.digests.values())),
    }
    assert {each for each in made if each not in page} == set()
    first = get(client, "fraud/registry/small/1").text
    assert f"/gnnflow/fraud/{Path(version.run).parent.relative_to(folder / 'runs')}" in page
    assert "/gnnflow/fraud/registry/small/scores/00000001.html" in first


def test_a_certificate_is_of_what_was_published_or_said_to_be_gone(sign_in, folder):
    client = sign_in("VIEWER")
    artifacts = [registry.read_version(f"{folder}/runs", "small", number).artifacts["infer"] for number in (1, 2)]
    own, other = map(Path, artifacts)
    own.rename(f"{own}-kept")
    try:
        gone = get(client, "fraud/registry/small/1").text
        shutil.copytree(other, own)
        exchanged = get(client, "fraud/registry/small/1").text
    finally:
        shutil.rmtree(own)
        Path(f"{own}-kept").rename(own)
    assert "its artifact of infer is not in this workspace any more" in gone
    assert "Parity is broken</strong>: the artifact of infer is another one than was published" in exchanged
    assert "Parity holds" in get(client, "fraud/registry/small/1").text


def test_a_link_in_a_frame_opens_the_page_that_has_the_frame(sign_in, folder):
    client, paths = sign_in("VIEWER"), paths_of(folder)
    for name in ("report", "comparison", "scoring"):
        found = client.get(f"/gnnflow/{paths[f'sealed {name}']}", headers={"Sec-Fetch-Dest": "document"})
        assert (found.status_code, found.headers["Location"]) == (303, f"/gnnflow/{paths[name]}")


def test_the_crawler_finds_links_that_are_dead():
    page = '<p id="here"><a href="#here">a</a><a href="#gone">b</a><a href="x">c</a><a href="s3://y/z">d</a>'
    held = {"/gnnflow/": Answer(200, "text/html", page), "/gnnflow/x": Answer(302, "", "", "/auth/login?next=x")}
    found = crawl(lambda path: held[path], ["/gnnflow/"])
    assert {each.partition(" on ")[0] for each in found.dead} == {"/gnnflow/#gone", "/gnnflow/x", "s3://y/z"}


def test_damaged_files_are_said_and_stop_no_other_page(sign_in, folder):
    with forged_run(folder, "odd", artifacts=5), forged_run(folder, "bad") as bad:
        shutil.copytree(
            bad.parent / paths_of(folder)["predictions"].split("/")[-2] / "predictions", bad / "predictions"
        )
        for file in (bad / "predictions").iterdir():
            file.write_bytes(b"PAR1")
        client = sign_in("VIEWER")
        listed = get(client, "fraud/").text
        odd, bad_rows = (get(client, f"fraud/runs/small/{name}/predictions") for name in ("odd", "bad"))
    assert (odd.status_code, bad_rows.status_code) == (409, 409)
    assert "is not a run&#39;s record" in listed
    assert "cannot be read as Parquet" in bad_rows.text


def test_the_download_is_the_predictions(sign_in, folder):
    paths = paths_of(folder)
    answer = get(sign_in("VIEWER"), paths["download"])
    assert answer.headers["Content-Disposition"] == 'attachment; filename="predictions.parquet"'
    written = folder / "runs" / paths["predictions"].removeprefix("fraud/")
    assert pq.read_table(io.BytesIO(answer.content)).equals(
        pq.read_table(written).select(pq.read_table(written).column_names)
    )


def write_large(file: Path) -> None:
    """Write a file of some kilobytes that decodes to 3 GiB: a dictionary of one long text, named by each row."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(300, np.int32), pa.array(["x" * (10 << 20)]))
    pq.write_table(pa.table({"id": texts}), file, compression="zstd", use_dictionary=True, store_schema=False)
    assert file.stat().st_size < 64 << 10


def test_a_small_file_of_large_rows_is_refused_by_pages_and_downloads(sign_in, folder):
    small = folder / "runs" / "runs" / "small"
    write_large(small / "large.parquet")
    content = (small / "large.parquet").read_bytes()
    listed = {"name": "predictions/0.parquet", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    with forged_run(folder, "large", files=[listed]) as large:
        (large / "predictions").mkdir()
        (small / "large.parquet").rename(large / "predictions" / "0.parquet")
        client = sign_in("VIEWER")
        answers = [get(client, f"fraud/runs/small/large/predictions{suffix}") for suffix in ("", ".parquet")]
    assert [answer.status_code for answer in answers] == [409, 409]
    assert all("takes more than 512 MiB of memory to decode" in answer.text for answer in answers)


# Prints the most memory, in bytes, of a process like the API server's and of those that it starts.
DECODES = """
import resource, sys
from gnnflow.graph.errors import StorageError
from gnnflow_airflow.pages.predictions import first_rows, stream_parquet
from gnnflow_airflow.places import Place
asked = Place("it", sys.argv[1]), sys.argv[1], ["large.parquet"]
for decode in (lambda: first_rows(*asked), lambda: list(stream_parquet(*asked))):
    try:
        decode()
    except StorageError as error:
        assert "of memory" in str(error), error
    else:
        raise AssertionError("it was decoded")
# not by getrusage of this process, which counts the memory of the one that started it
held = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(int(held.split()[1]) << 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system bounds a process's memory for data")
def test_the_server_keeps_its_memory_whatever_a_file_decodes_to(tmp_path):
    """Of processes, since the bound is the system's: no test in this process finds whether it holds."""
    write_large(tmp_path / "large.parquet")
    asked = [sys.executable, "-c", DECODES, str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    server, others = map(int, done.stdout.split())
    assert server < 256 << 20
    assert others < 768 << 20  # 512 MiB, and the program itself


def test_curves_are_followed_while_training_runs(sign_in, folder):
    client = sign_in("VIEWER")
    work = folder / "runs" / "work" / "train" / ("0" * 64)
    path = f"fraud/artifacts/train/{work.name}"
    assert "has not reported an epoch yet" in get(client, path).text
    work.mkdir(parents=True)
    rows = [{"fit": HOSTILE, "epoch": epoch, "train_loss": 1 / epoch, "$_{": 1, HOSTILE: 2} for epoch in (1, 2, 3)]
    lines = [*map(json.dumps, rows), "no json", "[]", '{"epoch": NaN}', '{"epoch": 1e999, "train_loss": Infinity}']
    (work / "history.jsonl").write_text("\n".join(lines))
    page = get(client, path).text
    assert "epoch 3" in page
    assert 'http-equiv="refresh"' in page
    assert "<script" not in page
    assert work.name[:12] in get(client, "fraud/").text
    done = get(client, paths_of(folder)["training"]).text
    assert "This training is complete" in done
    assert 'http-equiv="refresh"' not in done


def test_an_editor_promotes_and_rolls_back_and_the_history_has_the_name(sign_in, folder):
    from airflow.models import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    workspace, client = f"{folder}/runs", sign_in("USER", "eve")
    registry.promote(workspace, "small", 1)
    page = get(client, "fraud/registry")
    form = {"token": token_of(page), "seen": seen_of(page)}
    for _ in range(2):  # as of a button that is pressed twice
        answer = client.post("/gnnflow/fraud/registry/small/promote", data={**form, "version": "2"})
        assert (answer.status_code, answer.headers["Location"]) == (303, "/gnnflow/fraud/registry")
    assert registry.read_aliases(workspace, "small").champion == 2
    stale = client.post("/gnnflow/fraud/registry/small/rollback", data=form)
    assert (stale.status_code, registry.read_aliases(workspace, "small").champion) == (409, 2)
    newer = {**form, "seen": seen_of(get(client, "fraud/registry"))}
    assert client.post("/gnnflow/fraud/registry/small/rollback", data=newer).status_code == 303
    # neither form acts once more: the champion is again the one that the first was shown with
    assert client.post("/gnnflow/fraud/registry/small/rollback", data=newer).status_code == 409
    assert client.post("/gnnflow/fraud/registry/small/promote", data={**form, "version": "2"}).status_code == 409
    aliases = registry.read_aliases(workspace, "small")
    assert aliases.champion == 1
    assert [move["reason"].endswith("in Airflow by eve") for move in aliases.history[-2:]] == [True, True]
    with create_session() as session:
        logged = session.execute(select(Log.event, Log.owner).order_by(Log.id.desc()).limit(2)).all()
    assert [tuple(each) for each in logged] == [("gnnflow_promote", "eve"), ("gnnflow_rollback", "eve")]


def test_an_editor_whom_the_model_does_not_name_may_not_promote_it(sign_in, folder):
    workspace = f"{folder}/runs"
    registry.promote(workspace, "small", 1)
    registry.keep_approvers(workspace, "small", ["ada"])
    seen = len(registry.read_aliases(workspace, "small").history)
    try:
        for name, code in (("eve", 403), ("ada", 303)):
            client = sign_in("USER", name)
            form = {"token": token_of(get(client, "fraud/registry")), "seen": str(seen), "version": "1"}
            answer = client.post("/gnnflow/fraud/registry/small/promote", data=form)
            assert answer.status_code == code
            if code == 403:
                assert "You are eve, and only ada may promote small" in answer.text
    finally:
        registry.keep_approvers(workspace, "small", [])


def test_a_rejected_version_is_promoted_only_by_whoever_saw_that(sign_in, folder):
    """Finds a button beside a rejected version, and a page of before the rejection that promotes it."""
    workspace, client = f"{folder}/runs", sign_in("USER", "eve")
    registry.promote(workspace, "small", 1)
    before = get(client, "fraud/registry")
    form = {"token": token_of(before), "seen": seen_of(before), "version": "2"}
    registry.reject(workspace, "small", 2, by=f"in Airflow by {HOSTILE}", why=HOSTILE)
    after, version = get(client, "fraud/registry"), get(client, "fraud/registry/small/2")
    assert "<summary>Promote all the same</summary>" not in before.text
    assert after.text.count("<summary>Promote all the same</summary>") == 1
    assert '<p class="subject">Rejected. Created ' in version.text
    assert "Rejected in Airflow by" in version.text
    assert "<script" not in version.text + after.text
    stale = client.post("/gnnflow/fraud/registry/small/promote", data=form)
    assert (stale.status_code, "version 2 was rejected meanwhile" in stale.text) == (409, True)
    seen = client.post("/gnnflow/fraud/registry/small/promote", data={**form, "seen": seen_of(after)})
    assert (seen.status_code, registry.read_aliases(workspace, "small").champion) == (303, 2)
    registry.promote(workspace, "small", 1)


def test_that_nobody_answered_rejects_no_version(folder, monkeypatch):
    """Finds a time limit that is kept as a person's rejection."""
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    from gnnflow_airflow.model_file import Approval
    from gnnflow_airflow.promotion import PromotionApproval
    from tests.airflow.running import Quiet

    workspace = f"{folder}/runs"
    registry.promote(workspace, "small", 1)

    class Published(Quiet):
        def xcom_pull(self, **_):
            return {"name": "small", "version": 2}

    config = hostile_config(folder).model_dump(mode="json", exclude_unset=True)
    task = PromotionApproval(task_id="approve", asked=Approval(), config=config)
    monkeypatch.setattr(ApprovalOperator, "execute_complete", lambda *_, **__: None)
    for person, rejected in ((None, ()), ({"id": "7", "name": "Ada"}, (2,))):
        task.execute_complete({"ti": Published()}, {"chosen_options": ["Reject"], "responded_by_user": person})
        assert registry.read_aliases(workspace, "small").rejected == rejected
    registry.promote(workspace, "small", 2)
    registry.promote(workspace, "small", 1)


def test_a_promotion_that_is_tried_again_does_not_undo_a_rollback(folder):
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow_airflow.promotion import PromoteOperator
    from tests.airflow.running import Quiet

    workspace = f"{folder}/runs"
    registry.promote(workspace, "small", 1)
    published = {"name": "small", "version": 2, "reason": "better"}
    published["seen"] = len(registry.read_aliases(workspace, "small").history)

    class Answered(Quiet):
        def xcom_pull(self, *, task_ids, **_):
            return published if task_ids == "publish" else {"responded_by_user": {"name": "Ada"}}

    config = hostile_config(folder).model_dump(mode="json", exclude_unset=True)
    task = PromoteOperator(task_id="promote", config=config, approval="approve")
    for _ in range(2):  # again, as after its process was killed
        assert task.execute({"ti": Answered()})["version"] == 2
    registry.rollback(workspace, "small")
    with pytest.raises(AirflowFailException, match="the champion moved meanwhile: now version 1 is in service"):
        task.execute({"ti": Answered()})


def test_a_viewer_moves_no_model_nor_does_a_form_that_is_not_ours(sign_in, folder):
    workspace, before = f"{folder}/runs", registry.read_aliases(f"{folder}/runs", "small")
    editor = token_of(get(sign_in("USER", "eve"), "fraud/registry"))
    viewer = sign_in("VIEWER", "vic")
    assert "<form" not in get(viewer, "fraud/registry").text
    for role, name, token, code in (
        ("VIEWER", "vic", editor, 403),
        ("USER", "mallory", editor, 403),
        ("USER", "eve", "", 403),
        ("USER", "eve", f"{editor}x", 403),
    ):
        form = {"token": token, "seen": str(len(before.history)), "version": "2"}
        for action in ("promote", "rollback"):
            answer = sign_in(role, name).post(f"/gnnflow/fraud/registry/small/{action}", data=form)
            assert (answer.status_code, action) == (code, action)
    for model, version, code in (("none", "2", 404), ("..", "2", 404), ("small", "9", 409), ("small", "x", 422)):
        form = {"token": editor, "seen": str(len(before.history)), "version": version}
        answer = sign_in("USER", "eve").post(f"/gnnflow/fraud/registry/{model}/promote", data=form)
        assert answer.status_code in {code, 404 if model == ".." else code}
    assert registry.read_aliases(workspace, "small") == before


def test_permissions_are_those_of_the_dag_that_the_setting_names(sign_in, folder, monkeypatch):
    from airflow.api_fastapi.app import get_auth_manager

    asked = []
    monkeypatch.setenv("GNNFLOW_WORKSPACES", f"fraud@gnnflow_retrain={folder}/runs")

    def refuse(*, method, user, access_entity=None, details=None):
        asked.append((method, details.id))
        return False

    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", refuse)
    answer = get(sign_in("ADMIN"), "fraud/?dag_id=gnnflow_pipeline")
    assert (answer.status_code, asked) == (403, [("GET", "gnnflow_retrain")])


@pytest.mark.parametrize("setting", ["fraud", "=s3://bucket", "../x=/srv", "a=/x a=/y"])
def test_a_setting_that_cannot_be_read_says_so(monkeypatch, setting):
    from gnnflow.graph.errors import ConfigError
    from gnnflow_airflow.places import list_places

    monkeypatch.setenv("GNNFLOW_WORKSPACES", setting)
    with pytest.raises(ConfigError, match="GNNFLOW_WORKSPACES"):
        list_places()


def test_buttons_of_tasks_lead_to_pages_that_open(sign_in, folder, monkeypatch):
    from gnnflow_airflow.compare import ComparisonLink
    from gnnflow_airflow.links import web_address
    from gnnflow_airflow.stages import CompleteRunOperator, TrainOperator

    class Instance:
        """Keeps what a task stores."""

        map_index = -1

        def __init__(self):
            self.stored = {}

        def xcom_push(self, *, key, value):
            self.stored[key] = value

    config = folder / "config.json"
    config.write_text(hostile_config(folder).model_dump_json())
    client, addresses = sign_in("VIEWER"), {}
    for operator in (TrainOperator, CompleteRunOperator):
        task, instance = operator(task_id="task", config=str(config)), Instance()
        task.execute({"ti": instance, "outlet_events": {}})
        links = {link.name: link.get_link(task, ti_key=None) for link in task.operator_extra_links}
        addresses |= {name: address for name, address in links.items() if address}
        assert set(instance.stored.values()) == {address for address in links.values() if address}
    addresses[ComparisonLink.name] = web_address(str(next(folder.glob("runs/comparisons/*/*/comparison.html"))))
    assert set(addresses) == {"Report", "Predictions", "Curves", "Comparison"}
    assert {name: client.get(address).status_code for name, address in addresses.items()} == dict.fromkeys(
        addresses, 200
    )
    monkeypatch.delenv("GNNFLOW_WORKSPACES")
    assert web_address(f"{folder}/runs/runs/small/x/report.html") == ""
    monkeypatch.setenv("GNNFLOW_WORKSPACE", f"{folder}/runs")
    assert web_address(f"{folder}/runs/runs/small/x/report.html").endswith("/gnnflow/default/runs/small/x/report.html")
