"""The tasks that defer though their DAG does not say so: all, unless `[operators] default_deferrable` is set to false.

Airflow's own default is false, for operators that mostly wait seconds. A stage takes minutes to days, so it defers
unless an administrator wrote otherwise.
"""

from __future__ import annotations

import os
from configparser import RawConfigParser

_SECTION, _KEY = "operators", "default_deferrable"
_VARIABLE = f"AIRFLOW__{_SECTION.upper()}__{_KEY.upper()}"


def defers(*, said: bool | None) -> bool:
    """Return whether a task defers. said: by its DAG, None where that says nothing."""
    from airflow.sdk.configuration import conf

    if said is not None:
        return said
    # Airflow's own methods do not tell a value that is set from the default.
    is_set = _VARIABLE in os.environ or RawConfigParser.has_option(conf, _SECTION, _KEY)
    return not is_set or bool(conf.getboolean(_SECTION, _KEY))
