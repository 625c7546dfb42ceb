"""Stages: one module each, found by its row in `gnnflow.config.stages`.

The command line and the operators call `perform` of `entry.py` and hold no further logic. Read `resolve.py` first (the
run), then `check.py` (all that would stop it), `base.py` (inputs and results of a stage), `running.py` (its work, done
once) and `pipeline.py` (all stages in order).
"""

from __future__ import annotations
