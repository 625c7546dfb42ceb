"""A published model is scored by the code it was trained with, or not at all."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.graph.errors import RegistryError
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

LAYER = "from tests.contracts.own_layers import Gated\n\n\nclass Mine(Gated):\n    pass\n"
LOSS = "from torch.nn.functional import cross_entropy\n\n\ndef mine(x, y, w):\n    return cross_entropy(x, y, w)\n"


def published(
    folder: Path, incomparable: str = "promote", *, lr: float = 0.01
) -> tuple[StageContext, publish.PublishResult]:
    config = graph_config(
        folder,
        model={"kind": "layer_of_then:Mine", "head": "linear", "hidden": 4},
        train={"epochs": 2, "batch_size": 16, "threads": 1, "lr": lr, "loss": {"kind": "loss_of_then:mine"}},
        publish={"incomparable": incomparable},
    )
    context = StageContext.of(config)
    pipeline.run(context)
    return context, publish.run(context)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_graph(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("layer_of_then", "loss_of_then"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "loss_of_then.py").write_text(LOSS)
    path = tmp_path / "layer_of_then.py"
    path.write_text(LAYER)
    return path


def test_a_model_whose_code_changed_scores_nothing(tmp_path: Path, module: Path) -> None:
    context, _ = published(tmp_path)
    write_graph(tmp_path, num_nodes=80, seed=1)
    later = StageContext.of(context.config)
    module.write_text(f"{LAYER}\n# changed\n")
    refused = r"version 1 cannot score this graph: the source of layer_of_then:Mine is not what the model was trained"
    with pytest.raises(RegistryError, match=refused):
        score.run(StageContext.of(context.config))
    module.write_text(LAYER)
    found = score.run(later)
    assert found.rows == 80
    module.write_text(f"{LAYER}\n# changed\n")
    with pytest.raises(RegistryError, match=refused):  # what was scored before is not the answer either
        score.run(StageContext.of(context.config))


def test_a_loss_that_changed_since_scores_nothing_otherwise(tmp_path: Path, module: Path) -> None:
    context, _ = published(tmp_path)
    before = score.run(context)
    (tmp_path / "loss_of_then.py").write_text(f"{LOSS}\n# changed\n")
    after = score.run(StageContext.of(context.config))
    first, second = (pq.read_table(found.predictions) for found in (before, after))
    assert first.equals(second)
    assert set(registry.read_version(context.config.workspace, "small", 1).code) == {"layer_of_then:Mine"}


@pytest.mark.parametrize(("incomparable", "in_service"), [("keep", 1), ("promote", 2)])
def test_a_champion_with_other_code_is_compared_with_nothing(
    tmp_path: Path, module: Path, incomparable: str, in_service: int
) -> None:
    published(tmp_path)
    module.write_text(f"{LAYER}\n# changed\n")
    _, result = published(tmp_path, incomparable)
    assert result.in_service == in_service
    assert "the source of layer_of_then:Mine is not what the model was trained with" in result.reason
