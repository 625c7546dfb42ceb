"""Exactly the keys that change a result change what is fingerprinted."""

from __future__ import annotations

import json

import pytest

from gnnflow.config import PIPELINES, STAGES, Config, load_config

MINIMAL = "name: tiny\ngraph: {nodes: nodes.parquet, edges: edges.parquet}\n"
SAMPLED = "neighbors={sampling: {kind: uniform, fanout: [10, 5]}}"
PIPELINE = PIPELINES["mini-batch"].stages


def config(*overrides: str) -> Config:
    return load_config(MINIMAL, overrides=overrides)


def changed(*overrides: str, base: tuple[str, ...] = ()) -> set[str]:
    before, after = config(*base), config(*base, *overrides)
    return {stage for stage in PIPELINE if STAGES[stage].keys(before) != STAGES[stage].keys(after)}


@pytest.mark.parametrize(
    ("override", "stages"),
    [
        ("name=other", set()),
        ("workspace=elsewhere", set()),
        ("cluster={kind: synchronous}", set()),
        ("graph.partitions=8", {"ingest"}),
        ("graph.normalize=row", {"ingest"}),
        ("flat.shard_size=10", {"flat"}),
        (SAMPLED, {"select", "flat", "train", "infer"}),
        ("neighbors.hub_threshold=5", {"infer"}),
        ("neighbors.hub_threshold=10000", set()),
        ("neighbors={kind: walks}", {"select"}),
        ("neighbors={kind: package.module:function, options: {most: 3}}", {"select"}),
        ("seed=1", {"baselines", "train"}),
        ("model.hidden=8", {"train"}),
        ("model.layers=3", {"flat", "train"}),
        ("model={norm: none, residual: false}", set()),
        ("model.norm=layer", {"train"}),
        ("model.residual=true", {"train"}),
        ("train.lr=0.5", {"train"}),
        ("train.batch_size=8", {"train"}),
        ("train.patience=8", {"train"}),
        ("train.baseline=true", {"train"}),
        ("train.precision=float32", set()),
        ("train.precision=bfloat16", {"train"}),
        ("train.device=cpu", set()),
        ("train.device=cuda", {"train", "infer"}),
        ("train.device=auto", {"train", "infer"}),
        ("infer.device=cpu", set()),
        ("infer.device=cuda", {"infer"}),
        ("train.prefetch=0", set()),
        ("train.cache=1MiB", set()),
        ("train.threads=1", set()),
        ("train.threads=null", set()),
        ("train.threads=2", {"train"}),
        ("train.eval_batch_size=1", set()),
        ("train.checkpoint_steps=7", set()),
        ("train.start=other/3", set()),  # what that model holds is an input, see tests/stages/test_start.py
        ("train.log=[mlflow]", set()),
        ("train.baselines=[trees]", {"baselines"}),
        ("train.workers=1", set()),
        ("train.workers=2", {"train"}),
        ("train.updater={kind: all_reduce}", set()),
        ("train.updater={kind: parameter_server}", {"train"}),
        ("train.elastic=true", set()),
        ("train.restarts=1", set()),
        ("train.start_seconds=1", set()),
        ("train.step_seconds=1", set()),
        ("infer.embeddings=true", {"infer"}),
        ("infer.targets=[test]", {"infer"}),
        ("guards.psi=null", set()),
        ("graph.max_bad_rows=0.5", set()),
        ("guards.rows=2", set()),
        ("publish={name: other, metric: loss, incomparable: promote, approval: true, approvers: [ada]}", set()),
    ],
)
def test_a_key_changes_only_the_stages_whose_result_it_decides(override, stages):
    assert changed(override) == stages


def test_a_graph_without_types_is_named_as_it_was_before_there_were_any():
    graph = STAGES["ingest"].keys(config())["graph"]
    assert list(graph) == [
        *("id", "src", "dst", "label", "split", "weight", "features", "edge_features", "feature_dim", "num_classes"),
        *("normalize", "partitions", "on_bad_rows", "reverse_edges"),
    ]


