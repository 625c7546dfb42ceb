"""GraphTrainer: steps from a source, weights from an updater; a killed run ends on the same weights.

Read `trainer.py` first: `train` is the whole of it. `fit.py` is the loop, `source.py` and `updater.py` say what a
strategy and a way to update have to provide, `minibatch/` is the strategy over GraphFlat's shards, and
`checkpoint.py` what survives a kill. What is minimised is `objective.py` with `losses.py`, at which rate `schedule.py`,
and how good it became `metrics.py` with `intervals.py`.
"""

from __future__ import annotations
