"""Settings to begin with, for each task that the form offers. Tables and a name are all that they lack."""

from __future__ import annotations

from typing import Any

_SAMPLED = {"sampling": {"kind": "uniform", "fanout": [10, 5]}}

PRESETS: dict[str, dict[str, Any]] = {
    "classify nodes": {
        "graph": {"normalize": "standard"},
        "neighbors": _SAMPLED,
        "model": {"kind": "sage", "hidden": 64, "layers": 2, "dropout": 0.2},
        "train": {"epochs": 30, "lr": 0.01, "patience": 5, "baselines": "all"},
    },
    "fraud": {
        "graph": {"normalize": "standard"},
        "task": {"decide": "f1"},
        "neighbors": _SAMPLED,
        "model": {"kind": "sage", "hidden": 32, "layers": 2, "dropout": 0.1},
        "train": {"epochs": 30, "lr": 0.01, "patience": 5, "metric": "average_precision", "baselines": "all"},
    },
    "links": {
        "graph": {"normalize": "standard"},
        "task": {"kind": "link"},
        "flat": {"hops": 2},
        "neighbors": _SAMPLED,
        "model": {"kind": "sage", "hidden": 64, "layers": 2, "dropout": 0.2},
        "train": {"epochs": 30, "lr": 0.005, "patience": 5, "metric": "mrr", "baselines": "all"},
    },
    "typed": {
        "graph": {"reverse_edges": True},
        "neighbors": _SAMPLED,
        "model": {"kind": "rgcn", "hidden": 32, "layers": 2, "dropout": 0.2},
        "train": {"epochs": 30, "lr": 0.01, "patience": 5},
    },
}
"""The values of each preset, by its name in the form."""
