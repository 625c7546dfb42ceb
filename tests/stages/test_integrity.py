"""What is stored is what is read, and an error deletes nothing that is not its own: whole stages and runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow import registry
from gnnflow.graph.errors import ConfigError, RegistryError, StorageError, TableError
from gnnflow.mapreduce.exchange import write_exchange
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.progress import Silent
from gnnflow.stages import pipeline, publish, running, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.report import report_of
from gnnflow.stages.running import make_artifact
from gnnflow.storage.filesystem import list_names, read_json
from gnnflow.storage.writing import write_atomic
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.config import Config

SAMPLED: dict[str, Any] = {"sampling": {"kind": "uniform", "fanout": [4, 3]}, "hub_threshold": 20}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    write_graph(tmp_path, hub=7)
    return tmp_path


def small(folder: Path, workspace: str = "runs", **sections: Any) -> Config:
    keys: dict[str, Any] = {"train": {"epochs": 1}, "infer": {"parity_samples": 5}, "neighbors": SAMPLED}
    keys["flat"] = {"layout": "shared"}  # which has files of every kind
    return graph_config(folder, workspace=str(folder / workspace), **{**keys, **sections})


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def only(folder: Path, pattern: str) -> Path:
    return min(folder.glob(pattern))


READ_BY: dict[str, tuple[str, ...]] = {
    "ingest/*/nodes-00001.parquet": ("flat", "infer"),
    "ingest/*/edges-00000.parquet": ("select",),
    "select/*/edges-00001.parquet": ("flat", "infer"),
    "flat/*/shards/train-*.graph.parquet": ("train",),
    "flat/*/shards/valid-*0.parquet": ("train",),
    "train/*/model.safetensors": ("infer",),
    "train/*/model.json": ("infer",),
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph and every stage's artifact; a test that changes them puts them back."""
    folder = tmp_path_factory.mktemp("scored")
    write_graph(folder, hub=7)
    for stage in ("ingest", "select", "flat", "train", "infer"):
        make_artifact(StageContext.of(small(folder)), stage)
    return folder


@pytest.mark.parametrize("pattern", READ_BY)
def test_a_stage_that_reads_a_changed_file_says_which_and_what_makes_it(scored: Path, pattern: str) -> None:
    artifacts = scored / "runs/artifacts"
    damaged = only(artifacts, pattern)
    flip(damaged)
    for stage in READ_BY[pattern]:
        made = only(artifacts / stage, "*")
        made.rename(scored / "aside")
        with pytest.raises(StorageError, match=r"is damaged: its sha256 is .*, manifest\.json says") as caught:
            make_artifact(StageContext.of(small(scored)), stage)
        (scored / "aside").rename(made)
        assert caught.value.where == str(damaged)
        assert f"`gnnflow {pattern.split('/', maxsplit=1)[0]} CONFIG`" in caught.value.fix
    flip(damaged)  # the same bit again: it is whole


@pytest.mark.slow
def test_what_the_message_advises_mends_it(graph: Path) -> None:
    result = pipeline.run_quietly(small(graph))
    digests = {name: stage.digest for name, stage in result.stages.items()}
    flip(only(graph / "runs/artifacts", "flat/*/shards/train-*.graph.parquet"))
    shutil.rmtree(result.stages["train"].artifact)
    with pytest.raises(StorageError) as caught:
        pipeline.run_quietly(small(graph))
    folder = caught.value.fix.split("Delete the folder ")[1].split(" and ")[0]
    shutil.rmtree(folder)
    assert {name: stage.digest for name, stage in pipeline.run_quietly(small(graph)).stages.items()} == digests


