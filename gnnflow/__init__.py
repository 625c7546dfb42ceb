"""gnnflow trains and serves graph neural networks on graphs that do not fit in one machine's memory.

Read these first: `graph/block.py` (the words), `layers/base.py` (what is computed), `executions/propagate.py` (where),
`mapreduce/rounds.py` (how work is spread), `stages/base.py` (when).
"""

from __future__ import annotations

__version__ = "0.1.0"
