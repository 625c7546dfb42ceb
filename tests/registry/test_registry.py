"""Numbers are claimed once, one run is one version, aliases move whole and back again."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import threading
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow import registry
from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.graph.facts import FeatureFacts, GraphFacts, RelationFacts, RowCounts, SelectFacts
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.registry import versions
from gnnflow.storage.documents import CHECKSUM, write_document
from gnnflow.storage.filesystem import join, list_names, read_bytes, read_json
from gnnflow.storage.manifest import Manifest, commit
from gnnflow.storage.workspace import DESCRIPTION, WEIGHTS, Workspace
from gnnflow.storage.writing import FileEntry, remove_file, write_atomic, write_json
from tests.s3 import local_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SELECTED = SelectFacts("direct", "none", None, num_edges=9, num_hubs=0, hub_threshold=10_000)
GRAPH = GraphFacts(
    num_nodes=10,
    num_edges=20,
    offsets=(0, 10),
    id_type="int64",
    features=FeatureFacts("dense", 5, has_value=False),
    attribute_width=0,
    has_weight=True,
    label_kind="single",
    num_classes=4,
    class_names=(),
    labelled=10,
    splits={"none": 0, "train": 5, "valid": 2, "test": 3},
    degree_bins=(0, 10),
    max_in_degree=2,
    tables={"nodes": RowCounts(10, 10, 0), "edges": RowCounts(20, 20, 0)},
)
TRAINED = TrainFacts(metrics={}, best_epoch=1, history=(), confusion={})
WRITERS = 4


def completed_run(workspace: str, number: int, *, name: str = "tiny") -> str:
    """Write what a completed run leaves, with weights that tell it apart, and return its URI."""
    artifacts = {stage: f"{workspace}/artifacts/{stage}/{number}" for stage in ("ingest", "select", "train")}
    weights = write_atomic(join(artifacts["train"], WEIGHTS), f"weights {number}".encode())
    model = write_json(join(artifacts["train"], DESCRIPTION), {"kind": "gcn"})
    made: dict[str, tuple[FileEntry, ...]] = {"ingest": (), "select": (), "train": (weights, model)}
    for stage, files in made.items():
        facts = asdict({"ingest": GRAPH, "select": SELECTED, "train": TRAINED}[stage])
        commit(artifacts[stage], Manifest(stage, f"{stage}-{number}", 1, files, {}, 1, 1, facts=facts))
    uri = f"{workspace}/runs/{name}/{number}"
    write_json(join(uri, "metrics.json"), {"test.accuracy": number / 10})
    config = {"name": name, "graph": {"nodes": "nodes.parquet", "edges": "edges.parquet"}}
    write_json(join(uri, "run.json"), {"name": name, "config": config, "store": "ingest", "artifacts": artifacts})
    return uri


everywhere = pytest.mark.parametrize(
    "workspace", ["local", "memory", pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)


@pytest.fixture(params=["local", "memory"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "s3":
        with local_bucket() as bucket:
            yield f"{bucket}/folder"
    else:
        yield str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run all calls in threads that start together and return what they gave, in the calls' order."""
    found: dict[int, Any] = {}
    gate = threading.Barrier(len(calls))

    def run(place: int) -> None:
        gate.wait()
        found[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[place] for place in range(len(calls))]


def test_versions_count_from_one_and_hold_what_made_them(workspace: str) -> None:
    runs = [completed_run(workspace, number) for number in (1, 2)]
    first, second = (registry.register(workspace, run, revision="abc") for run in runs)
    assert (first.version, second.version) == (1, 2)
    assert registry.published_versions(workspace, "tiny") == (1, 2)
    assert registry.list_models(workspace) == ("tiny",)
    assert second.run == runs[1]
    assert second.predictions == join(runs[1], "predictions")
    assert second.read(WEIGHTS) == b"weights 2"
    assert second.fingerprints == {stage: f"{stage}-2" for stage in ("ingest", "select", "train")}
    assert second.tables == {"nodes": "nodes.parquet", "edges": "edges.parquet"}
    assert second.metrics == {"test.accuracy": 0.2}
    assert second.revision == "abc"
    assert second.signature == registry.signature_of(GRAPH, SELECTED)
    assert list_names(second.uri) == [
        "config.json",
        "metrics.json",
        "model.json",
        "model.safetensors",
        "version.json",
    ]


