"""GraphInfer (AGL, VLDB 2020, section 3.4): a K-layer model as K layer slices and a prediction slice over partitions.

Every node's every layer is computed once, where the node lives. Read `run.py` first (the rounds in order), then
`need.py` (which rows each round computes and sends) and `rounds.py` (the slices). `lists.py` makes lists of the best
targets of each source from the embeddings, in rounds after these; `best.py` has what it computes.
"""

from __future__ import annotations
