"""Every program compiles for cards of two generations: what the interpreter runs, a card's compiler may refuse."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton: make test-card")
def test_every_program_compiles_where_there_is_no_card(tmp_path):
    environment = {name: held for name, held in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.cuda.compiled"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
