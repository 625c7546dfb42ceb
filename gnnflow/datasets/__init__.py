"""Graphs as node and edge tables, from other libraries and file formats or generated.

Read `tables.py` first, which has the result. `pyg.py`, `dgl.py`, `networkx.py` and `networkx_files.py` read graphs;
`edge_csv.py` and `other_tables.py` tables of edges, whose columns get their roles in `edge_roles.py` and become a graph
in `edge_building.py`; `triples.py`, `neo4j.py`, `ogb.py` and `elliptic.py` folders of a known form. `specs.py` names a
graph in one line for the command line; `payments.py`, `typed_payments.py` and `power_law.py` make seeded graphs to
learn on and to measure with, `rare_classes.py` graphs with a rare class, and `exports.py` tables as people have them.
No foreign library is imported before its first use, and no pickle is read.
"""

from __future__ import annotations

from gnnflow.datasets.dgl import from_dgl, from_dgl_hetero
from gnnflow.datasets.edge_csv import from_edge_csv
from gnnflow.datasets.exports import write_accounts, write_shop
from gnnflow.datasets.networkx import from_networkx
from gnnflow.datasets.payments import CLASSES, payments, write_payments
from gnnflow.datasets.pieces import SyntheticGraph
from gnnflow.datasets.power_law import power_law, write_power_law
from gnnflow.datasets.pyg import from_pyg, from_pyg_graphs, from_pyg_hetero
from gnnflow.datasets.rare_classes import churn_tables, fraud_tables, write_rare
from gnnflow.datasets.specs import import_graph, import_spec
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, save_tables
from gnnflow.datasets.typed_payments import typed_payments, write_typed_payments

__all__ = [
    "CLASSES",
    "GraphTables",
    "SyntheticGraph",
    "TypedGraphTables",
    "churn_tables",
    "fraud_tables",
    "from_dgl",
    "from_dgl_hetero",
    "from_edge_csv",
    "from_networkx",
    "from_pyg",
    "from_pyg_graphs",
    "from_pyg_hetero",
    "import_graph",
    "import_spec",
    "payments",
    "power_law",
    "save_tables",
    "typed_payments",
    "write_accounts",
    "write_payments",
    "write_power_law",
    "write_rare",
    "write_shop",
    "write_typed_payments",
]
