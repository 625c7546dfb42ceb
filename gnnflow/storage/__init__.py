"""The only home of fsspec and Parquet: filesystems, tables, manifests and the workspace's layout.

Read `manifest.py` first: a stage's output exists when its manifest does, and not before.
"""

from __future__ import annotations
