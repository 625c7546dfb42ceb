"""A run that stalls until another takes over its work changes nothing that the other has committed, and uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import StorageError
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.storage import lease
from gnnflow.storage.filesystem import list_names
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import damaged_files
from gnnflow.storage.verified import check_file
from gnnflow.storage.writing import remove_tree
from gnnflow.train import trainer
from tests.s3 import local_bucket
from tests.small_graphs import graph_config, write_graph

# Where the first run stalls: a function as it is called there, and how many of its calls come before.
MOMENTS = {
    "before training": ("gnnflow.stages.train._train_model", 0),
    "before the model is written": ("gnnflow.layers.saved.save_model", 0),
    "between the files of the model": ("gnnflow.layers.saved.write_atomic", 1),
    "before the attempt is whole": ("gnnflow.stages.running.commit", 2),  # after those of ingest and flat
    "before the claim": ("gnnflow.stages.running.claim", 0),
    "after the claim": ("gnnflow.storage.manifest.read_manifest", 0),
    "before the first file is given": ("gnnflow.storage.manifest.write_atomic", 0),
    "between the files that are given": ("gnnflow.storage.manifest.write_atomic", 1),
    "before the commit": ("gnnflow.storage.manifest.commit", 0),
    "after the commit": ("gnnflow.stages.running._check_inputs", 2),
    "before scoring": ("gnnflow.stages.infer.score_graph", 0),
    "before scores are committed": ("gnnflow.stages.running.commit", 3),
    "before the report": ("gnnflow.stages.pipeline.write_report", 0),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stalled")
    write_graph(folder)
    return folder


@pytest.fixture(params=["local", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.slow])])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with local_bucket() if request.param == "s3" else nullcontext(str(tmp_path)) as place:
        yield f"{place}/runs"


@pytest.fixture(scope="module")
def seeds() -> Iterator[dict[int, int]]:
    """What is added to the seed of trainings, by thread: they give other weights under the same fingerprint."""
    added: dict[int, int] = {}
    train = trainer.train

    def differing(job: Any, **keys: Any) -> Any:
        return train(replace(job, seed=job.seed + added.get(threading.get_ident(), 0)), **keys)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer, "train", differing)
        yield added


@pytest.fixture(scope="module")
def predictions(graph: Path, seeds: dict[int, int]) -> dict[str, str]:
    """The digest of the predictions of each of two models, which the first thread and others train, by the model's."""
    found = {}
    for seed in (0, 1):  # the main thread goes on with the second
        seeds[threading.get_ident()] = seed
        model, scores = scored_by(config_of(graph, str(graph / f"alone-{seed}")))
        found[model] = scores
    assert len(set(found.values())) == 2
    return found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is taken over soon, and is renewed by nobody: the first run stalls, and others do not take long."""
    monkeypatch.setattr(lease, "_EXPIRE_SECONDS", 0.1)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 3600.0)


def config_of(graph: Path, workspace: str) -> Config:
    return graph_config(
        graph, workspace=workspace, graph={"partitions": 1}, train={"epochs": 2}, infer={"parity_samples": 5}
    )


def stall(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> tuple[threading.Event, threading.Event]:
    """Have the thread named `first` wait at a call of a function, once; returns that it does, and what ends it."""
    stalled, awake = threading.Event(), threading.Event()
    module, _, attribute = name.rpartition(".")
    function: Callable[..., Any] = getattr(import_module(module), attribute)
    left = [calls]

    def waiting(*args: Any, **keys: Any) -> Any:
        if threading.current_thread().name == "first" and not stalled.is_set():
            left[0] -= 1
            if left[0] < 0:
                stalled.set()
                assert awake.wait(60)
        return function(*args, **keys)

    monkeypatch.setattr(name, waiting)
    return stalled, awake


def scored_by(config: Config) -> tuple[str, str]:
    """Return the digests of the model and of its predictions, all files of which are as they were committed."""
    stages = pipeline.run(StageContext.of(config)).stages
    for stage in stages.values():
        for file in read_manifest(stage.artifact).files:
            check_file(stage.artifact, file.name)
    return stages["train"].digest, stages["infer"].digest


@pytest.mark.table(4)
@pytest.mark.parametrize("moment", MOMENTS)
def test_one_model_and_its_predictions_are_committed(
    graph: Path,
    workspace: str,
    moment: str,
    predictions: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = config_of(graph, workspace)
    stalled, awake = stall(monkeypatch, *MOMENTS[moment])
    ends: list[Any] = []

    def run_first() -> None:
        try:
            ends.append(pipeline.run(StageContext.of(config)))
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            ends.append(error)

    first = threading.Thread(target=run_first, name="first")
    first.start()
    assert stalled.wait(60)
    second = pipeline.run(StageContext.of(config))
    awake.set()
    first.join()
    assert isinstance(ends[0], pipeline.RunResult), ends
    found = {(each.stages["train"].digest, each.stages["infer"].digest) for each in (ends[0], second)}
    assert found == {scored_by(config)}
    ((model, scores),) = found
    assert predictions[model] == scores
    assert damaged_files(second.uri) == ()
    assert set(list_names(second.stages["train"].artifact)) == {"manifest.json", "model.json", "model.safetensors"}


def test_scores_of_another_model_are_not_taken_for_those_of_the_one_that_is_there(
    graph: Path, tmp_path: Path, seeds: dict[int, int]
) -> None:
    config = config_of(graph, str(tmp_path / "runs"))
    seeds[threading.get_ident()] = 0
    artifact = pipeline.run(StageContext.of(config)).stages["train"].artifact
    remove_tree(artifact)
    seeds[threading.get_ident()] = 1
    with pytest.raises(StorageError, match=r"another result of train .*Delete this folder and run again"):
        perform(StageContext.of(config), "run")
