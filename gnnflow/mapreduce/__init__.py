"""Rounds over partitions, with the exchange materialised in the workspace. Read `rounds.py` first.

This package and `gnnflow/cluster.py` are, with `train/`, the only ones that know Dask.
"""

from __future__ import annotations
