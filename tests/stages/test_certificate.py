"""What GraphInfer refuses to publish, and what its certificate says was compared."""

from __future__ import annotations

import math
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from gnnflow.graph.errors import ConfigError, ParityError, RegistryError, ScoringError
from gnnflow.graph.run_facts import InferFacts
from gnnflow.layers import Layer, Sum, Terms
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.infer import largest_difference
from gnnflow.stages.running import make_artifact
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.config import Config
    from gnnflow.layers import EdgeContext, NodeContext

QUICK: dict[str, Any] = {"train": {"epochs": 1}, "graph": {"partitions": 2}}
SAMPLED = {"sampling": {"kind": "uniform", "fanout": [3, 2]}}


class Counting(Layer):
    """Adds to its rows a number that grows with the rows it has seen: what a forgotten counter or cache does."""

    aggregation = Sum()
    added: ClassVar[float] = 0.0
    """Per row seen; 0 behaves."""
    blown_up: ClassVar[bool] = False
    """Whether the rows of the node with the largest first feature are not finite."""

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__(in_width, out_width)
        self.linear = nn.Linear(in_width, out_width)
        self.seen = 0

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        self.seen += len(h)
        return Terms({"value": self.linear(h)[:, None]}, {"first": h[:, :1]})

    def coefficient(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        return source["value"].new_ones(edge.num_edges, 1)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        rows = aggregated[:, 0]
        if self.added:
            rows = rows + self.added * self.seen
        if self.blown_up:
            rows = torch.where(own["first"] == own["first"].max(), torch.inf, rows)
        return rows


OWN = f"{Counting.__module__}:Counting"
MODEL: dict[str, Any] = {"kind": OWN, "layers": 1, "hidden": 4, "head": "linear"}


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A config whose model is trained and not yet scored with."""
    write_graph(tmp_path)
    # as a user's module is imported, by its name
    monkeypatch.setitem(sys.modules, Counting.__module__, _module())
    config = graph_config(tmp_path, model=MODEL, **QUICK)
    context = StageContext.of(config)
    for stage in ("ingest", "flat", "train"):
        make_artifact(context, stage)
    return config


def _module() -> Any:
    module = ModuleType(Counting.__module__)
    module.__spec__ = spec_from_file_location(Counting.__module__, __file__)
    vars(module).update(Counting=Counting)
    return module


def infer(config: Config) -> InferFacts:
    return make_artifact(StageContext.of(config), "infer").facts(InferFacts)


def predictions_of(config: Config) -> list[Path]:
    return list(Path(config.workspace).glob("artifacts/infer/**/*.parquet"))


def test_a_layer_that_behaves_is_certified(trained: Config) -> None:
    parity = infer(trained).parity
    assert (parity.samples, parity.compared) == (60, "like training")


def test_rounded_rows_are_certified_with_their_own_limit(trained: Config) -> None:
    """Finds a config's form of rows that scoring does not take, or that the certificate holds to float32's limit."""
    rounded = trained.model_copy(update={"infer": trained.infer.model_copy(update={"rows": "bfloat16"})})
    parity = infer(rounded).parity
    assert parity.limit == 5e-2
    assert parity.max_difference is not None
    assert infer(trained).parity.limit < parity.max_difference < parity.limit


def test_a_layer_that_keeps_state_between_calls_is_refused(trained: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "added", 0.01)
    with pytest.raises(ParityError, match=r"differ by .* on 60 targets.* keep state between calls"):
        infer(trained)
    assert not predictions_of(trained)


@pytest.mark.parametrize("added", [math.nan, math.inf])
def test_the_certificate_refuses_what_is_not_a_number(
    trained: Config, monkeypatch: pytest.MonkeyPatch, added: float
) -> None:
    monkeypatch.setattr(Counting, "added", added)
    with pytest.raises((ScoringError, ParityError), match=r"not finite|differ by nan"):
        infer(trained)
    assert not predictions_of(trained)


def test_one_infinite_row_names_its_node_and_publishes_nothing(
    trained: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "blown_up", True)
    with pytest.raises(ScoringError, match=r"of [12] of 60 targets are not finite, for example of node \d+") as told:
        infer(trained)
    assert "features or edge weights" in str(told.value)
    assert not predictions_of(trained)


def test_an_embedding_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    table = pq.read_table(tmp_path / "nodes.parquet")
    x = table["x"].combine_chunks().flatten().to_numpy().copy()
    x[5 * 3 : 5 * 3 + 5] = 3e38  # node 3, which has no split and takes no part in training
    column = pa.FixedSizeListArray.from_arrays(pa.array(x), 5)
    edges = pq.read_table(tmp_path / "edges.parquet")
    pq.write_table(edges.filter(edges["src"].to_numpy() != table["id"][3].as_py()), tmp_path / "edges.parquet")
    pq.write_table(table.set_column(1, "x", column), tmp_path / "nodes.parquet")
    config = graph_config(
        tmp_path, model={"kind": "gin", "hidden": 64, "layers": 3}, infer={"embeddings": True}, **QUICK
    )
    with pytest.raises(ScoringError, match=rf"scores or embeddings of 1 of 60 .* node {table['id'][3].as_py()}\."):
        pipeline.run_quietly(config)


def test_a_nan_on_either_side_is_a_difference() -> None:
    whole = {1: [0.5, 0.5], 2: [0.1, 0.9]}
    again = {node: np.array(row, np.float32) for node, row in whole.items()}
    assert largest_difference(whole, again) < 1e-7
    assert math.isnan(largest_difference({**whole, 1: [math.nan, 0.5]}, again))
    assert math.isnan(largest_difference({**whole, 2: [math.nan, 0.9]}, again))
    assert math.isnan(largest_difference(whole, {**again, 2: np.array([math.nan, 0.9], np.float32)}))


def test_a_difference_is_one_of_the_size_of_scores() -> None:
    """What float32 rounds of a large score is no difference, and of numbers in a small unit little is one."""
    large, small = {1: [3e5], 2: [-2e5], 3: [0.25]}, {1: [3e-6], 2: [-2e-6], 3: [0.0]}
    rounded = {node: np.array(row, np.float32) * (1 + 1e-6) for node, row in large.items()}
    assert largest_difference(large, rounded) < 1e-5
    # a sum that nearly cancels has lost as many digits as the others
    assert largest_difference(large, {**rounded, 3: np.array([0.35])}) < 1e-5
    assert largest_difference(large, {**rounded, 1: np.array([3e5 + 100])}) > 1e-4
    moved = {node: np.array(row) + 1e-8 for node, row in small.items()}
    assert largest_difference(small, moved) < 1e-5
    assert largest_difference(small, moved, least=2e-6) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sections", "compared"),
    [
        ({}, "like training"),
        ({"infer": {"sampling": "none"}}, "like training"),
        ({"neighbors": SAMPLED}, "like training"),
        ({"neighbors": SAMPLED, "infer": {"sampling": "none"}}, "all edges"),
        ({"infer": {"parity_samples": 0}}, "nothing"),
    ],
)
def test_what_was_compared_is_said(tmp_path: Path, sections: dict[str, Any], compared: str) -> None:
    write_graph(tmp_path)
    heard = Heard()
    result = pipeline.run(StageContext.of(graph_config(tmp_path, **QUICK, **sections), progress=heard))
    parity = result.stages["infer"].facts(InferFacts).parity
    assert parity.compared == compared
    assert result.metrics["infer.parity_samples"] == parity.samples == (0 if compared == "nothing" else 60)
    assert ("infer.parity_max_difference" in result.metrics) == (compared != "nothing")
    assert f"certificate: {parity.text}" in heard.messages
    report = Path(result.report).read_text()
    assert ("both over all edges, where training used a sample" in report) == (compared == "all edges")
    assert ("no target was scored again" in report) == (compared == "nothing")


def test_a_run_without_a_certificate_is_not_published(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, infer={"parity_samples": 0}, **QUICK)
    pipeline.run_quietly(config)
    with pytest.raises(RegistryError, match=r"infer\.parity_samples: .*no parity certificate.* Set it to 1 or more"):
        publish.run(StageContext.of(config))
    assert not (tmp_path / "runs" / "registry").exists()
    with pytest.raises(ConfigError, match="without a parity certificate"):
        score.run(StageContext.of(config))
