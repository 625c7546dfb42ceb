"""A matrix becomes runs that can be told apart, share what is equal, and are refused one by one."""

from __future__ import annotations

from typing import Any

import pytest

from gnnflow.config import load_config
from gnnflow.config.experiments import read_experiment
from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError
from tests.conftest import REPOSITORY

PAYMENTS = REPOSITORY / "configs" / "experiments" / "payments.yaml"


def values(matrix: Any, **more: Any) -> dict[str, Any]:
    return {"name": "tiny", "graph": {"nodes": "n.parquet", "edges": "e.parquet"}, "matrix": matrix, **more}


def test_runs_share_the_stages_whose_keys_are_equal():
    gcn, sage = read_experiment(values({"model.kind": ["gcn", "sage"]}), source="layers.yaml").variants
    assert [stage for stage in gcn.stages if gcn.key(stage) == sage.key(stage)] == ["ingest", "select", "flat"]


def test_a_map_in_the_matrix_sets_keys_that_only_its_kind_has():
    matrix = {"model": [{"kind": "gcn"}, {"kind": "gat", "heads": 4}], "seed": [0, 1]}
    variants = read_experiment(values(matrix, model={"hidden": 16}), source="heads.yaml").variants
    assert [run.label for run in variants] == [
        "kind=gcn seed=0",
        "kind=gcn seed=1",
        "kind=gat heads=4 seed=0",
        "kind=gat heads=4 seed=1",
    ]
    assert variants[2].values["model"] == {"hidden": 16, "kind": "gat", "heads": 4}
    assert "matrix" not in variants[2].values
    assert {run.config.model.hidden for run in variants} == {16}
    assert variants[2].config.model.heads == 4


def test_keys_that_end_alike_are_named_in_full():
    matrix = {"model.kind": ["rgcn"], "neighbors.kind": ["direct"], "train.lr": [0.1]}
    (run,) = read_experiment(values(matrix), source="kinds.yaml").variants
    assert run.label == "model.kind=rgcn neighbors.kind=direct lr=0.1"


def test_the_payments_experiment_names_each_of_its_runs():
    raw = read_yaml(PAYMENTS.read_text(), source=str(PAYMENTS))
    labels = [run.label for run in read_experiment(raw, source=str(PAYMENTS)).variants]
    assert labels == ["kind=gcn seed=0", "kind=sage seed=0", "kind=gat_e heads=4 seed=0"]


@pytest.mark.parametrize(
    "matrix",
    [{"seed": [0, 0]}, {"model": [{"kind": "gcn"}, {"kind": "gcn"}]}, {"train": [{"lr": 0.1}, {}, {}]}],
)
def test_runs_that_cannot_be_told_apart_are_refused(matrix):
    with pytest.raises(ConfigError, match="matrix has two runs"):
        read_experiment(values(matrix), source="layers.yaml")


@pytest.mark.parametrize("matrix", [["gcn"], {"model.kind": "gcn"}, {"model.kind": []}, {"seed": list(range(101))}])
def test_a_matrix_that_is_none_is_refused(matrix):
    with pytest.raises(ConfigError, match="matrix"):
        read_experiment(values(matrix), source="layers.yaml")


def test_of_combinations_the_good_ones_are_kept_and_the_others_are_told():
    matrix = {"model.kind": ["gcn", "gcm"], "train.lr": [0.1, -1]}
    found = read_experiment(values(matrix), source="a.yaml", strict=False)
    assert [run.label for run in found.variants] == ["kind=gcn lr=0.1"]
    assert list(found.refused) == ["kind=gcn lr=-1", "kind=gcm lr=0.1", "kind=gcm lr=-1"]
    assert "train.lr" in str(found.refused["kind=gcn lr=-1"])
    with pytest.raises(ConfigError, match=r"train\.lr"):
        read_experiment(values(matrix), source="a.yaml")
    with pytest.raises(ConfigError, match="gcm"):
        read_experiment(values({"model.kind": ["gcm"]}), source="a.yaml", strict=False)


def test_overrides_and_workspace_hold_for_every_run():
    found = read_experiment(
        values({"seed": [0, 1]}), source="a.yaml", overrides=["train.lr=0.5"], workspace="elsewhere"
    )
    assert {(run.config.train.lr, run.config.workspace) for run in found.variants} == {(0.5, "elsewhere")}


@pytest.mark.parametrize("override", ["train.lr=0.5", "train={lr: 0.5}", "train.lr.x=1"])
def test_an_override_of_what_the_matrix_varies_is_refused(override):
    with pytest.raises(ConfigError, match=r"sets what the matrix varies \(train.lr\)"):
        read_experiment(values({"train.lr": [0.1, 0.2]}), source="a.yaml", overrides=[override])


def test_a_matrix_in_the_config_of_one_run_says_who_reads_it():
    with pytest.raises(ConfigError, match="gnnflow sweep"):
        load_config(PAYMENTS.read_text())
