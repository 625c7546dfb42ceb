"""Links through every stage, on a small graph of groups."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.run_facts import InferFacts
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.shards import PairShard, read_pair_shard
from gnnflow.layers import load_model
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.pairs import score_pairs
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest
from gnnflow.train.minibatch import outputs_on_shards
from tests.small_links import config_of, run_groups, write_groups


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Any, Path]:
    return run_groups(tmp_path_factory.mktemp("links"))


def shards_of(config: Config) -> tuple[str, FlatFacts, GraphStore, dict[str, list[PairShard]]]:
    context = StageContext.of(config)
    for stage in ("ingest", "flat"):
        make_artifact(context, stage)
    flat, stored = context.artifact("flat"), context.artifact("ingest")
    facts = flat.facts(FlatFacts)
    read: dict[str, list[PairShard]] = {}
    for entry in facts.shards:
        read.setdefault(entry.split, []).append(read_pair_shard(flat.uri, entry))
    return flat.uri, facts, GraphStore.of(stored.uri, stored.manifest), read


def test_links_are_learned_through_every_stage(done: tuple[Config, Any, Path]) -> None:
    metrics = done[1].metrics
    assert metrics["test.roc_auc"] > 0.7
    assert metrics["test.mrr_low"] < metrics["test.mrr"] < metrics["test.mrr_high"]
    assert metrics["infer.parity_max_difference"] < 1e-4


def test_columns_that_show_the_group_matter_to_links(done: tuple[Config, Any, Path]) -> None:
    """The columns of ranked links, the targets' and the candidates', are exchanged in one pass over both ends."""
    found = done[1].stages["infer"].facts(InferFacts).columns
    assert found.metric == "mrr"
    assert found.targets == 143
    assert abs(found.score - done[1].metrics["valid.mrr"]) < 0.02  # its candidates are another draw of the 90 nodes
    first, second, *others = found.columns
    assert {first.column, second.column} < {"x[0]", "x[1]", "x[2]"}
    assert second.drop > 2 * max(each.drop for each in others)


@pytest.mark.parametrize("layout", ["shared", "inline"])
def test_shards_hold_every_pair_once_and_their_pools(tmp_path: Path, layout: str) -> None:
    write_groups(tmp_path)
    config = config_of(tmp_path, flat={"layout": layout, "shard_size": 150})
    _, facts, store, read = shards_of(config)
    assert len(facts.shards) > 3
    stored = pa.concat_tables([store.pairs(part, ["src", "dst", "key"]) for part in range(store.num_partitions)])
    expected = sorted(zip(*(stored[name].to_pylist() for name in ("src", "dst", "key")), strict=True))
    found = []
    for shard in [each for shards in read.values() for each in shards]:
        ids = shard.shard.targets
        found += zip(ids[shard.sources].tolist(), ids[shard.targets].tolist(), shard.keys.tolist(), strict=True)
        assert len(shard.pool) == 64
        np.testing.assert_array_equal(shard.shard.neighborhood.node_ids[shard.shard.rows], ids)
    assert sorted(found) == expected
    assert facts.num_targets == len(expected)
    assert {split: sum(len(each.keys) for each in shards) for split, shards in read.items()} == {
        split: count for split, count in store.facts.splits.items() if split != "none"
    }


def test_the_same_config_gives_the_same_bytes_elsewhere(tmp_path: Path) -> None:
    write_groups(tmp_path)
    digests = []
    for name in ("one", "other"):
        config = config_of(tmp_path, train={"epochs": 2}).model_copy(update={"workspace": str(tmp_path / name)})
        result = run_pipeline(StageContext.of(config))
        digests.append({stage: made.digest for stage, made in result.stages.items()})
    assert digests[0] == digests[1]


def test_pools_by_degree_hold_no_node_without_in_edges_and_favour_hubs(tmp_path: Path) -> None:
    write_groups(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    hub = pa.table({"src": [f"n{number}" for number in range(1, 60)], "dst": ["n0"] * 59})
    kept = edges.filter(pa.array([dst not in {"n1", "n2", "n3"} for dst in edges["dst"].to_pylist()]))
    pq.write_table(pa.concat_tables([kept, hub]), tmp_path / "edges.parquet")
    task = {"negatives": {"kind": "degree", "power": 1.0, "pool": 3000}}
    *_, store, read = shards_of(config_of(tmp_path, task=task))
    degree = np.concatenate([store.nodes(part, ["in_degree"])["in_degree"].to_numpy() for part in range(3)])
    for shard in [each for shards in read.values() for each in shards]:
        drawn = np.bincount(shard.shard.targets[shard.pool], minlength=len(degree))
        assert not drawn[degree == 0].any()
        np.testing.assert_allclose(drawn / 3000, degree / degree.sum(), atol=0.02)


def test_scores_of_held_out_pairs_are_those_of_training(done: tuple[Config, Any, Path], tmp_path: Path) -> None:
    config, result, _ = done
    context = StageContext.of(config)
    flat, stored = context.artifact("flat"), context.artifact("ingest")
    store = GraphStore.of(stored.uri, stored.manifest)
    entries = [entry for entry in flat.facts(FlatFacts).shards if entry.split == "test"]
    model = load_model(context.artifact("train").uri)
    read, settings = partial(read_pair_shard, flat.uri), {"train": config.train, "task": config.task}
    outputs = outputs_on_shards(model, entries, read, sampling=EVERY_EDGE, seed=config.seed, **settings)  # type: ignore[arg-type]
    ids = np.concatenate([store.nodes(part, ["id"])["id"].to_numpy(zero_copy_only=False) for part in range(3)])
    shards = [read_pair_shard(flat.uri, entry) for entry in entries]
    ends = [
        np.concatenate([ids[each.shard.targets[getattr(each, side)]] for each in shards])
        for side in ("sources", "targets")
    ]
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), tmp_path / "pairs.parquet")
    score_pairs(
        result.uri, str(tmp_path / "pairs.parquet"), out=str(tmp_path / "scored.parquet"), workspace=str(tmp_path)
    )
    scored = pq.read_table(tmp_path / "scored.parquet")
    np.testing.assert_allclose(scored["score"].to_numpy(), outputs.logits[:, 0], rtol=1e-4, atol=1e-5)
    assert scored["src"].to_pylist() == ends[0].tolist()
    assert np.all((scored["probability"].to_numpy() > 0.5) == (scored["score"].to_numpy() > 0))


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"infer": {"embeddings": True}}, "infer.embeddings"),
        ({"infer": {"targets": ["test"]}}, "infer.targets"),
        ({"flat": {"targets": "all"}}, "flat.targets"),
        ({"train": {"class_weight": "balanced"}}, "train.class_weight"),
    ],
)
def test_keys_that_mean_nothing_for_links_are_refused(tmp_path: Path, sections: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: .*is not allowed where task.kind is link"):
        config_of(tmp_path, **sections)


@pytest.mark.slow
def test_the_better_model_of_links_is_in_service(tmp_path: Path) -> None:
    write_groups(tmp_path)
    for train, promoted in (
        ({"epochs": 1, "lr": 1e-5}, True),
        ({"epochs": 8}, True),
        ({"epochs": 1, "lr": 1e-5}, False),
    ):
        config = config_of(tmp_path, train=train)
        run_pipeline(StageContext.of(config))
        assert publish.run(StageContext.of(config)).promoted == promoted
    assert "embedding" in pq.read_table(score.run(StageContext.of(config)).predictions).column_names


def test_the_baseline_has_no_edges(tmp_path: Path) -> None:
    write_groups(tmp_path)
    metrics = run_pipeline(StageContext.of(config_of(tmp_path, train={"baseline": True, "epochs": 2}))).metrics
    assert 0 < metrics["baseline.test.mrr"] < 1


def test_metrics_of_nodes_are_refused_with_those_of_links(tmp_path: Path) -> None:
    write_groups(tmp_path)
    with pytest.raises(ConfigError, match=r"train.metric.*accuracy is not defined for links.*mrr or hits_at_1"):
        config_of(tmp_path, train={"metric": "accuracy"})


def _published(folder: Path, split: dict[str, Any]) -> tuple[Config, pa.Table, pa.Table]:
    """Publish a model of links and return its config, its predictions, and the edges, which have times and splits."""
    write_groups(folder)
    edges = pq.read_table(folder / "edges.parquet")
    names = np.array(["train", "train", "train", "valid", "test"])[np.arange(edges.num_rows) * 5 // edges.num_rows]
    edges = edges.append_column("timestamp", pa.array(range(edges.num_rows))).append_column("split", pa.array(names))
    pq.write_table(edges, folder / "edges.parquet")
    config = config_of(folder, task={"split": split}, train={"epochs": 1})
    run_pipeline(StageContext.of(config))
    return config, _by_id(publish.run(StageContext.of(config)).predictions), edges


def _by_id(predictions: str) -> pa.Table:
    return pq.read_table(predictions).sort_by("id")


SPLITS = [
    {"kind": "time", "valid": 0.1, "test": 0.1},
    {"kind": "random", "valid": 0.1, "test": 0.1},
    {"kind": "column"},
]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split["kind"])
def test_a_published_model_scores_from_every_edge_the_newest_included(tmp_path: Path, split: dict[str, Any]) -> None:
    config, trained, edges = _published(tmp_path, split)
    context = StageContext.of(config)
    first = score.run(context)
    assert first.reads[0] != context.run.artifact("ingest")
    assert GraphStore.of(first.reads[0], read_manifest(first.reads[0])).facts.num_edges == edges.num_rows
    scored = _by_id(first.predictions)
    assert not scored.equals(trained)
    assert score.run(context).reused
    assert score.is_quick(context)
    # the newest edge, and without splits or times: nothing of these is read
    new = pa.table({"src": ["n0"], "dst": ["n1"]})
    pq.write_table(pa.concat_tables([edges.select(["src", "dst"]), new]), tmp_path / "edges.parquet")
    later = _by_id(score.run(StageContext.of(config)).predictions)
    changed = [before != after for before, after in zip(scored.to_pylist(), later.to_pylist(), strict=True)]
    assert changed[later["id"].to_pylist().index("n1")]


def test_shares_that_hold_out_no_edge_are_fine_where_nothing_trains(tmp_path: Path) -> None:
    config, _, _ = _published(tmp_path, SPLITS[0])
    expected = score.run(StageContext.of(config)).predictions
    none = config_of(tmp_path, task={"split": {"kind": "time", "valid": 0, "test": 0}}, train={"epochs": 1})
    assert score.run(StageContext.of(none)).predictions == expected
    with pytest.raises(TrainingError, match=r"task\.split\.valid: 0 is not allowed"):
        perform(StageContext.of(none), "run")


def test_nothing_is_trained_without_held_out_edges(tmp_path: Path) -> None:
    write_groups(tmp_path)
    with pytest.raises(TrainingError, match=r"task\.split\.kind: none holds no edges out, so nothing can be trained"):
        perform(StageContext.of(config_of(tmp_path, task={"split": {"kind": "none"}})), "run")
