"""The words every other package speaks: edges, batches, the partition book, labels, hashes and errors. NumPy only.

Read `batch.py` first.
"""

from __future__ import annotations
