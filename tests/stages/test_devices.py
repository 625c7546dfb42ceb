"""A card that a config names and the machine has not is refused before the first stage."""

from __future__ import annotations

import json

import pytest
import torch

from gnnflow.graph.errors import ConfigError
from gnnflow.kernels.device import CPU, described, find_device
from gnnflow.stages import pipeline
from tests.small_graphs import graph_config, write_graph

without_card = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
QUICK = {"train": {"epochs": 2}, "infer": {"parity_samples": 8}}


@without_card
@pytest.mark.parametrize(("section", "key"), [("train", "train.device"), ("infer", "infer.device")])
def test_a_card_that_is_not_there_is_refused_before_the_first_stage(section, key, tmp_path):
    write_graph(tmp_path)
    sections = {**QUICK, section: {**QUICK[section], "device": "cuda"}}
    with pytest.raises(ConfigError, match=r"cuda is not allowed on .*: torch .*") as told:
        pipeline.run_quietly(graph_config(tmp_path, **sections))
    assert told.value.where == key
    assert "cpu or auto" in told.value.fix
    assert not (tmp_path / "runs" / "artifacts").exists()


@without_card
def test_a_card_on_the_workers_of_a_cluster_elsewhere_is_theirs_to_find(tmp_path):
    from gnnflow.stages.check import _check_devices

    write_graph(tmp_path)
    elsewhere = {"cluster": {"kind": "address", "address": "tcp://scheduler:8786"}}
    ranks = graph_config(tmp_path, train={"device": "cuda", "workers": 2}, **elsewhere)
    _check_devices(ranks, ["train", "infer"])
    alone = graph_config(tmp_path, train={"device": "cuda"}, **elsewhere)
    with pytest.raises(ConfigError, match="cuda is not allowed"):
        _check_devices(alone, ["train"])
    _check_devices(alone, ["infer"])


@without_card
def test_auto_computes_on_the_cpu_where_there_is_no_card_as_another_result_of_the_same_bytes(tmp_path):
    write_graph(tmp_path)
    plain = pipeline.run_quietly(graph_config(tmp_path, **QUICK))
    auto = pipeline.run_quietly(graph_config(tmp_path, **{**QUICK, "train": {**QUICK["train"], "device": "auto"}}))
    assert auto.uri != plain.uri
    assert auto.stages["flat"].reused
    for stage in ("train", "infer"):
        assert auto.stages[stage].artifact != plain.stages[stage].artifact
        assert auto.stages[stage].digest == plain.stages[stage].digest
    manifest = json.loads((tmp_path / auto.stages["train"].artifact / "manifest.json").read_text())
    assert manifest["facts"]["device"] == ""


def test_the_device_is_what_the_config_says():
    assert find_device("cpu", where="train.device") == CPU
    assert described(CPU) == ""
    if not torch.cuda.is_available():
        assert find_device("auto", where="train.device", number=3) == CPU