def test_a_run_is_registered_once(workspace: str) -> None:
    run = completed_run(workspace, 1)
    first = registry.register(workspace, run, revision="abc")
    assert registry.register(workspace, completed_run(workspace, 2)).version == 2
    assert registry.register(workspace, run, revision="other") == first


def test_a_run_is_one_version_however_its_workspace_is_written(tmp_path: Path) -> None:
    places = [Workspace.at(uri) for uri in (str(tmp_path), f"file://{tmp_path}", f"local://{tmp_path}/", "memory://w")]
    assert [place.uri for place in places] == [str(tmp_path)] * 3 + ["memory://w"]
    first = registry.register(str(tmp_path), completed_run(str(tmp_path), 1))
    for place in places[:3]:
        assert registry.register(place.uri, first.run) == first
    assert registry.register(str(tmp_path), f"file://{first.run}") == first


def test_a_version_that_was_written_meanwhile_is_passed_over(workspace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = registry.register(workspace, completed_run(workspace, 1))
    # claims as they were listed before the first registration made its own
    monkeypatch.setattr(versions, "numbered", lambda *_, **__: [])
    assert registry.register(workspace, completed_run(workspace, 2)).version == 2
    assert registry.register(workspace, first.run) == first
    remove_file(join(workspace, "registry/tiny/claims/1.json"))
    # a claim that was lost is found again in its version
    assert registry.register(workspace, completed_run(workspace, 3)).version == 3
    monkeypatch.undo()
    assert registry.register(workspace, first.run) == first


@everywhere
def test_many_registrations_at_once_never_share_a_number(workspace: str) -> None:
    runs = [completed_run(workspace, number % WRITERS) for number in range(3 * WRITERS)]
    found = at_once([partial(registry.register, workspace, run) for run in runs])
    assert {version.version for version in found} == set(range(1, WRITERS + 1))
    for version in found:
        assert version.read(WEIGHTS) == f"weights {version.run[-1]}".encode()
        assert {other.version for other in found if other.run == version.run} == {version.version}


@pytest.mark.slow
def test_processes_never_share_a_number(tmp_path: Path) -> None:
    workspace = str(tmp_path)
    runs = [completed_run(workspace, number % WRITERS) for number in range(3 * WRITERS)]
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(partial(registry.register, workspace), runs))
    assert {version.version for version in found} == set(range(1, WRITERS + 1))
    assert len({(version.run, version.version) for version in found}) == WRITERS


def test_a_registration_that_died_is_finished_by_the_next(workspace: str) -> None:
    run = completed_run(workspace, 1)
    whole = registry.register(workspace, run, revision="abc")
    remove_file(join(whole.uri, "version.json"))
    remove_file(join(whole.uri, WEIGHTS))
    assert registry.published_versions(workspace, "tiny") == ()
    assert registry.register(workspace, completed_run(workspace, 2)).version == 2
    assert registry.register(workspace, run) == whole
    assert registry.published_versions(workspace, "tiny") == (1, 2)


def test_an_incomplete_run_is_refused(workspace: str) -> None:
    with pytest.raises(StorageError, match="not complete"):
        registry.register(workspace, join(workspace, "runs/tiny/9"))
    assert registry.list_models(workspace) == ()


def test_changed_weights_are_refused(workspace: str) -> None:
    version = registry.register(workspace, completed_run(workspace, 1))
    write_atomic(join(version.uri, WEIGHTS), b"other")
    with pytest.raises(StorageError, match="not the file that was published"):
        registry.read_version(workspace, "tiny", 1).read(WEIGHTS)


@pytest.fixture
def three(workspace: str) -> str:
    for number in (1, 2, 3):
        registry.register(workspace, completed_run(workspace, number))
    return workspace


