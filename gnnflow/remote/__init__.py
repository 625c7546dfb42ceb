"""A stage as one task of a Dask cluster: its driver, and its reports to the submitter.

The submitter (an Airflow operator) needs only this package on the workers. Read `driver.py` first.
"""

from __future__ import annotations
