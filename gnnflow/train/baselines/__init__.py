"""Baselines: what a model has to beat, scored by the same metrics on the same targets.

`nodes.py` and `edges.py` predict labels from columns alone (`rows.py` reads the columns of nodes), `links.py` ranks
candidates by counts. None knows the model. All are bounded: `rows.py` and `links.py` state the most rows.
"""

from __future__ import annotations

from gnnflow.train.baselines.edges import draw_edges, edge_baselines
from gnnflow.train.baselines.links import ITEMS_SHOWN, draw_links, items_shown, link_baselines
from gnnflow.train.baselines.nodes import node_baselines
from gnnflow.train.baselines.rows import draw_rows, own_columns

__all__ = [
    "ITEMS_SHOWN",
    "draw_edges",
    "draw_links",
    "draw_rows",
    "edge_baselines",
    "items_shown",
    "link_baselines",
    "node_baselines",
    "own_columns",
]