def test_fan_outs_of_relations_decide_what_is_selected_of_each():
    tables = ("graph.nodes={a: a, b: b}", "graph.edges={a__to__b: e, b__to__a: f}", "graph.target=a")
    fanout = "neighbors.sampling.fanout={a__to__b: [10, 7], b__to__a: [3, 4]}"
    selected = STAGES["select"].keys(config(*tables, SAMPLED, fanout))["neighbors"]
    assert selected["kept"] == {"a__to__b": 10, "b__to__a": 4}
    assert changed("neighbors.sampling.fanout.b__to__a=[3, 2]", base=(*tables, SAMPLED, fanout)) == {
        *("select", "flat", "train", "infer")
    }


def test_the_seed_reaches_the_selection_where_edges_are_sampled():
    assert changed("seed=1", base=(SAMPLED,)) == {"select", "baselines", "train"}


def test_a_hub_threshold_decides_nothing_where_scoring_takes_a_sample():
    assert changed("neighbors.hub_threshold=5", base=(SAMPLED,)) == set()
    assert changed("neighbors.hub_threshold=5", base=(SAMPLED, "infer.sampling=none")) == {"infer"}


def test_fan_outs_with_the_same_largest_share_the_selection():
    assert changed("neighbors.sampling.fanout=[10, 7]", base=(SAMPLED,)) == {"flat", "train", "infer"}


def test_one_graphflat_serves_several_depths():
    deep = ("neighbors={sampling: {kind: uniform, fanout: [10, 5, 3]}}", "flat.hops=3")
    assert changed("model.layers=3", base=(*deep, "model.layers=2")) == {"train", "infer"}


def test_saying_the_default_number_of_hops_changes_nothing():
    assert changed("flat.hops=2") == set()


def test_keys_are_plain_json_in_a_fixed_form():
    keys = {stage: STAGES[stage].keys(config(SAMPLED)) for stage in PIPELINE}
    assert json.loads(json.dumps(keys)) == keys
    assert keys["select"] == {"neighbors": {"kind": "direct", "sampling": "uniform", "kept": 10}, "seed": 0}
    assert keys["flat"]["fanouts"] == [10, 5]
    assert keys["flat"]["hops"] == 2


@pytest.mark.parametrize(("kind", "scale"), [("weighted", "rank conditioning"), ("top_k", "none")])
def test_samples_whose_sums_changed_are_selected_anew(kind, scale):
    sampled = config(f"neighbors={{sampling: {{kind: {kind}, fanout: [10, 5]}}}}")
    assert STAGES["select"].keys(sampled)["neighbors"]["scale"] == scale


def test_only_models_whose_first_weights_changed_are_trained_anew():
    assert "first_weights" in STAGES["train"].keys(config("model.kind=sage"))
    assert "first_weights" not in STAGES["train"].keys(config())
    pairs = config("model.kind=sage", "task.kind=link", "train.metric=mrr")
    assert "first_weights" not in STAGES["train"].keys(pairs)
    typed = "graph={nodes: {a: a.csv, b: null}, edges: {a__to__b: e.csv}, features: {a: [x]}, target: a__to__b}"
    bare = [typed, "task.kind=link", "train.metric=mrr"]
    assert STAGES["train"].keys(config(*bare))["first_weights"] == "degrees from zero"
    assert "first_weights" not in STAGES["train"].keys(config(*bare, "task.decoder.kind=mlp"))


def test_only_configs_that_name_a_class_are_trained_anew_by_its_metric():
    """Their best epoch was chosen by a mean over classes; every other model is what it was."""
    plain, rule = config(), config("task.decide.kind=f1")
    named = config("task.decide={kind: f1, positive: ring}", "train.baselines=[majority]")
    for stage in ("train", "baselines"):
        assert STAGES[stage].keys(named)["metrics_of"] == "ring"
        assert "metrics_of" not in {**STAGES[stage].keys(plain), **STAGES[stage].keys(rule)}


def test_a_device_is_no_part_of_a_fingerprint_but_where_it_is_another_than_the_cpu():
    plain, named = config(), config("train.device=cpu", "infer.device=cpu")
    for stage in ("train", "infer"):
        assert STAGES[stage].keys(plain) == STAGES[stage].keys(named)
        assert "device" not in json.dumps(STAGES[stage].keys(plain))
    trained_elsewhere = config("train.device=cuda", "infer.device=cpu")
    assert STAGES["infer"].keys(trained_elsewhere) == STAGES["infer"].keys(plain)
    assert trained_elsewhere.scoring_device == "cpu"
    assert config("train.device=auto").scoring_device == "auto"
