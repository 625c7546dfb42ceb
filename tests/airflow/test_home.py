"""Airflow's throw-away home leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY


def test_the_home_of_tests_is_gone_with_their_process(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    code = "import tests.airflow.conftest"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=REPOSITORY, check=True)
    assert not list(tmp_path.iterdir())
