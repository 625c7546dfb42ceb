"""Every program compiles for cards of two generations: what the interpreter runs, a card's compiler may refuse."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

# folders with a version of Triton each; else the one that is installed compiles
TRITONS = [each for each in os.environ.get("GNNFLOW_TRITONS", "").split(os.pathsep) if each] or [None]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton: make test-card")
@pytest.mark.parametrize("folder", TRITONS)
def test_every_program_compiles_where_there_is_no_card(folder, tmp_path):
    environment = {name: held for name, held in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    if folder is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(folder).absolute()), str(Path.cwd())])
    command = [sys.executable, "-m", "tests.cuda.compiled"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