OWN_FILES = ["predictions/part-00001.parquet", "metrics.json", "report.html", "run.json"]


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [flip, Path.unlink], ids=["flipped", "deleted"])
@pytest.mark.parametrize("name", OWN_FILES)
def test_a_run_makes_its_own_files_again(graph: Path, name: str, spoil: Callable[[Path], None]) -> None:
    first = pipeline.run_quietly(small(graph))
    file = Path(first.uri) / name
    content = file.read_bytes()
    spoil(file)
    heard = Heard()
    again = pipeline.run(StageContext.of(small(graph), progress=heard))
    assert not again.reused
    assert all(stage.reused for stage in again.stages.values())
    if name != "run.json":
        assert file.read_bytes() == content
        assert any(name in text for text in heard.messages)
    assert again.metrics == first.metrics
    assert pipeline.run(StageContext.of(small(graph))).reused


def test_a_run_whose_artifacts_are_damaged_too_names_the_file(graph: Path) -> None:
    first = pipeline.run_quietly(small(graph))
    (Path(first.uri) / "predictions/part-00001.parquet").unlink()
    flip(Path(first.stages["infer"].artifact) / "predictions/part-00001.parquet")
    with pytest.raises(StorageError, match=r"infer/.*/part-00001\.parquet: is damaged.*`gnnflow infer CONFIG`"):
        pipeline.run_quietly(small(graph))


@pytest.mark.slow
def test_a_record_of_another_run_is_not_taken_for_a_run_s_own(graph: Path) -> None:
    runs = [Path(pipeline.run_quietly(small(graph, train={"epochs": epochs})).uri) for epochs in (1, 2)]
    records = [(run / "run.json").read_bytes() for run in runs]
    for run, record in zip(runs, reversed(records), strict=True):
        (run / "run.json").write_bytes(record)
    with pytest.raises(StorageError, match=rf"{runs[1].name}/run\.json: is the record of run {runs[0].name}"):
        report_of("small", workspace=str(graph / "runs"))


@pytest.mark.slow
def test_a_damaged_report_is_made_again(graph: Path) -> None:
    result = pipeline.run_quietly(small(graph))
    flip(Path(result.report))
    assert "</html>" in Path(report_of("small", workspace=str(graph / "runs"))).read_text()
    assert pipeline.run_quietly(small(graph)).reused


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_publish_refuses_a_model_that_is_not_what_was_trained(graph: Path, name: str) -> None:
    result = pipeline.run_quietly(small(graph))
    flip(Path(result.stages["train"].artifact) / name)
    with pytest.raises(StorageError, match=rf"{name}: is damaged: its sha256"):
        publish.run(StageContext.of(small(graph)))
    assert registry.published_versions(str(graph / "runs"), "small") == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_FILES[:3])
@pytest.mark.parametrize("spoil", [flip, Path.unlink], ids=["flipped", "deleted"])
def test_publish_refuses_a_run_that_is_not_whole(graph: Path, name: str, spoil: Callable[[Path], None]) -> None:
    spoil(Path(pipeline.run_quietly(small(graph)).uri) / name)
    with pytest.raises(StorageError, match=rf"{name}: .*`gnnflow run CONFIG` makes the run's files again"):
        publish.run(StageContext.of(small(graph)))
    assert registry.list_models(str(graph / "runs")) == ()
    pipeline.run_quietly(small(graph))
    assert publish.run(StageContext.of(small(graph))).promoted


@pytest.mark.slow
def test_predictions_of_the_model_in_service_are_whole_or_refused(graph: Path) -> None:
    pipeline.run_quietly(small(graph))
    published = publish.run(StageContext.of(small(graph)))
    flip(only(Path(published.predictions), "*.parquet"))
    with pytest.raises(StorageError, match=r"parquet: is damaged"):
        score.run(StageContext.of(small(graph)))


