"""A stage as one task of a Dask cluster: what its driver does there, and what it tells whoever waits.

Whoever submits a stage (the Airflow operators do) needs this package on the workers and nothing of its own. Read
`driver.py` first.
"""

from __future__ import annotations
