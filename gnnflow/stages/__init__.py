"""When work is done: one module per stage, found by its row in `gnnflow.config.stages`.

The command line and the operators call `run_stage` and hold no logic of their own. Read `resolve.py` first (what a run
is), then `base.py` (how a stage's work is done once), then `pipeline.py` (all stages in order).
"""

from __future__ import annotations