@pytest.mark.slow
def test_a_damaged_alias_keeps_the_history_if_its_advice_is_followed(graph: Path) -> None:
    workspace = str(graph / "runs")
    for epochs in (1, 2):
        config = small(graph, train={"epochs": epochs})
        pipeline.run_quietly(config)
        publish.run(StageContext.of(config))
    before = registry.read_aliases(workspace, "small")
    registry.promote(workspace, "small", 1 if before.champion == 2 else 2)
    folder = graph / "runs/registry/small/aliases"
    last = folder / "00000003.json"
    for content in (
        last.read_bytes()[:60],
        b"[]",
        b'{"champion": 1}',
        last.read_bytes().replace(b'"to": ', b'"to": 1'),
    ):
        last.write_bytes(content)
        with pytest.raises(StorageError, match=last.name) as caught:
            registry.read_aliases(workspace, "small")
        assert "delete it and newest.json and keep the others" in caught.value.fix
    last.unlink()
    (folder / "newest.json").unlink()
    assert registry.read_aliases(workspace, "small") == before


@pytest.mark.slow
def test_a_damaged_pointer_to_the_last_run_is_a_readable_error(graph: Path) -> None:
    pipeline.run_quietly(small(graph))
    pointer = graph / "runs/runs/small/latest.json"
    for text in ("{", "[]", '{"ran": ""}', '{"run": 1}'):
        pointer.write_text(text)
        with pytest.raises(StorageError, match=r"latest\.json"):
            report_of("small", workspace=str(graph / "runs"))
    pipeline.run_quietly(small(graph))
    assert report_of("small", workspace=str(graph / "runs"))


