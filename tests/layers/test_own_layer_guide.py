"""The guide to writing a layer runs as printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "layers.md"


def write_module(folder, text, monkeypatch):
    (folder / "my_layers.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "my_layers", raising=False)


def test_the_guide_runs_as_printed(tmp_path, monkeypatch):
    layer, _, trial = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(layer.splitlines()) <= 35
    write_module(tmp_path, layer, monkeypatch)
    exec(trial, {})


def test_the_layer_of_the_readme_is_short_and_runs_on_the_graph_of_the_guide(tmp_path, monkeypatch):
    (layer,) = re.findall(r"```python\n(.*?)```", (GUIDE.parents[1] / "README.md").read_text(), re.DOTALL)
    assert sum(bool(line) for line in layer.splitlines()) <= 15
    *_, trial = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    write_module(tmp_path, layer, monkeypatch)
    exec(trial.replace("DynamicAttention", "MeanOfNeighbours").replace(', options={"heads": 4}', ""), {})


def test_the_layer_of_instances_in_the_guide_runs_on_the_graph_of_the_guide(tmp_path, monkeypatch):
    _, of_instances, trial = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    write_module(tmp_path, of_instances, monkeypatch)
    trial = trial.replace("DynamicAttention", "LoudestLeaf").replace(', options={"heads": 4}', "")
    # each in-edge has a second leaf
    leaves = "sources=np.array([1, 3, 2, 0, 0, 0, 2, 1]), leaves=np.array([0, 2, 4, 6, 8])"
    exec(trial.replace("sources=np.array([1, 2, 0, 2])", leaves), {})
