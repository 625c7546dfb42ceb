"""A stage is one row and one file; a run is resolved once and never mixes two states of its tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.config.pipelines import PIPELINES
from gnnflow.config.stages import STAGES, every_stage, needs_of, retraining_chain, run_chain, stages_of
from gnnflow.graph.errors import ConfigError, LayerError, TableError, TrainingError
from gnnflow.stages import ingest, pipeline
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.storage import filesystem
from gnnflow.storage.filesystem import exists
from tests.command_line import printed
from tests.extending.toys.stage import ToyFacts
from tests.small_graphs import graph_config, write_graph
from tests.stages.toy_stage import TOY, TOY_BATCH

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.config import Config

QUICK: dict[str, Any] = {"train": {"epochs": 1}, "infer": {"parity_samples": 5}}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table with one more stage, and a strategy that has it."""
    monkeypatch.setitem(STAGES, "toy", TOY)
    monkeypatch.setitem(PIPELINES, "toy-batch", TOY_BATCH)


def toy_config(folder: Path) -> Config:
    return graph_config(folder, train={"epochs": 1, "strategy": "toy-batch"}, infer={"parity_samples": 5})


def make_all(context: StageContext) -> dict[str, ArtifactResult]:
    """Run the stages without committing the run, whose report takes longer than they do."""
    return {stage: make_artifact(context, stage) for stage in context.run.stages}


def test_every_stage_of_a_pipeline_leaves_an_artifact_and_finds_its_needs_before_it() -> None:
    for row in PIPELINES.values():
        for number, stage in enumerate(row.stages):
            assert STAGES[stage].keys is not None
            assert set(needs_of(stage, row.stages)) <= set(row.stages[:number])


def test_chains_follow_the_pipeline_and_leave_out_what_a_config_does_not_ask_for(tmp_path: Path) -> None:
    every = PIPELINES["mini-batch"].stages
    balanced = graph_config(tmp_path, partition={"kind": "balanced"}, train={"baselines": "all"})
    assert stages_of(balanced) == every
    config = graph_config(tmp_path)
    stages = tuple(stage for stage in every if stage not in {"partition", "baselines"})
    assert stages_of(config) == stages
    assert run_chain(config) == (*stages, "run")
    assert retraining_chain(config) == ("ingest", "guards", *stages[1:], "run", "publish", "score")
    assert every_stage() == (*every, "run")


def test_a_stage_that_a_config_does_not_ask_for_is_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(ConfigError, match=r"no stage partition.*Set partition\.kind"):
        perform(StageContext.of(graph_config(tmp_path)), "partition")


@pytest.mark.usefixtures("toy")
def test_a_run_of_another_strategy_has_the_new_stage_and_its_report_shows_it(tmp_path: Path) -> None:
    write_graph(tmp_path)
    result = pipeline.run_quietly(toy_config(tmp_path))
    assert list(result.stages) == list(TOY_BATCH.stages)
    assert result.stages["toy"].facts(ToyFacts) == ToyFacts(60)
    assert result.stages["toy"].manifest.inputs == {"ingest": result.stages["ingest"].manifest.fingerprint}
    assert result.summary()["stages"]["toy"]["artifact"] == result.stages["toy"].artifact
    assert ">toy<" in filesystem.read_bytes(result.report).decode()
    assert run_chain(toy_config(tmp_path))[1] == "toy"
    # what the two strategies have in common is shared
    mini = StageContext.of(graph_config(tmp_path, **QUICK))
    assert make_artifact(mini, "flat").reused
    assert "toy" not in mini.run.stages


