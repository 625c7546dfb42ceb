"""gnnflow in Airflow: one deferrable operator per stage, each a thin shell over `gnnflow.stages`.

Nothing here decides anything about graphs. An operator reads the config, asks whether the stage's artifact is already
committed, and otherwise hands the stage to a Dask cluster (or runs it in the task's own process) and waits without
holding a worker slot. Importing this package loads neither torch nor Dask nor gnnflow's stages: a DAG parses quickly.

The folder is `operators/`; the package is not called so, because that name belongs to the operators of whoever writes
DAGs. Read `stage.py` first (what the operator does), then `submissions.py` (how it talks to Dask), then
`gnnflow/remote/driver.py` (what runs on the worker, which needs nothing of this package). Which stages there are, and
in which order, is `gnnflow.config.stages`: a new row there has an operator.
"""

from __future__ import annotations
