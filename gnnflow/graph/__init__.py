"""The words every other package speaks: blocks, node columns, the partition book, hashes and errors. NumPy only.

Read `block.py` first.
"""

from __future__ import annotations
