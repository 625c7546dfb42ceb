"""Graphs of other libraries and file formats as node and edge tables.

`tables.py` says what comes out; `pyg.py`, `dgl.py`, `networkx.py` and `edge_csv.py` each read one kind of graph;
`specs.py` names a graph in one line for the command line. Read `tables.py` first. No foreign library is imported until
it is asked for, and no pickle is ever read.
"""

from __future__ import annotations

from gnnflow.interop.dgl import from_dgl, from_dgl_hetero
from gnnflow.interop.edge_csv import from_edge_csv
from gnnflow.interop.networkx import from_networkx
from gnnflow.interop.pyg import from_pyg, from_pyg_graphs, from_pyg_hetero
from gnnflow.interop.specs import import_graph, import_spec
from gnnflow.interop.tables import GraphTables, TypedGraphTables, save_tables

__all__ = [
    "GraphTables",
    "TypedGraphTables",
    "from_dgl",
    "from_dgl_hetero",
    "from_edge_csv",
    "from_networkx",
    "from_pyg",
    "from_pyg_graphs",
    "from_pyg_hetero",
    "import_graph",
    "import_spec",
    "save_tables",
]
