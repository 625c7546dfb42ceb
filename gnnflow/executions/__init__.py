"""Where a model runs: `reference` defines the result, every other execution must equal it.

Read `propagate.py` first (one layer over one block), then `minibatch.py` and `sliced.py`.
"""

from __future__ import annotations