@everywhere
def test_a_run_is_named_by_its_folder_and_by_its_version(three: str) -> None:
    registry.promote(three, "tiny", 2)
    for named in ("tiny@champion", "tiny@2", f"{three}/runs/tiny/2"):
        assert registry.find_run(named, workspace=three) == f"{three}/runs/tiny/2"
    with pytest.raises(RegistryError, match="no version candidate"):
        registry.find_run("tiny@candidate", workspace=three)
    with pytest.raises(StorageError, match=r"no such run.*or NAME@champion"):
        registry.find_run("nobody", workspace=three)


@everywhere
def test_rollback_restores_the_former_champion_and_its_predictions(three: str) -> None:
    for number in (1, 2, 3):
        registry.promote(three, "tiny", number)
    assert registry.read_aliases(three, "tiny").former == (1, 2)
    back = registry.rollback(three, "tiny")
    assert (back.version, back.predictions) == (2, f"{three}/runs/tiny/2/predictions")
    assert registry.find_version(three, "tiny", "champion") == back
    assert registry.rollback(three, "tiny").version == 1
    state = registry.read_aliases(three, "tiny")
    assert state.withdrawn == (3, 2)
    assert [(move["from"], move["to"]) for move in state.history] == [(None, 1), (1, 2), (2, 3), (3, 2), (2, 1)]
    with pytest.raises(RegistryError, match="no former champion"):
        registry.rollback(three, "tiny")
    registry.promote(three, "tiny", 3)
    assert registry.read_aliases(three, "tiny").withdrawn == (2,)


@everywhere
def test_a_rejected_version_stands_so_until_a_person_promotes_it(three: str) -> None:
    for number in (1, 2):
        registry.promote(three, "tiny", number)
    registry.nominate(three, "tiny", 3)
    seen = len(registry.read_aliases(three, "tiny").history)
    state = registry.reject(three, "tiny", 3, by="in Airflow by Ada", why=" too many\nalarms ")
    assert (state.candidate, state.of(3), state.champion) == (None, ("rejected",), 2)
    assert state.rejection(3)["reason"] == "rejected in Airflow by Ada: too many alarms"
    assert state.rejection(2) == {}
    assert registry.reject(three, "tiny", 3) == registry.nominate(three, "tiny", 3) == state
    with pytest.raises(RegistryError, match=r"version 2 is in service and cannot be rejected.*models rollback tiny"):
        registry.reject(three, "tiny", 2)
    # a form that was shown before the rejection
    with pytest.raises(registry.ChampionMovedError, match="version 3 was rejected meanwhile"):
        registry.promote(three, "tiny", 3, seen=seen)
    again = registry.promote(three, "tiny", 3, seen=len(state.history))
    assert (again.of(3), again.rejection(3)) == (("champion",), {})
    # a rollback goes past a former champion that was rejected
    registry.reject(three, "tiny", 2)
    assert registry.rollback(three, "tiny").version == 1


def test_aliases_that_an_older_gnnflow_wrote_hold_no_rejection(three: str) -> None:
    registry.promote(three, "tiny", 1)
    where = f"{three}/registry/tiny/aliases/00000001.json"
    held = {key: each for key, each in read_json(where).items() if key not in {"rejected", CHECKSUM}}
    write_document(where, held)
    assert registry.reject(three, "tiny", 2).rejected == (2,)


def test_promoting_the_champion_again_changes_nothing(three: str) -> None:
    once = registry.promote(three, "tiny", 2)
    assert registry.promote(three, "tiny", 2) == once
    with pytest.raises(RegistryError, match="no former champion"):
        registry.rollback(three, "tiny")


def test_a_promoted_candidate_is_no_candidate_any_more(three: str) -> None:
    registry.promote(three, "tiny", 1)
    assert registry.nominate(three, "tiny", 2).of(2) == ("candidate",)
    assert registry.promote(three, "tiny", 2).of(2) == ("champion",)
    assert registry.nominate(three, "tiny", 2).candidate is None


