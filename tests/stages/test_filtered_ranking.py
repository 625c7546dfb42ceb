"""Links ranked among pairs of which many are edges: what is said, and edges left out of the candidates."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.neighbors.link_candidates import filtered_links, sample_links
from gnnflow.sampling import pairs as sampling
from gnnflow.stages import flat, link_facts, pipeline, publish
from gnnflow.stages.base import StageContext
from gnnflow.train import fit, heads, trainer
from tests.hearing import Heard
from tests.small_links import config_of, write_groups
from tests.typed_graphs import typed_tables
from tests.typed_tasks import NEGATIVES, PAYS
from tests.typed_tasks import config_of as typed_config

if TYPE_CHECKING:
    from gnnflow.config import Config

STRATEGIES: dict[str, dict[str, Any]] = {
    "shards": {"batch_size": 256},
    "store": {"batch_size": 256, "source": "store"},
    "clusters": {"strategy": "cluster-batch", "clusters_per_batch": 2},
    "global": {"strategy": "global-batch", "folds": 2},
}


def links_config(folder: Path, *, filtered: bool, strategy: str = "shards", lr: float = 0.02) -> Config:
    """Return a config for links, which more than a tenth of all pairs are."""
    write_groups(folder)
    negatives = {"kind": "uniform", "pool": 64, "evaluation": 30, "filtered": filtered}
    content = config_of(folder, task={"negatives": negatives}).model_dump(mode="json")
    return config_from_dict({**content, "train": {"epochs": 4, "lr": lr, "metric": "mrr", **STRATEGIES[strategy]}})


def heard(config: Config) -> tuple[Any, list[str]]:
    progress = Heard()
    return pipeline.run(StageContext.of(config, progress=progress)), progress.messages


@pytest.mark.table(2)
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_edges_are_left_out_of_what_held_out_links_are_ranked_among(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    edges_among: list[int] = []

    def draw(*given: Any, are_edges: Any = None, **keys: Any) -> Any:
        drawn = sampling.draw_negatives(*given, are_edges=are_edges, **keys)
        if are_edges is not None:
            edges_among.append(sum(int(are_edges(given[1], column).sum()) for column in drawn.T))
        return drawn

    monkeypatch.setattr(heads, "draw_negatives", draw)
    results = [heard(links_config(tmp_path, filtered=filtered, strategy=strategy))[0] for filtered in (False, True)]
    assert edges_among
    assert not any(edges_among)
    plain, ranked = (result.metrics for result in results)
    assert ranked["test.mrr"] > plain["test.mrr"] + 0.05
    assert ranked["train.loss"] == plain["train.loss"]


def test_ranks_without_an_edge_among_the_candidates_are_the_same(tmp_path: Path) -> None:
    tables = typed_tables()
    # each account pays one merchant, so that no other merchant is an edge of it
    first = {src: place for place, src in reversed(list(enumerate(tables[PAYS]["src"].to_pylist())))}
    tables[PAYS] = tables[PAYS].take(pa.array(sorted(first.values())))
    config = partial(typed_config, tmp_path, tables)
    found = [
        pipeline.run_quietly(config(task={"negatives": {**NEGATIVES, "filtered": filtered}})).metrics
        for filtered in (False, True)
    ]
    scores = [{name: value for name, value in each.items() if name.startswith("test.")} for each in found]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("strategy", ["shards", "store"])
def test_a_champion_is_ranked_among_the_same_candidates(tmp_path: Path, strategy: str) -> None:
    results = []
    for lr in (0.02, 0.01):
        config = links_config(tmp_path, filtered=True, strategy=strategy, lr=lr)
        metrics = pipeline.run_quietly(config).metrics
        results.append((metrics, publish.run(StageContext.of(config))))
    assert results[1][1].champion["test.mrr"] == pytest.approx(results[0][0]["test.mrr"], abs=1e-6)


def test_the_share_of_candidates_that_are_edges_is_said_before_training_and_kept(tmp_path: Path) -> None:
    result, said = heard(links_config(tmp_path, filtered=False))
    (line,) = [each for each in said if each.startswith("candidates: ")]
    facts = result.stages["train"].facts(TrainFacts).link_facts
    assert facts is not None
    assert line == f"candidates: {facts.text}"
    assert 0.1 < facts.share < 0.2
    assert facts.text.endswith("% of the pairs that test edges are ranked among are edges too")
    report = Path(result.report.removeprefix("file://")).read_text()
    assert "Some ranked candidates are edges or repeated" in report


def complete(folder: Path, *, filtered: bool, train: dict[str, Any]) -> Config:
    tables = typed_tables()
    accounts, merchants = (tables[name]["id"].to_pylist() for name in ("account", "merchant"))
    pairs = [(account, merchant) for account in accounts for merchant in merchants]
    src, dst = (pa.array(each) for each in zip(*pairs, strict=True))
    amount = pa.array([float(number % 7) for number in range(len(pairs))], pa.float32())
    tables[PAYS] = pa.table({"src": src, "dst": dst, "weight": amount, "amount": amount})
    return typed_config(folder, tables, task={"negatives": {**NEGATIVES, "filtered": filtered}}, train=train)


@pytest.mark.parametrize("source", ["shards", "store"])
@pytest.mark.parametrize("filtered", [False, True])
def test_links_between_all_pairs_are_refused_before_neighborhoods_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filtered: bool, source: str
) -> None:
    monkeypatch.setattr(flat, "run_rounds", None)
    monkeypatch.setattr(trainer, "train", None)
    with pytest.raises(TrainingError, match=r"every pair that a test edge can be ranked among is an edge itself"):
        pipeline.run_quietly(complete(tmp_path, filtered=filtered, train={"source": source}))


def test_trainings_on_the_same_shards_look_at_links_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(link_facts, "sample_links", lambda store: looked.append(1) or sample_links(store))
    configs = [links_config(tmp_path, filtered=filtered, lr=lr) for filtered, lr in ((False, 0.02), (True, 0.01))]
    (_, first), (_, second) = map(heard, configs)
    lines = [line for said in (first, second) for line in said if line.startswith("candidates: ")]
    assert len(looked) == 1
    assert lines[1] == f"{lines[0]}, which are left out"


@pytest.mark.parametrize("strategy", ["shards", "global"])
def test_known_links_are_read_once_for_all_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    read: list[int] = []
    monkeypatch.setattr(heads, "filtered_links", lambda *given: read.append(1) or filtered_links(*given))
    content = links_config(tmp_path, filtered=True, strategy=strategy).model_dump(mode="json")
    content["train"] |= {"epochs": 1, "baseline": True}
    metrics = pipeline.run_quietly(config_from_dict(content)).metrics
    assert "baseline.test.mrr" in metrics
    assert len(read) == 1


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_a_pool_of_which_nothing_is_left_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """A source has edges to all nodes, so that its held-out ones have no other pair; those of the others have."""
    write_groups(tmp_path)
    ids = pq.read_table(tmp_path / "nodes.parquet")["id"].to_pylist()
    edges = pq.read_table(tmp_path / "edges.parquet")
    hub = pa.table({"src": [ids[0]] * (len(ids) - 1), "dst": ids[1:]})
    pq.write_table(pa.concat_tables([edges, hub]), tmp_path / "edges.parquet")
    negatives = {"kind": "uniform", "pool": 64, "evaluation": 30, "filtered": True}
    content = config_of(tmp_path, task={"negatives": negatives}).model_dump(mode="json")
    train = {"epochs": 1, "metric": "mrr", **STRATEGIES[strategy]}
    monkeypatch.setattr(fit.FitRun, "train_epoch", None)
    with pytest.raises(TrainingError, match=r"no candidate is left for an edge: .* Raise task\.negatives\.pool"):
        pipeline.run_quietly(config_from_dict({**content, "train": train}))
