"""Only what is at least as good on the same targets is promoted, and what was rolled back stays out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.config.stages import stages_of
from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.layers import saved
from gnnflow.stages import pipeline, publish
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import run_stage
from gnnflow.storage.columns import from_matrix, to_matrix
from tests.command_line import run_cli
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.config import Config

pytestmark = pytest.mark.slow  # most tests run the whole pipeline two or three times

GOOD: dict[str, Any] = {"epochs": 12, "lr": 0.1}
BAD: dict[str, Any] = {"epochs": 1, "lr": 1e-6}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph whose label is plain in its features."""
    write_graph(tmp_path, num_nodes=240, num_edges=240)
    relabel(tmp_path)
    return tmp_path


def relabel(folder: Path) -> None:
    table = pq.read_table(folder / "nodes.parquet")
    label = (to_matrix(table["x"])[:, 0] > 0).astype(np.int64)
    pq.write_table(table.set_column(2, "label", [label]), folder / "nodes.parquet")


def config_of(folder: Path, train: dict[str, Any] = GOOD, **sections: Any) -> Config:
    model = {"kind": "sage", "layers": 1, "head": "linear", "hidden": 16, "dropout": 0.0}
    cheap: dict[str, Any] = {"graph": {"partitions": 1}, "infer": {"parity_samples": 5}}
    return graph_config(folder, train=train, **{"model": model, **cheap, **sections})


def published(config: Config) -> publish.PublishResult:
    pipeline.run_quietly(config)
    return publish.run(StageContext.of(config))


def test_a_worse_model_stays_out_and_the_reason_says_why(graph: Path) -> None:
    first = published(config_of(graph))
    assert (first.version, first.promoted, first.in_service) == (1, True, 1)
    worse = published(config_of(graph, BAD))
    assert (worse.version, worse.promoted, worse.in_service) == (2, False, 1)
    ours, theirs = worse.candidate["test.accuracy"], worse.champion["test.accuracy"]
    assert ours < theirs
    assert f"version 1 stays: test.accuracy is {ours:.4f}, and {theirs:.4f} for version 1" in worse.reason
    assert "more than noise)" in worse.reason
    listed = run_cli(["models", "list", "--workspace", str(graph / "runs")]).out.splitlines()
    assert listed[1].endswith("promoted as the first version")
    assert listed[2].endswith(f"accuracy {ours:.4f}, {theirs:.4f} for version 1, more than noise")
    state = registry.read_aliases(str(graph / "runs"), "small")
    assert (state.champion, state.candidate) == (1, 2)


def test_a_better_model_is_promoted_and_a_rollback_restores_the_old_one(graph: Path) -> None:
    workspace = str(graph / "runs")
    old = published(config_of(graph, BAD))
    new = published(config_of(graph))
    assert (new.version, new.promoted, new.in_service) == (2, True, 2)
    back = registry.rollback(workspace, "small")
    assert (back.version, back.predictions) == (old.version, old.predictions)
    assert pq.read_table(back.predictions).num_rows == 240
    again = published(config_of(graph))
    assert (again.version, again.promoted, again.in_service) == (2, False, 1)
    assert "rolled back" in again.reason
    assert registry.promote(workspace, "small", 2).champion == 2


def test_both_are_scored_as_training_scored_them(graph: Path) -> None:
    champion, candidate = published(config_of(graph)), published(config_of(graph, {**GOOD, "epochs": 3}))
    for result, scores in ((champion, candidate.champion), (candidate, candidate.candidate)):
        version = registry.read_version(str(graph / "runs"), "small", result.version)
        named = {key: held for key, held in version.metrics.items() if key.startswith("test.")}
        assert {key: scores[key] for key in named} == named
    assert "test.loss" in candidate.champion


def test_a_lower_loss_is_better(graph: Path) -> None:
    sections = {"publish": {"metric": "loss"}}
    published(config_of(graph, BAD, **sections))
    better = published(config_of(graph, {"epochs": 30, "lr": 0.01}, **sections))
    assert better.promoted, better.reason
    assert better.candidate["test.loss"] < better.champion["test.loss"]
    assert not published(config_of(graph, {**BAD, "lr": 1e-7}, **sections)).promoted