@everywhere
def test_moves_made_at_once_are_all_kept(three: str) -> None:
    registry.promote(three, "tiny", 1)
    moves = [partial(registry.promote, three, "tiny", number) for number in (2, 3)]
    moves += [partial(registry.nominate, three, "tiny", number) for number in (2, 3)]
    at_once(moves)
    history = registry.read_aliases(three, "tiny").history
    champions = [move for move in history if move["alias"] == "champion"]
    assert {move["to"] for move in champions} == {1, 2, 3}
    assert [move["from"] for move in champions[1:]] == [move["to"] for move in champions[:-1]]


def test_a_move_decided_before_another_one_is_refused_even_if_the_champion_is_the_same_again(three: str) -> None:
    for number in (1, 2):
        registry.promote(three, "tiny", number)
    seen = len(registry.read_aliases(three, "tiny").history)
    registry.nominate(three, "tiny", 3)  # a candidate that waits changes no decision about the champion
    assert registry.promote(three, "tiny", 3, seen=seen).champion == 3
    assert registry.promote(three, "tiny", 3, seen=seen).champion == 3  # tried again
    registry.rollback(three, "tiny")
    for move in (partial(registry.promote, three, "tiny", 3), partial(registry.rollback, three, "tiny")):
        for outdated in (seen, seen + 9):
            with pytest.raises(registry.ChampionMovedError, match="now version 2 is in service"):
                move(seen=outdated)
    assert registry.read_aliases(three, "tiny").champion == 2


def test_of_rollbacks_decided_at_once_one_is_made(three: str) -> None:
    for number in (1, 2, 3):
        registry.promote(three, "tiny", number)
    seen = len(registry.read_aliases(three, "tiny").history)

    def roll_back() -> int:
        try:
            return registry.rollback(three, "tiny", seen=seen).version
        except registry.ChampionMovedError:
            return 0

    assert sorted(at_once([roll_back] * 4)) == [0, 0, 0, 2]
    assert registry.read_aliases(three, "tiny").champion == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda w: registry.read_version(w, "tiny", 7), r"no version 7.*Versions: 1, 2, 3"),
        (lambda w: registry.find_version(w, "tiny", "champion"), "no version champion"),
        (lambda w: registry.find_version(w, "tny", "1"), r"no model 'tny'.*Models: tiny"),
        (lambda w: registry.promote(w, "tiny", 7), "no version 7"),
        (lambda w: registry.published_versions(w, "../escape"), "is not a model name"),
    ],
)
def test_errors_name_what_there_is(three: str, call: Callable[[str], Any], text: str) -> None:
    with pytest.raises(RegistryError, match=text):
        call(three)


def test_a_model_of_selected_neighbors_does_not_read_direct_ones() -> None:
    walks = RelationFacts("node__walks__node", 5, 0, has_weight=True, degree_bins=(1,), max_in_degree=1)
    trained = registry.signature_of(GRAPH, replace(SELECTED, kind="walks", relations=(walks,)))
    assert registry.misfits(trained, registry.signature_of(GRAPH, SELECTED)) == (
        "neighbors is direct, the model was trained on node__walks__node (0)",
    )


def test_a_signature_says_what_does_not_fit() -> None:
    trained = registry.signature_of(GRAPH)
    wider = registry.signature_of(replace(GRAPH, features=FeatureFacts("dense", 6, has_value=False), id_type="string"))
    assert registry.misfits(trained, trained) == ()
    assert registry.misfits(trained, wider) == (
        "feature width is 6, the model was trained on 5",
        "id type is string, the model was trained on int64",
    )


def git(config: Path, *arguments: str) -> str:
    """Run git in the folder of a config and return what it prints."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(config.parent), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config in a folder of a checkout."""
    config = tmp_path / "checkout" / "configs" / "tiny.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("name: tiny\n")
    assert registry.git_revision(str(config)) is None
    git(config, "init", "-q", str(tmp_path / "checkout"))
    assert registry.git_revision(str(config)) is None
    git(config, "add", "tiny.yaml")
    git(config, "commit", "-q", "--no-verify", "-m", "one")
    git(config, "tag", "-a", "v1", "-m", "v1")
    return config


