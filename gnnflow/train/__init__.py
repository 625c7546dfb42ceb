"""GraphTrainer: mini-batches planned, prepared ahead and trained on; a killed run ends on the same weights.

Read `trainer.py` first: `train` is the whole of it. `minibatch/` plans and prepares the batches, `fit.py` is the
loop and `checkpoint.py` what survives a kill.
"""

from __future__ import annotations