@pytest.mark.parametrize("spoil", [flip, Path.unlink], ids=["flipped", "deleted"])
def test_a_stage_starts_anew_where_its_exchange_is_damaged(
    graph: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    undisturbed = make_artifact(StageContext.of(small(graph, "undisturbed")), "ingest").digest
    spoilt: list[str] = []

    def damaging(uri: str, *given: Any) -> int:
        written = write_exchange(uri, *given)
        if "edges_by_dst" in uri and not spoilt:
            spoilt.append(uri)
            spoil(Path(uri))
        return written

    monkeypatch.setattr("gnnflow.mapreduce.exchange.write_exchange", damaging)
    heard = Heard()
    result = make_artifact(StageContext.of(small(graph), progress=heard), "ingest")
    assert result.digest == undisturbed
    assert any(text.startswith(f"ingest starts anew: {spoilt[0]}: ") for text in heard.messages)


class Killed(Silent):
    """Ends the run where a round starts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        if name == self.name:
            raise KeyboardInterrupt


KILLED_AT = ["edges_dst", "nodes_write", "select_merge", "hop_2", "shards", "slice_1", "slice_2", "parity_shards"]


@pytest.mark.slow
def test_a_run_killed_where_channels_are_gone_ends_with_the_same_bytes(graph: Path) -> None:
    whole = pipeline.run_quietly(small(graph, "whole"))
    for name in KILLED_AT:
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(StageContext.of(small(graph, "killed"), progress=Killed(name.removeprefix("parity_"))))
        # an upgrade, or a damage: a record of a round whose input is deleted by now
        for record in (graph / "killed/work").glob("*/*/*/00000.json"):
            record.write_text('{"index": 0, "files": []}')
    result = pipeline.run_quietly(small(graph, "killed"))
    assert {name: stage.digest for name, stage in result.stages.items()} == {
        name: stage.digest for name, stage in whole.stages.items()
    }
    assert not [path for path in (graph / "killed/work").rglob("*") if path.is_file()]


def test_what_a_run_killed_after_its_commit_left_is_removed(graph: Path) -> None:
    context = StageContext.of(small(graph))
    made = make_artifact(context, "ingest")
    work = Path(context.run.workspace.work("ingest", context.run.fingerprints["ingest"]))
    (work / "nodes_read").mkdir(parents=True)
    (work / "nodes_read" / "00000.json").write_text("{}")
    again = make_artifact(context, "ingest")
    assert again.reused
    assert again.digest == made.digest
    assert list_names(str(work)) == []


def test_graphinfer_keeps_the_exchange_of_two_slices_at_most(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[set[str]] = []

    def watching(self: RoundRunner, step: Any, original: Any = RoundRunner.run) -> Any:
        records = original(self, step)
        if step.name.startswith("slice_"):
            kept.append({path.name for path in Path(self.work).glob("slice_*/*") if path.is_dir()})
        return records

    monkeypatch.setattr(RoundRunner, "run", watching)
    pipeline.run_quietly(small(graph, model={"kind": "gcn", "layers": 3, "hidden": 4}, neighbors={}))
    assert kept == [{"own_1", "source_1_0"}, {"own_2", "source_2_0"}, {"own_3", "source_3_0"}, set()]


def test_an_error_leaves_an_artifact_that_it_did_not_make(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(graph)
    artifact = Path(make_artifact(StageContext.of(config), "ingest").artifact)
    manifest = (artifact / "manifest.json").read_bytes()
    before = list_names(str(artifact))
    (artifact / "manifest.json").unlink()  # a store that answers wrongly for a moment

    def fails(*given: Any, **keys: Any) -> Any:
        raise TableError("wrong")

    monkeypatch.setattr("gnnflow.stages.ingest.run_rounds", fails)
    with pytest.raises(TableError):
        make_artifact(StageContext.of(config), "ingest")
    (artifact / "manifest.json").write_bytes(manifest)
    assert list_names(str(artifact)) == before
    monkeypatch.undo()
    assert make_artifact(StageContext.of(config), "ingest").reused


def test_an_artifact_that_another_run_committed_first_is_taken(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two holders of a lease for a moment: the one that comes last finds the work done and its own files gone."""
    config = small(graph)

    def overtaken(run: Any, work: Any, *, fingerprint: str, original: Any = running._make) -> None:
        original(run, work, fingerprint=fingerprint)
        raise StorageError("no such file", where="work")

    monkeypatch.setattr(running, "_make", overtaken)
    assert make_artifact(StageContext.of(config), "ingest").reused


@pytest.mark.parametrize("workspace", ["tables", "tables/runs", "tables/deeper/runs"])
def test_a_workspace_among_the_files_of_a_table_is_refused(graph: Path, workspace: str) -> None:
    (graph / "tables").mkdir()
    shutil.copy(graph / "nodes.parquet", graph / "tables")
    with pytest.raises(ConfigError, match=r"workspace: .* lies inside graph\.nodes"):
        small(graph, workspace, graph={"nodes": str(graph / "tables")})
    assert StageContext.of(small(graph, "runs", graph={"nodes": str(graph / "tables")}))
    # the folder above both holds more than the table: nothing of the workspace is taken for a row
    assert StageContext.of(small(graph, ".", graph={"nodes": str(graph / "tables")}))


def test_a_pattern_that_takes_in_the_workspace_is_refused(graph: Path) -> None:
    config = small(graph, "tables/runs", graph={"nodes": str(graph / "tables/**/*.parquet")})
    (graph / "tables").mkdir()
    shutil.copy(graph / "nodes.parquet", graph / "tables")
    assert StageContext.of(config)
    write_atomic(str(graph / "tables/runs/artifacts/ingest/abc/nodes-00000.parquet"), b"")
    with pytest.raises(ConfigError, match="lies among the files"):
        StageContext.of(config)


@pytest.mark.slow
def test_a_registry_with_a_foreign_claim_is_a_readable_error(graph: Path) -> None:
    pipeline.run_quietly(small(graph))
    write_atomic(str(graph / "runs/registry/small/claims/1.json"), b'{"who": "me"}')
    with pytest.raises((StorageError, RegistryError), match=r"claims/1\.json"):
        publish.run(StageContext.of(small(graph)))


@pytest.mark.slow
def test_run_json_lists_the_files_of_the_run(graph: Path) -> None:
    result = pipeline.run_quietly(small(graph))
    record = read_json(str(Path(result.uri) / "run.json"))
    assert {entry["name"] for entry in record["files"]} == {
        *(f"predictions/part-{part:05d}.parquet" for part in range(3)),
        "metrics.json",
        "report.html",
    }
    assert json.dumps(record)
