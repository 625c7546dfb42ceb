"""Layers, their aggregations, and the model that they form; `executions` run it.

Read `base.py` (the contract), `aggregation.py` (monoids), then `gcn.py` as the shortest example.
"""

from __future__ import annotations

from gnnflow.layers.aggregation import Aggregation, Max, Mean, Slots, State, Sum, Whole
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.gat import GAT
from gnnflow.layers.gat_e import GATE
from gnnflow.layers.gcn import GCN
from gnnflow.layers.ggcn import GGCN
from gnnflow.layers.ggnn import GGNN
from gnnflow.layers.gin import GIN
from gnnflow.layers.hgt import HGT
from gnnflow.layers.kinds import build_layer, load_layer_class
from gnnflow.layers.levels import Levels
from gnnflow.layers.magnn import MAGNN
from gnnflow.layers.messages import Messages
from gnnflow.layers.model import Model, ModelInputs, build_model
from gnnflow.layers.pgnn import PGNN
from gnnflow.layers.pinsage import PinSage
from gnnflow.layers.place import Place
from gnnflow.layers.relational import RelationLayers
from gnnflow.layers.rgcn import RGCN
from gnnflow.layers.sage import GraphSAGE
from gnnflow.layers.saved import load_model, save_model
from gnnflow.layers.terms import EdgeContext, FeatureTensors, NodeContext, Terms
from gnnflow.layers.typed import TypedFeatureTensors, TypedInputs, TypeInputs

__all__ = [
    "GAT",
    "GATE",
    "GCN",
    "GGCN",
    "GGNN",
    "GIN",
    "HGT",
    "MAGNN",
    "PGNN",
    "RGCN",
    "Aggregation",
    "EdgeContext",
    "FeatureTensors",
    "GraphSAGE",
    "Layer",
    "Levels",
    "Max",
    "Mean",
    "Messages",
    "Model",
    "ModelInputs",
    "NodeContext",
    "PinSage",
    "Place",
    "RelationLayers",
    "Slots",
    "SoftmaxAttention",
    "State",
    "Sum",
    "Terms",
    "TypeInputs",
    "TypedFeatureTensors",
    "TypedInputs",
    "Whole",
    "build_layer",
    "build_model",
    "load_layer_class",
    "load_model",
    "save_model",
]