@pytest.mark.usefixtures("toy")
def test_the_command_line_has_a_command_for_the_new_stage(tmp_path: Path) -> None:
    write_graph(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(toy_config(tmp_path).model_dump_json())
    printed(["ingest", str(file)])
    summary = json.loads(printed(["toy", str(file), "--json"]))
    assert (summary["stage"], summary["rows_out"], summary["reused"]) == ("toy", 60, False)
    assert "Count the nodes." in printed(["--help"])


def test_a_strategy_that_is_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'toy-batch' is not allowed: must be 'mini-batch'"):
        toy_config(tmp_path)


def test_a_stage_makes_the_cheap_stage_it_needs(tmp_path: Path) -> None:
    write_graph(tmp_path)
    context = StageContext.of(graph_config(tmp_path, neighbors={"sampling": {"kind": "uniform", "fanout": [3, 2]}}))
    make_artifact(context, "ingest")
    make_artifact(context, "flat")
    assert make_artifact(context, "select").reused


def test_resolving_opens_no_table_and_a_run_opens_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    opened: list[str] = []
    stamped: list[str] = []
    tables = {str(tmp_path / "nodes.parquet"), str(tmp_path / "edges.parquet")}

    def counting(fs: Any, path: str, original: Any = filesystem._open) -> Any:
        opened.append(path)
        return original(fs, path)

    def stamping(uri: str, original: Any = filesystem.stamp) -> Any:
        stamped.append(uri)
        return original(uri)

    monkeypatch.setattr(filesystem, "_open", counting)
    monkeypatch.setattr("gnnflow.stages.resolve.stamp", stamping)
    # one that leaves neither the split nor the kind of labels to the tables
    task, graph = {"split": {"kind": "column"}}, {"num_classes": 4}
    config = graph_config(tmp_path, task=task, graph=graph, **QUICK)
    assert resolve(config).fingerprints
    assert tables.isdisjoint(opened)
    assert sorted(stamped) == sorted(tables)
    stamped.clear()
    pipeline.run_quietly(config)
    # when the run is resolved, and once more before ingest commits
    assert sorted(stamped) == sorted([*tables, *tables])
    opened.clear()
    stamped.clear()
    again = pipeline.run_quietly(config)
    assert all(stage.reused for stage in again.stages.values())
    assert tables.isdisjoint(opened)
    assert sorted(stamped) == sorted(tables)


def test_a_table_that_changes_while_ingest_reads_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    context = StageContext.of(graph_config(tmp_path))

    def late(*given: Any, original: Any = ingest.run_rounds, **keys: Any) -> Any:
        result = original(*given, **keys)
        write_graph(tmp_path, num_edges=500, seed=1)
        return result

    monkeypatch.setattr(ingest, "run_rounds", late)
    with pytest.raises(TableError, match=r"nodes\.parquet.*changed while it was read"):
        make_artifact(context, "ingest")
    assert not exists(context.run.artifact("ingest"))
    monkeypatch.undo()
    assert make_artifact(StageContext.of(graph_config(tmp_path)), "ingest").manifest.rows_in == 560


@pytest.mark.slow
def test_a_run_keeps_the_tables_it_was_resolved_with(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, **QUICK)
    context = StageContext.of(config)
    make_artifact(context, "ingest")
    write_graph(tmp_path, num_edges=500, seed=1)
    later = StageContext.of(config)
    old, new = make_all(context), make_all(later)
    assert context.run.uri != later.run.uri
    assert old["ingest"].manifest.rows_in == 460
    assert new["ingest"].manifest.rows_in == 560
    for made in (old, new):
        fingerprints = {name: stage.manifest.fingerprint for name, stage in made.items()}
        for stage in made.values():
            assert stage.manifest.inputs == {need: fingerprints[need] for need in stage.manifest.inputs}


def test_editing_a_layer_of_ones_own_trains_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "edited_layer.py"
    module.write_text("from tests.contracts.own_layers import Gated\n\n\nclass Mine(Gated):\n    pass\n")
    config = graph_config(tmp_path, model={"kind": "edited_layer:Mine", "head": "linear", "hidden": 4}, **QUICK)
    before = resolve(config)
    module.write_text(module.read_text() + "\n# changed\n")
    after = resolve(config)
    changed = {stage for stage in before.stages if before.fingerprints[stage] != after.fingerprints[stage]}
    assert changed == {"train", "infer"}


def test_editing_a_loss_of_ones_own_trains_again_and_a_missing_one_is_refused_before_ingest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "edited_loss.py"
    module.write_text("from torch.nn.functional import cross_entropy\n\n\ndef mine(x, y, w):\n    return 0.0\n")
    before = resolve(graph_config(tmp_path, train={"loss": {"kind": "edited_loss:mine"}}))
    module.write_text(module.read_text().replace("return 0.0", "return cross_entropy(x, y, w)"))
    after = resolve(before.config)
    changed = {stage for stage in before.stages if before.fingerprints[stage] != after.fingerprints[stage]}
    assert changed == {"train", "infer"}
    context = StageContext.of(graph_config(tmp_path, train={"loss": {"kind": "edited_loss:yours"}}))
    with pytest.raises(TrainingError, match=r"has no function 'yours'\. Its functions are: mine"):
        perform(context, "run")
    assert not exists(context.run.artifact("ingest"))


def test_a_layer_no_execution_runs_is_refused_before_ingest(tmp_path: Path) -> None:
    write_graph(tmp_path)
    model = {"kind": "tests.contracts.own_layers:MedianWithSelf", "head": "linear", "hidden": 4}
    context = StageContext.of(graph_config(tmp_path, model=model))
    with pytest.raises(LayerError, match="do not merge"):
        perform(context, "run")
    assert not exists(context.run.artifact("ingest"))


@pytest.mark.slow
def test_deeper_neighbourhoods_serve_a_shallower_model(tmp_path: Path) -> None:
    write_graph(tmp_path)
    sampling = {"kind": "uniform", "fanout": [4, 3, 2]}
    # in shards that have neighbourhoods, which those of targets alone would not show
    sections = {**QUICK, "neighbors": {"sampling": sampling}, "flat": {"hops": 3, "layout": "shared"}}
    deep = make_all(StageContext.of(graph_config(tmp_path, model={"layers": 3, "hidden": 8}, **sections)))
    shallow = make_all(StageContext.of(graph_config(tmp_path, model={"layers": 2, "hidden": 8}, **sections)))
    assert shallow["flat"].reused
    assert shallow["flat"].artifact == deep["flat"].artifact
    assert not shallow["train"].reused
    # neighbourhoods cut for two hops give the same weights and the same predictions
    own = {**QUICK, "neighbors": {"sampling": {"kind": "uniform", "fanout": [4, 3]}}, "flat": {"layout": "shared"}}
    alone = make_all(StageContext.of(graph_config(tmp_path, model={"layers": 2, "hidden": 8}, **own)))
    assert alone["flat"].digest != shallow["flat"].digest
    for stage in ("train", "infer"):
        assert alone[stage].digest == shallow[stage].digest
