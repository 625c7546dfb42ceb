"""What is computed: layers, the aggregations they use, and the model they form. Where it runs is `executions`.

Read `base.py` (the contract), `aggregation.py` (monoids), then `gcn.py` as the shortest example.
"""

from __future__ import annotations

from gnnflow.layers.aggregation import Aggregation, Max, Mean, Messages, SoftmaxAttention, State, Sum
from gnnflow.layers.base import Layer
from gnnflow.layers.gat import GAT
from gnnflow.layers.gat_e import GATE
from gnnflow.layers.gcn import GCN
from gnnflow.layers.gin import GIN
from gnnflow.layers.kinds import BUILT_IN, build_layer, load_layer_class
from gnnflow.layers.model import Model, ModelSpec, build_model
from gnnflow.layers.sage import GraphSAGE
from gnnflow.layers.terms import EdgeContext, FeatureTensors, NodeContext, Terms

__all__ = [
    "BUILT_IN",
    "GAT",
    "GATE",
    "GCN",
    "GIN",
    "Aggregation",
    "EdgeContext",
    "FeatureTensors",
    "GraphSAGE",
    "Layer",
    "Max",
    "Mean",
    "Messages",
    "Model",
    "ModelSpec",
    "NodeContext",
    "SoftmaxAttention",
    "State",
    "Sum",
    "Terms",
    "build_layer",
    "build_model",
    "load_layer_class",
]
