"""K-hop neighbourhoods: their protobuf form (GraphFeature), the shards that hold them, and the blocks cut from them.

Read `neighborhood.py` first, then `graph_feature.proto`. For readers outside gnnflow there are the generated class and
`read_graph_features`; docs/shards.md describes the files.
"""

from __future__ import annotations

from gnnflow.graphfeature.graph_feature_pb2 import GraphFeature, TypeFeatures
from gnnflow.graphfeature.messages import read_graph_features

__all__ = ["GraphFeature", "TypeFeatures", "read_graph_features"]
