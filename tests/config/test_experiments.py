"""A matrix and seeds become runs that can be told apart, share what is equal, and are refused one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnnflow.config import load_config
from gnnflow.config.experiments import read_experiment
from gnnflow.config.matrix import read_matrix
from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError
from tests.conftest import REPOSITORY

PAYMENTS = REPOSITORY / "configs" / "experiments" / "payments.yaml"


def values(matrix: Any, **more: Any) -> dict[str, Any]:
    return {"name": "tiny", "graph": {"nodes": "n.parquet", "edges": "e.parquet"}, "matrix": matrix, **more}


def test_runs_share_the_stages_whose_keys_are_equal():
    gcn, sage = read_experiment(values({"model.kind": ["gcn", "sage"]}), source="layers.yaml").runs
    assert [stage for stage in gcn.stages if gcn.key(stage) == sage.key(stage)] == ["ingest", "select", "flat"]


def test_a_map_in_the_matrix_sets_keys_that_only_its_kind_has():
    matrix = {"model": [{"kind": "gcn"}, {"kind": "gat", "heads": 4}], "seed": [0, 1]}
    runs = read_experiment(values(matrix, model={"hidden": 16}), source="heads.yaml").runs
    assert [run.label for run in runs] == [
        "kind=gcn seed=0",
        "kind=gcn seed=1",
        "kind=gat heads=4 seed=0",
        "kind=gat heads=4 seed=1",
    ]
    assert runs[2].values["model"] == {"hidden": 16, "kind": "gat", "heads": 4}
    assert "matrix" not in runs[2].values
    assert {run.config.model.hidden for run in runs} == {16}
    assert runs[2].config.model.heads == 4


def test_keys_that_end_alike_are_named_by_the_shortest_ending_that_tells_them_apart():
    matrix = {
        "model.kind": ["rgcn", "gcn"],
        "neighbors.kind": ["direct"],
        "train.lr": [0.1],
        "model.head.kind": ["linear", "mlp"],
        "model.head.hidden": [4, 8],
    }
    rows = read_matrix(matrix, seeds=None, first_seed=0, source="", most_runs=100)
    assert rows[0].row.label == "model.kind=rgcn head.kind=linear hidden=4"
    assert list(rows[0].row.keys) == ["model.kind", "head.kind", "hidden"]  # those that vary


def test_seeds_are_runs_of_one_variant_and_a_field_of_their_rows():
    found = read_experiment(values({"model.kind": ["gcn", "sage"]}, seed=7, seeds=2), source="a.yaml")
    assert [(row.label, row.variant, dict(row.keys), row.seed) for row in found.rows] == [
        ("kind=gcn seed=7", "kind=gcn", {"kind": "gcn"}, 7),
        ("kind=gcn seed=8", "kind=gcn", {"kind": "gcn"}, 8),
        ("kind=sage seed=7", "kind=sage", {"kind": "sage"}, 7),
        ("kind=sage seed=8", "kind=sage", {"kind": "sage"}, 8),
    ]
    assert [run.config.seed for run in found.runs] == [7, 8, 7, 8]


@pytest.mark.parametrize(("seeds", "expected"), [(2, [0, 1]), ([5, 3], [5, 3]), (1, [0])])
def test_seeds_need_no_matrix(seeds, expected):
    raw = values({}, seeds=seeds)
    del raw["matrix"]
    found = read_experiment(raw, source="a.yaml")
    assert [row.seed for row in found.rows] == expected
    assert {row.variant for row in found.rows} == {"as written"}


def test_a_seed_that_is_a_variable_is_the_one_of_the_run(monkeypatch):
    monkeypatch.setenv("GNNFLOW_SEED", "4")
    found = read_experiment(values({"train.lr": [0.1, 0.2]}, seed="${GNNFLOW_SEED}"), source="a.yaml")
    assert [row.seed for row in found.rows] == [4, 4]


@pytest.mark.parametrize(
    ("seeds", "word"),
    [(0, "neither"), ("5", "neither"), ([], "neither"), ([1, "2"], "neither"), (True, "neither"), ([1, 1], "1 twice")],
)
def test_seeds_that_are_none_are_refused(seeds, word):
    with pytest.raises(ConfigError, match=word):
        read_experiment(values({}, seeds=seeds), source="a.yaml")


def test_a_seed_in_the_matrix_beside_seeds_is_refused():
    with pytest.raises(ConfigError, match="both set seed"):
        read_experiment(values({"seed": [0, 1]}, seeds=3), source="a.yaml")


def test_a_number_of_seeds_may_come_from_the_command_line():
    found = read_experiment(values({"train.lr": [0.1, 0.2]}), source="a.yaml", overrides=["seeds=3"])
    assert len(found.runs) == 6


NEAR_AND_FAR = [
    {"name": "near", "model.layers": 1, "neighbors": {"sampling": {"kind": "uniform", "fanout": [10]}}},
    {"name": "far", "model": {"layers": 2}, "neighbors.sampling": {"kind": "uniform", "fanout": [10, 5]}},
]


def test_bundles_set_keys_of_several_sections_that_fit_each_other():
    found = read_experiment(values({"model.kind": ["gcn", "sage"], "reach": NEAR_AND_FAR}), source="a.yaml")
    assert [row.variant for row in found.rows] == [
        "kind=gcn reach=near",
        "kind=gcn reach=far",
        "kind=sage reach=near",
        "kind=sage reach=far",
    ]
    assert [(run.config.model.layers, run.config.fanouts) for run in found.runs[:2]] == [(1, (10,)), (2, (10, 5))]
    columns = [("kind", "gcn"), ("reach", "far"), ("layers", "2"), ("fanout", "[10, 5]")]
    assert list(found.rows[1].keys.items()) == columns  # in the order of the axes


def test_a_matrix_may_be_one_list_of_bundles():
    found = read_experiment(values([*NEAR_AND_FAR, {"train.lr": 0.5}, {}]), source="a.yaml")
    assert [row.variant for row in found.rows] == ["near", "far", "lr=0.5", "as written"]


def test_a_bundle_names_itself_by_what_varies():
    matrix = {"model": [{"kind": "gcn", "hidden": 8}, {"kind": "gat", "hidden": 8, "heads": 2}]}
    found = read_experiment(values(matrix), source="a.yaml")
    assert [row.variant for row in found.rows] == ["kind=gcn", "kind=gat heads=2"]
    assert {run.config.model.hidden for run in found.runs} == {8}


def test_a_kind_in_the_matrix_leaves_out_keys_that_only_the_kind_of_the_file_has():
    file = {
        "model": {"kind": "gat", "heads": 4, "hidden": 8},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": [5, 5]}},
    }
    matrix = {"model": [{"kind": "gcn"}, {"hidden": 16}], "neighbors.sampling.kind": ["none", "top_k"]}
    found = read_experiment(values(matrix, **file), source="a.yaml")
    assert [(run.values["model"], run.config.fanouts) for run in found.runs] == [
        ({"kind": "gcn", "hidden": 8}, None),
        ({"kind": "gcn", "hidden": 8}, (5, 5)),
        ({"kind": "gat", "heads": 4, "hidden": 16}, None),
        ({"kind": "gat", "heads": 4, "hidden": 16}, (5, 5)),
    ]
    with pytest.raises(ConfigError, match="hedas"):
        read_experiment(values(matrix, model={"kind": "gat", "hedas": 4}), source="a.yaml")


def test_two_axes_of_one_section_are_no_mistake_where_they_set_other_keys():
    matrix = {"model": [{"kind": "gcn"}, {"kind": "sage"}], "model.layers": [1, 2]}
    assert len(read_experiment(values(matrix), source="a.yaml").runs) == 4


@pytest.mark.parametrize(
    ("matrix", "word"),
    [
        ([{"name": "a", "train.lr": 0.1}, {"name": "a", "train.lr": 0.2}], "two bundles called a"),
        ({"modl": [{"kind": "gcn"}]}, "modl is no key of a config, so its entries are bundles; kind is no key"),
        ([{"train.lr": 0.1, "train": {"lr": 0.2}}], r"sets train\.lr twice"),
        ({"a": [{"train.lr": 0.1}, {}], "b": [{"train": {"lr": 0.2}}]}, r"a and b both set train\.lr"),
    ],
)
def test_bundles_that_would_lose_a_key_are_refused(matrix, word):
    with pytest.raises(ConfigError, match=word):
        read_experiment(values(matrix), source="a.yaml")


def test_the_payments_experiment_names_each_of_its_runs():
    raw = read_yaml(PAYMENTS.read_text(), source=str(PAYMENTS))
    rows = read_experiment(raw, source=str(PAYMENTS)).rows
    assert list(dict.fromkeys(row.variant for row in rows)) == ["kind=gcn", "kind=sage", "kind=gat_e heads=4"]
    assert [row.seed for row in rows] == [0, 1, 2] * 3


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
    assert [run.label for run in found.runs] == ["kind=gcn lr=0.1"]
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
    assert {(run.config.train.lr, run.config.workspace) for run in found.runs} == {(0.5, "elsewhere")}


@pytest.mark.parametrize("override", ["train.lr=0.5", "train={lr: 0.5}", "train.lr.x=1"])
def test_an_override_of_what_the_matrix_varies_is_refused(override):
    with pytest.raises(ConfigError, match=r"sets what the matrix varies \(train.lr\)"):
        read_experiment(values({"train.lr": [0.1, 0.2]}), source="a.yaml", overrides=[override])


@pytest.mark.parametrize("key", ["matrix", "seeds"])
def test_a_key_of_experiments_in_the_config_of_one_run_says_who_reads_it(key):
    one = {name: held for name, held in values({}, seeds=2).items() if name in ("name", "graph", key)}
    with pytest.raises(ConfigError, match=f"{key} is a key of experiments.*gnnflow sweep"):
        load_config(json.dumps(one))
