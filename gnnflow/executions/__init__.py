"""Executions run a model: `reference` defines the result, every other execution must equal it.

Read `base.py` first (one layer's pass, and what a new execution provides), then `minibatch.py` and `sliced/slices.py`;
`propagate.py` has the work on one block, `relations.py` a layer of all relations, and
`table.py` the list of executions.
"""

from __future__ import annotations
