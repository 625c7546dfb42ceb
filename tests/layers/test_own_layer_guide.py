"""The guide to writing a layer runs as printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "layers.md"


def test_the_guide_runs_as_printed(monkeypatch):
    layer, _, trial = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(layer.splitlines()) <= 35
    module = ModuleType("my_layers")
    monkeypatch.setitem(sys.modules, "my_layers", module)
    exec(layer, vars(module))
    exec(trial, {})


def test_the_layer_of_instances_in_the_guide_runs_on_the_graph_of_the_guide(monkeypatch):
    _, of_instances, trial = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    module = ModuleType("my_layers")
    monkeypatch.setitem(sys.modules, "my_layers", module)
    exec(of_instances, vars(module))
    trial = trial.replace("DynamicAttention", "LoudestLeaf").replace(', options={"heads": 4}', "")
    # each in-edge has a second leaf
    leaves = "sources=np.array([1, 3, 2, 0, 0, 0, 2, 1]), leaves=np.array([0, 2, 4, 6, 8])"
    exec(trial.replace("sources=np.array([1, 2, 0, 2])", leaves), {})
