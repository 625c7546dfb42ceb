"""The guide's loss of one's own runs as printed, from the config that names it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from gnnflow.train.trainer import train
from tests.train.planted import Planted, Recording, job_for, planted

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "objective.md"


def test_the_guides_loss_misses_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (loss,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (config,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "my_losses.py").write_text(loss)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    graph = planted()
    rare = Planted(graph.neighborhood, (graph.labels == 0).astype("int64"), graph.targets)
    keys = {"epochs": 10, "kind": "gcn"}
    plain, costly = (
        train(job_for(rare, **keys, **more), progress=Recording(), open_source=rare.open_source)
        for more in ({}, yaml.safe_load(config)["train"])
    )
    assert costly.confusion["test"][1, 1] > plain.confusion["test"][1, 1]
