"""Every kind of neighbours as stage `select`: the same bytes for any workers and kills, and what its facts say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.config import Config
from gnnflow.datasets.typed_payments import write_typed_payments
from gnnflow.graph.facts import SelectFacts
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from tests.conftest import ClusterOf
from tests.killing import KillAWorkerInEveryRound
from tests.small_graphs import graph_config

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.progress import Progress

SECTIONS: dict[str, dict[str, Any]] = {
    "walks": {"walks": 6, "top_k": 4},
    "metapaths": {"paths": [["account", "device", "account"], ["merchant", "account", "merchant"]], "max_instances": 5},
    "anchors": {"copies": 2, "distance": 2},
    "rings": {"distance": 2, "max_nodes": 6},
    "tests.neighbors.own_functions:everyone_before": {},
}
pytestmark = pytest.mark.parametrize("kind", SECTIONS)


@pytest.fixture
def graph(tmp_path: Path) -> dict[str, Any]:
    section = write_typed_payments(str(tmp_path), num_nodes=150, num_edges=1000)
    return {**section, "reverse_edges": True}


def configured(folder: Path, graph: dict[str, Any], kind: str, workspace: str, **sections: Any) -> Config:
    neighbors = {"kind": kind, **SECTIONS[kind]}
    return graph_config(folder, workspace=str(folder / workspace), graph=graph, neighbors=neighbors, **sections)


def selected(config: Config, scheduler: Scheduler | None = None, progress: Progress | None = None) -> ArtifactResult:
    context = StageContext.of(config, scheduler, progress)
    make_artifact(context, "ingest")
    return make_artifact(context, "select")


@pytest.mark.table(4)
def test_facts_say_what_the_relations_are(tmp_path: Path, graph: dict[str, Any], kind: str) -> None:
    made = selected(configured(tmp_path, graph, kind, "runs"))
    facts = made.facts(SelectFacts)
    assert [each.name for each in facts.relations] == sorted(each.name for each in facts.relations)
    assert facts.num_edges == made.manifest.rows_out == sum(each.num_edges for each in facts.relations) > 0
    assert facts.bytes_ratio > 0
    assert facts.kind == kind


def test_another_seed_or_key_is_another_selection(tmp_path: Path, graph: dict[str, Any], kind: str) -> None:
    config = configured(tmp_path, graph, kind, "runs")
    of = {"first": StageContext.of(config), "seed": StageContext.of(config.model_copy(update={"seed": 1}))}
    model = config.model.model_copy(update={"hidden": 3})
    of["model"] = StageContext.of(config.model_copy(update={"model": model}))
    fingerprints = {name: context.run.fingerprints["select"] for name, context in of.items()}
    assert fingerprints["first"] == fingerprints["model"] != fingerprints["seed"]


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [1, 2, 4], scope="session")
def test_worker_count_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], kind: str, workers: int, cluster_of: ClusterOf
) -> None:
    undisturbed = selected(configured(tmp_path, graph, kind, "undisturbed"))
    cluster = {"kind": "local", "workers": workers, "memory_limit": "2GiB"}
    config = configured(tmp_path, graph, kind, f"workers-{workers}", cluster=cluster)
    assert selected(config, cluster_of(config.cluster)).digest == undisturbed.digest


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("workers", [2], scope="session")
def test_killing_a_worker_in_every_round_changes_no_byte(
    tmp_path: Path, graph: dict[str, Any], kind: str, workers: int, cluster_of: ClusterOf
) -> None:
    undisturbed = selected(configured(tmp_path, graph, kind, "undisturbed"))
    cluster = {"kind": "local", "workers": workers, "memory_limit": "2GiB"}
    config = configured(tmp_path, graph, kind, "killed", cluster=cluster)
    scheduler = cluster_of(config.cluster)
    make_artifact(StageContext.of(config, scheduler), "ingest")
    progress = KillAWorkerInEveryRound(scheduler)
    assert selected(config, scheduler, progress).digest == undisturbed.digest
    assert "degrees" in progress.killed