def test_of_two_regressions_the_smaller_error_is_in_service(graph: Path) -> None:
    table = pq.read_table(graph / "nodes.parquet")
    value = to_matrix(table["x"])[:, 0].astype(np.float32)
    pq.write_table(table.set_column(2, "label", [value]), graph / "nodes.parquet")
    errors = [{**GOOD, "metric": "mae"}, {**BAD, "metric": "mae"}, {**GOOD, "epochs": 60, "metric": "mae"}]
    results = [published(config_of(graph, train)) for train in errors]
    assert [result.in_service for result in results] == [1, 1, 3]
    assert results[1].candidate["test.mae"] > results[1].champion["test.mae"]
    assert "promoted: test.mae is" in results[2].reason


def test_an_equal_model_is_promoted(graph: Path) -> None:
    published(config_of(graph))
    same = published(config_of(graph, {**GOOD, "batch_size": 255}))
    assert same.promoted
    assert same.candidate == same.champion
    assert "difference 0.0000 to 0.0000: which may be noise" in same.reason


def test_a_champion_that_came_meanwhile_is_compared_too(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [config_of(graph, BAD), config_of(graph, {**BAD, "lr": 1e-5}), config_of(graph)]
    published(configs[0])
    for config in configs[1:]:
        pipeline.run_quietly(config)
    promote, others = registry.promote, [configs[2]]

    def after_another(*arguments: Any, **options: Any) -> Any:
        if others:
            publish.run(StageContext.of(others.pop()))
        return promote(*arguments, **options)

    monkeypatch.setattr(registry, "promote", after_another)
    late = publish.run(StageContext.of(config_of(graph, {**BAD, "lr": 1e-5}, publish={"metric": "accuracy"})))
    assert (late.promoted, late.in_service) == (False, 3)
    assert "for version 3" in late.reason


def test_publishing_again_changes_nothing(graph: Path) -> None:
    config = config_of(graph)
    first = published(config)
    before = registry.read_aliases(config.workspace, "small")
    again = publish.run(StageContext.of(config))
    assert (again.version, again.promoted, again.reason) == (first.version, True, "it is in service already")
    assert registry.read_aliases(config.workspace, "small") == before


def test_the_champion_is_judged_on_todays_graph(graph: Path) -> None:
    published(config_of(graph))
    table = pq.read_table(graph / "nodes.parquet")
    flipped = 1 - table["label"].to_numpy()
    pq.write_table(table.set_column(2, "label", [flipped]), graph / "nodes.parquet")
    today = published(config_of(graph))
    assert today.promoted
    assert today.champion["test.accuracy"] < 0.5 < today.candidate["test.accuracy"]


def test_a_version_that_needs_approval_waits_until_a_person_promotes_it(graph: Path) -> None:
    workspace, asks = str(graph / "runs"), {"approval": True}
    first = published(config_of(graph, BAD, publish=asks))
    assert (first.awaits_approval, first.promoted, first.in_service) == (True, False, None)
    assert first.reason == "waits for approval, would be promoted as the first version"
    registry.promote(workspace, "small", 1)
    better = published(config_of(graph, publish=asks))
    assert (better.awaits_approval, better.promoted, better.in_service) == (True, False, 1)
    assert better.champion["test.accuracy"] < better.candidate["test.accuracy"]
    aliases = registry.read_aliases(workspace, "small")
    assert (aliases.candidate, aliases.decided(2)["compared"]["version"]) == (2, 1)
    registry.promote(workspace, "small", 2)
    worse = published(config_of(graph, {**BAD, "epochs": 2}, publish=asks))
    assert not worse.awaits_approval


def test_a_rejected_version_is_not_asked_for_again(graph: Path) -> None:
    """Finds a rejection that the next publication of the same run forgets, also where nothing is in service."""
    workspace, asks = ["--workspace", str(graph / "runs")], {"approval": True}
    published(config_of(graph, BAD, publish=asks))
    told = run_cli(["models", "reject", "small", "1", *workspace, "--why", "one epoch"])
    assert "version 1 of small stands rejected by hand: one epoch; `gnnflow models promote`" in told.out
    first = published(config_of(graph, BAD, publish=asks))
    assert (first.awaits_approval, first.in_service) == (False, None)
    assert first.reason.startswith("nothing is in service: this one was rejected by hand: one epoch (20")
    told = run_cli(["models", "promote", "small", "1", *workspace])
    assert "version 1 no longer stands rejected by hand: one epoch (20" in told.err
    assert published(config_of(graph, publish=asks)).awaits_approval
    rejected = json.loads(run_cli(["models", "reject", "small", "2", *workspace, "--json"]).out)
    assert (rejected["version"], rejected["rejected"]["reason"]) == (2, "rejected by hand")
    for approval in (True, False):
        again = published(config_of(graph, publish={"approval": approval}))
        assert (again.awaits_approval, again.promoted, again.in_service) == (False, False, 1)
        assert again.reason.startswith("version 1 stays: this one was rejected by hand (20")
        assert again.reason.endswith("; `gnnflow models promote small 2` promotes it anyway")
    assert run_cli(["models", "list", *workspace]).out.splitlines()[2].split()[:3] == ["small", "2", "rejected"]
    shown = run_cli(["models", "show", "small", "2", *workspace]).out
    assert "rejected: None -> 2  (rejected by hand)" in shown


def test_who_may_promote_is_as_the_last_publication_said(graph: Path) -> None:
    """Also where that publication had nothing else to do: its run is in service already."""
    workspace = str(graph / "runs")
    named = config_of(graph, publish={"approval": True, "approvers": ["ada", "bob"]})
    published(named)
    assert registry.read_approvers(workspace, "small") == ("ada", "bob")
    registry.promote(workspace, "small", 1)
    assert publish.is_quick(StageContext.of(named))
    unnamed = config_of(graph, publish={"approval": True})
    assert not publish.is_quick(StageContext.of(unnamed))
    published(unnamed)
    assert registry.read_approvers(workspace, "small") == ()


def test_a_model_of_earlier_tables_replaces_none_of_later_ones(graph: Path) -> None:
    published(config_of(graph, BAD, publish={"date": "2026-03-05"}))
    older = published(config_of(graph, publish={"date": "2026-03-01T06:00"}))
    assert (older.version, older.promoted, older.in_service) == (2, False, 1)
    dates = "its tables are of 2026-03-05, and this one's of 2026-03-01T06:00:00+00:00"
    assert older.reason == f"version 1 stays: {dates}; `gnnflow models promote small 2` promotes it anyway"
    # the day of the champion's tables, with an hour: the same tables, made again
    again = {"date": "2026-03-05T03:00"}
    assert published(config_of(graph, {**GOOD, "epochs": 13}, publish=again)).promoted
    same_day = published(config_of(graph, {**BAD, "epochs": 2}, publish={"date": "2026-03-05"}))
    assert "stays: its tables" not in same_day.reason
    # without a date nothing is known of its tables
    assert "on the same targets" in published(config_of(graph, {**GOOD, "epochs": 14})).reason


def widen(folder: Path) -> None:
    table = pq.read_table(folder / "nodes.parquet")
    x = to_matrix(table["x"])
    pq.write_table(table.set_column(1, "x", from_matrix(np.c_[x, x[:, :1]])), folder / "nodes.parquet")


@pytest.mark.parametrize("choice", ["keep", "promote"])
def test_a_champion_that_cannot_read_the_graph_is_left_to_the_config(graph: Path, choice: str) -> None:
    published(config_of(graph))
    widen(graph)
    result = published(config_of(graph, publish={"incomparable": choice}))
    assert result.promoted == (choice == "promote")
    assert result.in_service == (2 if choice == "promote" else 1)
    assert "feature width is 6, the model was trained on 5" in result.reason
    assert not result.champion
    if choice == "keep":
        assert "gnnflow models promote small 2" in result.reason


def test_a_champion_that_reaches_further_than_the_neighbourhoods_cannot_be_compared(graph: Path) -> None:
    published(config_of(graph, model={"kind": "gcn", "layers": 2, "hidden": 8}))
    shallow = published(config_of(graph))
    assert not shallow.promoted
    assert "2 layers, and this run's neighbourhoods have 1 hops" in shallow.reason
    assert registry.read_aliases(str(graph / "runs"), "small").candidate == 2


def test_a_champion_of_another_format_cannot_be_compared(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(saved, "FORMAT", 0)
        pipeline.run_quietly(config_of(graph))
    published(config_of(graph))
    result = published(config_of(graph, {"epochs": 3}))
    assert not result.promoted
    assert "model.json: is of format 0, but this version of gnnflow reads format 1" in result.reason


def test_a_shallower_champion_can_be_compared(graph: Path) -> None:
    sampling = {"sampling": {"kind": "uniform", "fanout": [4]}}
    first = published(config_of(graph, neighbors=sampling))
    deeper = config_of(
        graph,
        BAD,
        model={"kind": "gcn", "layers": 2, "hidden": 8},
        neighbors={"sampling": {"kind": "uniform", "fanout": [4, 2]}},
    )
    result = published(deeper)
    assert not result.promoted
    assert result.champion["test.accuracy"] == first.candidate["test.accuracy"]


def test_without_test_targets_nothing_is_compared(graph: Path) -> None:
    published(config_of(graph))
    table = pq.read_table(graph / "nodes.parquet")
    split = [None if held == "test" else held for held in table["split"].to_pylist()]
    pq.write_table(table.set_column(3, "split", [split]), graph / "nodes.parquet")
    result = published(config_of(graph))
    assert not result.promoted
    assert "no target is in the test split" in result.reason


def test_a_metric_the_labels_do_not_define_is_refused(graph: Path) -> None:
    published(config_of(graph))
    table = pq.read_table(graph / "nodes.parquet")
    label = np.where(np.array(table["split"].to_pylist()) == "test", 0, table["label"].to_numpy())
    pq.write_table(table.set_column(2, "label", [label]), graph / "nodes.parquet")
    with pytest.raises(RegistryError, match=r"roc_auc is undefined.*one class only"):
        published(config_of(graph, publish={"metric": "roc_auc"}))


def test_stages_that_have_not_run_are_named(graph: Path) -> None:
    with pytest.raises(StorageError, match="stage ingest has not run"):
        publish.run(StageContext.of(config_of(graph)))


def test_stages_run_one_by_one_become_a_run(graph: Path) -> None:
    config = config_of(graph)
    for stage in stages_of(config):
        run_stage(StageContext.of(config), stage)
    result = publish.run(StageContext.of(config))
    assert result.promoted
    assert result.run == StageContext.of(config).run.uri


def test_the_command_line_publishes_shows_and_rolls_back(graph: Path) -> None:
    workspace = ["--workspace", str(graph / "runs")]
    for train in (BAD, GOOD):
        config = config_of(graph, train)
        pipeline.run_quietly(config)
        (graph / "config.yaml").write_text(config.model_dump_json())
        result = json.loads(run_cli(["publish", str(graph / "config.yaml"), "--json"]).out)
        assert result["promoted"]
    assert "champion" in run_cli(["models", "list", *workspace]).out.splitlines()[2]
    shown = json.loads(run_cli(["models", "show", "small", "champion", *workspace, "--json"]).out)
    assert (shown["version"], shown["run"]) == (2, result["run"])
    assert json.loads(run_cli(["models", "rollback", "small", *workspace, "--json"]).out)["champion"] == 1
    assert "version 2 of small is in service" in run_cli(["models", "promote", "small", "2", *workspace]).out
    scored = run_cli(["score", "small@champion", *workspace, "--json"])
    assert json.loads(scored.out)["version"] == 2
    told = run_cli(["models", "rollback", "small", *workspace]).out
    assert "These are older: version 2 scored" in told
    assert "`gnnflow score small@champion` scores the tables" in told
    refused = run_cli(["models", "show", "small", "3", *workspace])
    assert refused.code == 2
    assert "Versions: 1, 2" in refused.err


def test_a_version_whose_record_is_gone_hides_no_other(graph: Path) -> None:
    published(config_of(graph, BAD))
    published(config_of(graph))
    workspace = ["--workspace", str(graph / "runs")]
    (graph / "runs/registry/small/1/version.json").unlink()
    listed = run_cli(["models", "list", *workspace])
    assert (listed.code, len(listed.out.splitlines())) == (2, 2)
    assert listed.out.splitlines()[1].split()[:3] == ["small", "2", "champion"]
    assert "registry/small/1/version.json: is missing" in listed.err
    (document,) = map(json.loads, run_cli(["models", "list", *workspace, "--json"]).out.splitlines())
    assert document["error"]["where"].endswith("registry/small/1/version.json")
