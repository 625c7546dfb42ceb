"""Imports what all tasks of this package import. A process that forks tasks and has imported this spares each of them.

Airflow's LocalExecutor forks a process for each try of a task from the scheduler's. Nothing imports this by itself,
since it takes memory and a second of the process; docs/airflow.md says how a scheduler does.
"""

from __future__ import annotations

import distributed

import gnnflow.remote.driver
import gnnflow.stages.entry
import gnnflow.stages.running
import gnnflow_airflow.form
import gnnflow_airflow.stages
import gnnflow_airflow.submissions

__all__ = ["distributed", "gnnflow", "gnnflow_airflow"]
