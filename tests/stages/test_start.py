"""Training starts from a published model, and a run knows which one that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gnnflow import registry
from gnnflow.config import config_from_dict
from gnnflow.graph.errors import ConfigError, LayerError, RegistryError, StorageError
from gnnflow.layers.saved import load_model
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.storage.run_folder import read_run
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph
from tests.stages.published import run_published

MODEL = {"kind": "gcn", "hidden": 4, "dropout": 0.0}


def context_of(
    folder: Path, *, model: dict[str, Any] = MODEL, graph: dict[str, Any] | None = None, **train: Any
) -> StageContext:
    config = graph_config(
        folder,
        graph={"partitions": 2, **(graph or {})},
        model=model,
        train={"epochs": 3, "batch_size": 16, "lr": 0.05, **train},
        publish={"incomparable": "promote"},
    )
    return StageContext.of(config, progress=Heard())


def published(folder: Path, **keys: Any) -> StageContext:
    return run_published(context_of(folder, **keys))


@pytest.fixture
def first(tmp_path: Path) -> StageContext:
    write_graph(tmp_path)
    return published(tmp_path)


def test_training_goes_on_from_the_published_weights(tmp_path: Path, first: StageContext) -> None:
    contexts = [context_of(tmp_path, start=start, epochs=1, lr=1e-6) for start in ("small/1", None)]
    for context in contexts:
        pipeline.run(context)
    theirs, ours, fresh = (load_model(each.artifact("train").uri).state_dict() for each in (first, *contexts))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
    assert not all(torch.allclose(fresh[name], theirs[name], atol=1e-4) for name in theirs)
    assert any("train: starts from the weights of small/1 (digest " in text for text in contexts[0].progress.messages)


def test_what_a_start_holds_is_in_the_fingerprint_and_where_it_lies_is_not(tmp_path: Path, first: StageContext) -> None:
    named = [first.run.uri, first.artifact("train").uri, f"{tmp_path}/runs/registry/small/1", "small", "small/1"]
    found = {context_of(tmp_path, start=start, epochs=4).run.fingerprints["train"] for start in named}
    assert len(found) == 1
    assert context_of(tmp_path, epochs=4).run.fingerprints["train"] not in found
    published(tmp_path, epochs=5, lr=0.1)
    assert context_of(tmp_path, start="small/2", epochs=4).run.fingerprints["train"] not in found
    others = context_of(tmp_path, start="small/1").run.fingerprints
    assert {stage for stage in others if others[stage] != first.run.fingerprints[stage]} == {"train", "infer"}


def test_a_run_records_the_version_that_an_alias_stood_for(tmp_path: Path, first: StageContext) -> None:
    context = context_of(tmp_path, start="small/champion", epochs=1)
    pipeline.run(context)
    assert read_run(context.run.uri)["config"]["train"]["start"] == "small/1"


def test_a_run_that_became_the_champion_it_started_from_is_still_that_run(tmp_path: Path, first: StageContext) -> None:
    context = context_of(tmp_path, start="small", epochs=6)
    pipeline.run(context)
    assert publish.run(context).version == 2
    registry.promote(context.config.workspace, "small", 2)
    again = context_of(tmp_path, start="small", epochs=6)
    assert again.run == context.run
    assert publish.run(again).version == 2
    assert score.run(again).reused
    # Other tables make another run, and that one starts from the new champion.
    write_graph(tmp_path, seed=1)
    assert context_of(tmp_path, start="small", epochs=6).config.train.start == "small/2"


@pytest.mark.slow
def test_a_head_of_another_width_starts_fresh_and_the_rest_does_not(tmp_path: Path, first: StageContext) -> None:
    tables = other_tables(tmp_path / "two")
    nodes = pq.read_table(tables["nodes"])
    sides = pa.array([row // 4 % 2 for row in range(len(nodes))])
    pq.write_table(nodes.append_column("side", sides), tables["nodes"])
    context = context_of(tmp_path, graph={**tables, "label": "side"}, start="small", epochs=1)
    pipeline.run(context)
    assert any("another width there and starts from the seed" in text for text in context.progress.messages)


def other_tables(folder: Path, **shape: int) -> dict[str, str]:
    write_graph(folder, **shape)
    return {name: str(folder / f"{name}.parquet") for name in ("nodes", "edges")}


@pytest.mark.slow
def test_a_head_of_other_classes_starts_fresh_and_the_rest_does_not(tmp_path: Path) -> None:
    write_graph(tmp_path)
    table = pq.read_table(tmp_path / "nodes.parquet")
    words = pa.array(["abc"[held % 3] if held is not None else None for held in table["label"].to_pylist()])
    pq.write_table(table.set_column(table.column_names.index("label"), "label", words), tmp_path / "nodes.parquet")
    first = published(tmp_path, graph={"classes": ["a", "b", "c"]})
    theirs = load_model(first.artifact("train").uri).state_dict()
    for epochs, start in enumerate(("small/1", first.run.uri), 1):  # else the second one's run is that of the first
        same, turned = (
            context_of(tmp_path, graph={"classes": names}, start=start, epochs=epochs, lr=1e-6)
            for names in (["a", "b", "c"], ["b", "a", "c"])
        )
        kept = []
        for context in (same, turned):
            pipeline.run(context)
            ours = load_model(context.artifact("train").uri).state_dict()
            kept.append({name for name, held in ours.items() if torch.allclose(held, theirs[name], atol=1e-4)})
        assert kept[0] == theirs.keys()
        assert kept[1] == {name for name in theirs if name.startswith("layers.0.")}
        assert any("knows other classes there and starts from the seed" in each for each in turned.progress.messages)
        assert not any("other classes" in each for each in same.progress.messages)


@pytest.mark.table(3)
@pytest.mark.parametrize(
    ("normalize", "told"),
    [
        ("none", None),
        ("row", "graph.normalize is row, and {start} learned with none."),
        ("standard", "graph.normalize is standard, and {start} learned with none."),
    ],
)
def test_columns_that_are_scaled_otherwise_than_the_model_learned_are_told(
    tmp_path: Path, first: StageContext, normalize: str, told: str | None
) -> None:
    for epochs, start in enumerate(("small/1", first.run.uri), 1):  # else the second one's run is that of the first
        context = context_of(tmp_path, graph={"normalize": normalize}, start=start, epochs=epochs)
        pipeline.run(context)
        found = [text.removeprefix("train: ") for text in context.progress.messages if "train.start" in text]
        assert found == ([f"train.start: {told.format(start=start)}"] if told else [])


def test_a_start_that_is_not_there_is_refused(tmp_path: Path, first: StageContext) -> None:
    for start, error, message in (
        ("other", RegistryError, "no model 'other'. Models: small"),
        ("small/7", RegistryError, "'small' has no version 7. Versions: 1"),
        ("small/candidate", RegistryError, "'small' has no version candidate"),
        ("./nowhere", ConfigError, r"train\.start: there is no trained model at './nowhere'. Name a published model"),
        (first.artifact("ingest").uri, ConfigError, r"there is no trained model at '.*/ingest/"),
    ):
        with pytest.raises(error, match=message):
            context_of(tmp_path, start=start)


def test_another_architecture_is_refused_before_the_first_stage(tmp_path: Path, first: StageContext) -> None:
    tables = other_tables(tmp_path / "new", width=7)
    context = context_of(tmp_path, model={**MODEL, "hidden": 8}, graph=tables, start="small")
    with pytest.raises(
        LayerError, match=r"train\.start: 'small/1' is a model of another .*model\.hidden is 8, there 4"
    ):
        perform(context, "run")
    assert not Path(context.run.artifact("ingest")).exists()
    context = context_of(tmp_path, graph=tables, start="small")
    with pytest.raises(LayerError, match=r"another architecture: feature width is 7, there 5\. Set the keys of model"):
        perform(context, "run")


def test_damaged_weights_are_refused(tmp_path: Path, first: StageContext) -> None:
    weights = tmp_path / "runs" / "registry" / "small" / "1" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(StorageError, match=r"model\.safetensors: is damaged: its sha256 is"):
        perform(context_of(tmp_path, start="small/1", epochs=2), "run")


def test_a_service_starts_from_allowed_places_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = json.loads(graph_config(tmp_path, train={"start": "http://elsewhere/run"}).model_dump_json())
    monkeypatch.setenv("GNNFLOW_SERVICE", "1")
    with pytest.raises(ConfigError, match=r"train\.start: 'http://elsewhere/run' is not allowed here"):
        config_from_dict(raw)
    raw["train"]["start"] = "./runs/x"
    assert config_from_dict(raw).train.start == str(Path("runs/x").absolute())
    raw["train"]["start"] = "small/3"
    assert config_from_dict(raw).train.start == "small/3"
