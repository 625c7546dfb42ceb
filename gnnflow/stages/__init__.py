"""When work is done: one module a stage, each `run(context) -> StageResult`.

The command line and the Airflow operators call these functions and hold no logic of their own. Read `base.py` first,
then `pipeline.py`.
"""

from __future__ import annotations
