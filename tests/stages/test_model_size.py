"""The weights a config asks for at least are never more than the model has, so no model that fits is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gnnflow.config import model_from_dict
from gnnflow.graph.errors import LayerError
from gnnflow.layers import ModelInputs, build_model
from gnnflow.stages import model_size
from gnnflow.stages.model_size import check_size, check_trained_size, least_weights
from tests.small_graphs import graph_config

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("gcn", "sage", "gat", "gin", "gat_e", "rgcn", "han", "hgt", "pinsage", "magnn", "pgnn", "ggcn", "ggnn")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["direct", "linear", "jumping"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("encoder", ["none", "linear"])
def test_no_model_has_fewer_weights_than_are_counted(kind: str, head: str, layers: int, encoder: str) -> None:
    heads = {"heads": 2} if kind in {"gat", "gat_e", "han", "hgt", "magnn"} else {}
    asked = {"kind": kind, "hidden": 16, "layers": layers, "head": head, "encoder": encoder, **heads}
    config = model_from_dict(asked)
    model = build_model(config, ModelInputs(6, num_outputs=3, attribute_width=2))
    least = least_weights(config, features=6, outputs=3)
    assert 0 < least <= sum(each.numel() for each in model.parameters())


def test_what_the_machine_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model_size, "machine_memory", lambda: 3 * 4 * 100**2)
    config = graph_config(tmp_path, model={"hidden": 100, "layers": 3, "head": "linear"})
    check_size(config, trains=False)
    with pytest.raises(
        LayerError, match=r"3 layers of 100 columns, their gradients and the state of adam take 32.* kB"
    ):
        check_trained_size(config)
    with pytest.raises(LayerError, match=r"take 160 kB at least, and this machine has 120 kB"):
        check_size(config, trains=False, features=200)