def test_the_revision_is_that_of_the_configs_checkout(config: Path) -> None:
    assert registry.git_revision(str(config)) == git(config, "rev-parse", "HEAD")
    assert registry.git_revision("s3://bucket/tiny.yaml") is None
    assert registry.git_revision("") is None


def test_the_checkout_of_a_config_runs_no_program(config: Path, tmp_path: Path) -> None:
    """Finds git commands that do what the configuration of somebody else's checkout says."""
    commit, mark, program = git(config, "rev-parse", "HEAD"), tmp_path / "ran", tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {mark}\ncat\n')
    program.chmod(0o755)
    for name in ("post-index-change", "post-checkout", "reference-transaction"):
        hook = config.parent.parent / ".git" / "hooks" / name
        hook.unlink(missing_ok=True)
        hook.symlink_to(program)
    sections = {
        "core": ("fsmonitor", "pager", "editor", "sshCommand", "askPass", "gitProxy", "alternateRefsCommand"),
        "diff": ("external",),
        "filter.x": ("clean", "smudge"),
        "diff.x": ("command", "textconv"),
        "gpg": ("program",),
        "credential": ("helper",),
        "pager": ("rev-parse", "describe"),
    }
    for section, keys in sections.items():
        for key in keys:
            git(config, "config", f"{section}.{key}", str(program))
    git(config, "config", "alias.rev-parse", f"!{program}")
    (config.parent / ".gitattributes").write_text("* filter=x diff=x\n")
    config.write_text("name: other\n")
    git(config, "status")
    assert mark.exists(), "this configuration runs nothing, so the test would find nothing"
    mark.unlink()
    found = registry.git_revision(str(config))
    assert not mark.exists(), mark.read_text()
    assert found == commit


def test_documents_are_plain_json(three: str) -> None:
    registry.promote(three, "tiny", 1)
    folder = join(three, "registry", "tiny")
    assert read_json(join(folder, "aliases", "00000001.json"))["champion"] == 1
    assert json.dumps(read_json(join(folder, "1", "version.json")))


def test_a_deleted_last_state_is_missed_and_its_advice_brings_the_one_before_back(three: str) -> None:
    registry.promote(three, "tiny", 1)
    before = registry.read_aliases(three, "tiny")
    registry.promote(three, "tiny", 2)
    folder = join(three, "registry", "tiny", "aliases")
    remove_file(join(folder, "00000002.json"))
    with pytest.raises(StorageError, match=r"00000002\.json: is missing, and newest\.json names it") as caught:
        registry.read_aliases(three, "tiny")
    assert "delete newest.json in the same folder: aliases/00000001.json is then in force" in caught.value.fix
    remove_file(join(folder, "newest.json"))
    assert registry.read_aliases(three, "tiny") == before


def test_a_move_killed_before_its_end_counts(three: str) -> None:
    registry.promote(three, "tiny", 1)
    folder = join(three, "registry", "tiny", "aliases")
    newest = read_bytes(join(folder, "newest.json"))
    registry.promote(three, "tiny", 2)
    write_atomic(join(folder, "newest.json"), newest)
    assert registry.read_aliases(three, "tiny").champion == 2
    assert registry.promote(three, "tiny", 3).champion == 3


def test_a_deleted_version_is_missed_and_publishing_its_run_again_writes_it(three: str) -> None:
    registry.promote(three, "tiny", 2)
    run = registry.read_version(three, "tiny", 2).run
    held = read_bytes(join(three, "registry", "tiny", "2", "version.json"))
    remove_file(join(three, "registry", "tiny", "2", "version.json"))
    assert registry.published_versions(three, "tiny") == (1, 2, 3)
    with pytest.raises(StorageError, match=r"2/version\.json: is missing") as caught:
        registry.find_version(three, "tiny", "champion")
    assert "Publish its run again" in caught.value.fix
    registry.register(three, run, name="tiny")
    assert read_bytes(join(three, "registry", "tiny", "2", "version.json")) == held
