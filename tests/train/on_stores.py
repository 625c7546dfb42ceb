"""Training on graph stores in memory: configs of small graphs, their jobs, and runs that are interrupted."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from gnnflow.config import Config, config_from_dict
from gnnflow.config.stages import stages_of
from gnnflow.layers.model import ModelSpec
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs, redrawn_walks
from gnnflow.train.job import JobFiles, StoredGraph, TrainJob
from gnnflow.train.source import OpenSource
from gnnflow.train.trainer import train
from tests.small_graphs import graph_config
from tests.typed_graphs import typed_tables, write_tables


def config_of(folder: Path, which: str, /, **sections: Any) -> Config:
    """Return a config for a `plain` graph that is written in the folder, or for a `typed` one, which is written now."""
    graph = sections.pop("graph", {})
    if which == "plain":
        return graph_config(folder, **sections, graph={"weight": "weight", "edge_features": ["amount"], **graph})
    content = {"name": "typed", "workspace": str(folder / "runs"), "cluster": {"kind": "synchronous"}}
    tables = write_tables(folder / "typed", typed_tables()) | {"weight": "weight"} | graph
    return config_from_dict({**content, "graph": tables, "model": {"kind": "rgcn", "hidden": 8}, **sections})


def context_of(config: Config, *stages: str) -> StageContext:
    context = StageContext.of(config)
    for stage in stages:
        make_artifact(context, stage)
    return context


def job_of(config: Config, *, uri: str = "") -> TrainJob:
    stages = [stage for stage in ("ingest", "partition", "select") if stage in stages_of(config)]
    neighbors = neighbors_of(context_of(config, *stages))
    graph = neighbors.store.facts
    return TrainJob(
        model=ModelSpec(config.model, model_inputs(graph, config.task)),
        graph=StoredGraph(neighbors, redrawn_walks(config)),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=config.seed,
        task=config.task,
        files=JobFiles(uri),
    )


def resumes_to_the_same_weights(config: Config, uri: str, *, open_source: OpenSource) -> None:
    """Train with a checkpoint per step, interrupted every five steps, and compare with a run that is not."""
    undisturbed = train(job_of(config), progress=Silent())
    job, resumed, attempts = job_of(config, uri=uri), None, 0
    while resumed is None:
        attempts += 1
        try:
            resumed = train(job, progress=Silent(), open_source=Unplugged(open_source))
        except ConnectionError:
            continue
    assert attempts > 2
    assert resumed.weights == undisturbed.weights


class Unplugged:
    """Opens a source that has five steps and then the plug is pulled."""

    def __init__(self, open_source: OpenSource) -> None:
        self.open_source = open_source

    def __call__(self, job: TrainJob, *, edges: bool) -> Any:
        return _Unplugged(self.open_source(job, edges=edges))


class _Unplugged:
    def __init__(self, source: Any) -> None:
        self.source = source
        self.left = 5

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __enter__(self) -> Any:
        self.source.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.source.__exit__(*raised)

    def steps(self, epoch: int, *, since: int) -> Any:
        steps = self.source.steps(epoch, since=since)
        for step in islice(steps, self.left):
            self.left -= 1
            yield step
        if not self.left and next(steps, None) is not None:
            raise ConnectionError("the plug was pulled")
