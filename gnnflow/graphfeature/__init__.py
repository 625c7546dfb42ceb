"""K-hop neighbourhoods: their protobuf form (GraphFeature), the shards that hold them, and the blocks cut from them.

Read `neighborhood.py` first, then `graph_feature.proto`.
"""

from __future__ import annotations
