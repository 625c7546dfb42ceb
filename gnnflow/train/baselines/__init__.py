"""Baselines: what a model has to beat, scored by the same metrics on the same targets.

`nodes.py` predicts labels from columns alone (with `rows.py`, which draws and reads them), `links.py` ranks candidates
by counts. Neither knows the model. All are bounded: `rows.py` and `links.py` state the most rows that they take.
"""

from __future__ import annotations

from gnnflow.train.baselines.links import link_baselines
from gnnflow.train.baselines.nodes import node_baselines
from gnnflow.train.baselines.rows import draw_rows

__all__ = ["draw_rows", "link_baselines", "node_baselines"]
