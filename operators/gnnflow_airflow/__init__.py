"""gnnflow in Airflow: one deferrable operator per stage, each a thin shell over `gnnflow.stages`.

Nothing here decides anything about graphs. An operator reads the config and looks for the committed artifact of its
stage. If there is none, it submits the stage to a Dask cluster (or runs it in the task's process) and waits without
holding a worker slot. Importing this package loads neither torch nor Dask nor gnnflow's stages: a DAG parses quickly.

The folder is `operators/`, but the package has another name, since authors of DAGs may have their own `operators`. Read
`stage.py` first (the operator), then `submissions.py` (its requests to Dask), then `gnnflow/remote/driver.py` (the code
on the worker, which does not import this package). `gnnflow.config.stages` lists the stages in order: a new row there
has an operator.
"""

from __future__ import annotations
