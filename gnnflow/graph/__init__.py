"""The types every other package shares: edges, batches, the partition book, labels, hashes and errors. NumPy only.

Read `edges.py` first, then `batch.py`.
"""

from __future__ import annotations
