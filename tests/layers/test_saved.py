"""A saved model comes back as it was, and a file that is not one says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.graph.errors import ConfigError, StorageError
from gnnflow.graph.labels import LabelUnit
from gnnflow.layers import ModelInputs, TypedInputs, TypeInputs, build_model
from gnnflow.layers.saved import (
    ModelFormatError,
    decode_weights,
    encode_weights,
    load_model,
    read_description,
    save_model,
)

INPUTS = ModelInputs(feature_width=5, num_outputs=3, attribute_width=2)
KINDS = {
    "gcn": {"kind": "gcn", "head": "jumping"},
    "gat": {"kind": "gat", "heads": 2, "attention_dropout": 0.25},
    "gat_e": {"kind": "gat_e", "output_heads": 2},
    "own": {"kind": "tests.contracts.own_layers:Gated", "encoder": "linear"},
    "joined": {"kind": "gin", "norm": "layer", "residual": True},
    "bases": {"kind": "rgcn", "bases": 2},
    "hgt": {"kind": "hgt", "hidden": 8, "heads": 2},
}
TYPED = TypedInputs((TypeInputs("a", 5), TypeInputs("b", 7, sparse=True), TypeInputs("c")), ("a__to__b", "b__of__a"))


def saved(folder, keys=KINDS["gat"], inputs=INPUTS):
    model = build_model(model_from_dict(keys), inputs)
    save_model(str(folder), model.config, model.inputs, weights=encode_weights(model.state_dict()))
    return model


@pytest.mark.parametrize("keys", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "inputs",
    [INPUTS, replace(INPUTS, typed=TYPED), replace(INPUTS, unit=LabelUnit(3e5, 0.1))],
    ids=["", "typed", "of numbers"],
)
def test_a_model_comes_back_as_it_was_saved(tmp_path: Path, keys, inputs) -> None:
    model, again = saved(tmp_path, keys, inputs), load_model(str(tmp_path))
    assert (again.config, again.inputs) == (model.config, model.inputs)
    assert not again.training
    assert encode_weights(again.state_dict()) == encode_weights(model.state_dict())
    assert read_description(str(tmp_path)).config == model.config


def test_a_model_without_norm_and_residual_is_described_as_before_there_were_any(tmp_path: Path) -> None:
    saved(tmp_path, KINDS["gcn"])
    content = (tmp_path / "model.json").read_text()
    assert "norm" not in content
    assert "residual" not in content
    assert "typed" not in content
    assert "across" not in content
    assert (load_model(str(tmp_path)).config.norm, load_model(str(tmp_path)).config.residual) == ("none", False)


def test_files_are_read_by_the_function_that_is_given(tmp_path: Path) -> None:
    model = saved(tmp_path)
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(held) == {"model.safetensors", "model.json"}
    again = load_model("memory://nowhere", read=held.__getitem__)
    assert encode_weights(again.state_dict()) == encode_weights(model.state_dict())


@pytest.mark.parametrize("number", [None, 0, 99])
def test_a_model_of_another_format_says_to_train_again(tmp_path: Path, number) -> None:
    saved(tmp_path)
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": number}))
    stored = "has no format number" if number is None else f"is of format {number}"
    expected = rf"model\.json: {stored}, but this .* reads format 1\. Train again.*publish"
    with pytest.raises(ModelFormatError, match=expected):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"format": 1}',
        b'{"format": 1, "model": {"kind": "gcn", "heads": 2}, "inputs": {"feature_width": 5, "num_outputs": 3}}',
        b'{"format": 1, "model": {"kind": "gcn"}, "inputs": {"feature_width": 5}}',
    ],
)
def test_a_damaged_description_says_so(tmp_path: Path, content: bytes) -> None:
    saved(tmp_path)
    (tmp_path / "model.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"model\.json: not a model description .*The file is damaged\. Train again"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("keep", [0, 5, 40, -3])
def test_damaged_weights_say_so(tmp_path: Path, keep: int) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StorageError, match=r"model\.safetensors: not a weights file .*damaged\. Train again"):
        load_model(str(tmp_path))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    weights = (tmp_path / "model.safetensors").read_bytes()
    saved(tmp_path, KINDS["gcn"])
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(
        StorageError, match=r"model\.safetensors: does not hold the weights of the model that model\.json"
    ):
        load_model(str(tmp_path))


def test_weights_come_back_digit_for_digit() -> None:
    assert torch.equal(decode_weights(encode_weights({"w": torch.arange(4.0)}))["w"], torch.arange(4.0))


def test_a_saved_model_imports_no_module_that_the_place_does_not_allow(tmp_path: Path, monkeypatch) -> None:
    saved(tmp_path, KINDS["gat"])
    path = tmp_path / "model.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "model": {**KINDS["own"], "layers": 2}}))
    monkeypatch.setenv("GNNFLOW_SERVICE", "1")
    with pytest.raises(ConfigError, match="may not be imported here"):
        load_model(str(tmp_path))
