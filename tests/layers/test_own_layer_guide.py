"""The guide to writing a layer runs as printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "layers.md"


def test_the_guide_runs_as_printed(monkeypatch):
    layer, trial = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(layer.splitlines()) <= 35
    module = ModuleType("my_layers")
    monkeypatch.setitem(sys.modules, "my_layers", module)
    exec(layer, vars(module))
    exec(trial, dict(vars(module)))
