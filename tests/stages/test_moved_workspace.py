"""A workspace means the same wherever it is: moved, copied, or reached through a link."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from gnnflow import registry
from gnnflow.stages import guards, pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.costs import learn_costs
from gnnflow.stages.pairs import score_pairs
from gnnflow.stages.report import report_of
from gnnflow.storage.run_folder import latest_run
from gnnflow.storage.workspace import Workspace
from tests.command_line import run_cli
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.config import Config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A config whose run was published into the workspace `runs`."""
    write_graph(tmp_path)
    config = graph_config(tmp_path, graph={"partitions": 8}, train={"epochs": 2, "batch_size": 16, "threads": 1})
    pipeline.run_quietly(config)
    publish.run(StageContext.of(config))
    return config


def at(config: Config, workspace: Path) -> Config:
    return config.model_copy(update={"workspace": str(workspace)})


def use(config: Config) -> None:
    """Do all that reads a finished run and its version, none of which may make anything again or look elsewhere."""
    context, home = StageContext.of(config), config.workspace
    found = pipeline.run(context)
    assert (found.reused, found.uri.startswith(home)) == (True, True)
    guarded = guards.check(context)
    assert all(place.startswith(home) for place in (guarded.previous, *guarded.reads))
    published = publish.run(context)
    assert (published.version, published.in_service, published.run) == (1, 1, found.uri)
    scored = score.run(context)
    assert (scored.reused, scored.predictions.startswith(home)) == (True, True)
    version = registry.read_version(home, "small", 1)
    assert all(artifact.startswith(home) for artifact in version.artifacts.values())
    learn_costs("small", workspace=home)
    assert report_of("small", workspace=home).startswith(home)


def test_a_moved_workspace_is_whole_where_it_is_now(tmp_path: Path, config: Config) -> None:
    shutil.move(tmp_path / "runs", tmp_path / "elsewhere")
    use(at(config, tmp_path / "elsewhere"))


def test_a_copy_reads_nothing_of_the_original(tmp_path: Path, config: Config) -> None:
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    for file in (tmp_path / "runs").rglob("*.parquet"):
        file.write_bytes(b"damaged since")
    use(at(config, tmp_path / "copy"))
    assert "is in service" in run_cli(["models", "promote", "small", "1", "--workspace", str(tmp_path / "copy")]).out


def test_what_a_workspace_has_not_stays_where_it_was_recorded(tmp_path: Path, config: Config) -> None:
    shutil.copytree(tmp_path / "runs" / "registry", tmp_path / "copy" / "registry")
    version = registry.read_version(str(tmp_path / "copy"), "small", 1)
    assert version.run == latest_run(Workspace.at(config.workspace), "small")


@pytest.mark.slow
def test_what_a_workspace_has_not_whole_stays_where_it_was_recorded(tmp_path: Path, config: Config) -> None:
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    for listing in (tmp_path / "copy").glob("[ar]*/*/*/*.json"):  # as a run leaves it that is cut short
        if listing.name in {"manifest.json", "run.json"}:
            listing.unlink()
    version = registry.read_version(str(tmp_path / "copy"), "small", 1)
    assert all(place.startswith(f"{config.workspace}/") for place in (version.run, *version.artifacts.values()))


@pytest.mark.slow
def test_a_run_reached_through_a_link_is_the_version_it_was(tmp_path: Path, config: Config) -> None:
    second = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 3})})
    pipeline.run_quietly(second)
    assert publish.run(StageContext.of(second)).version == 2
    registry.promote(config.workspace, "small", 2)
    registry.rollback(config.workspace, "small")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    context = StageContext.of(at(second, tmp_path / "link"))
    assert not publish.is_quick(context)
    result = publish.run(context)
    assert (result.version, result.in_service) == (2, 1)
    assert registry.published_versions(config.workspace, "small") == (1, 2)
    use(at(config, tmp_path / "link"))


@pytest.mark.slow
def test_embeddings_of_a_moved_run_score_pairs(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, task={"kind": "link"}, train={"epochs": 1, "metric": "mrr"})
    pipeline.run(StageContext.of(config))
    shutil.move(tmp_path / "runs", tmp_path / "elsewhere")
    entry = score_pairs(
        "small",
        str(tmp_path / "edges.parquet"),
        out=str(tmp_path / "pairs.parquet"),
        workspace=str(tmp_path / "elsewhere"),
    )
    assert entry.name.endswith("pairs.parquet")
