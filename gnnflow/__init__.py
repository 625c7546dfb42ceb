"""gnnflow trains and serves graph neural networks on graphs that do not fit in one machine's memory.

Read these five files first: `graph/batch.py` (the words: blocks, features, batches), `layers/base.py` (what a layer
is), `mapreduce/rounds.py` (how work is spread, committed and resumed), `graphflat/job.py` (a stage as rounds) and
`stages/base.py` (fingerprints, reuse and the commit).
"""

from __future__ import annotations

__version__ = "0.1.0"
