"""A long training run holds no more memory and no more open files late than early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

EPOCHS = 1000
FEW_BYTES = 16 << 20  # the history itself is some two megabytes, and what a checkpoint encodes comes and goes

MEASURED = """
import gc, os, sys
from pathlib import Path
from gnnflow.progress import Silent
from gnnflow.train import fit_run
from gnnflow.train.trainer import train
from tests.train.planted import job_for, planted

fit_run.CHECKPOINT_SECONDS = 0.0  # one after every epoch

class Measuring(Silent):
    def __init__(self):
        self.epoch = -1
    def step(self, name, done, total, fields):
        reached = done * EPOCHS // total
        for mark in (100, EPOCHS - 1):
            if self.epoch < mark <= reached:
                gc.collect()
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                print(pages * os.sysconf("SC_PAGESIZE"), len(os.listdir("/proc/self/fd")), flush=True)
        self.epoch = reached

EPOCHS = int(sys.argv[2])
graph = planted()
result = train(job_for(graph, uri=sys.argv[1], epochs=EPOCHS), progress=Measuring(), open_source=graph.open_source)
assert len(result.history) == EPOCHS
"""


@pytest.mark.slow
def test_a_thousand_epochs_hold_no_more_than_a_hundred(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path), str(EPOCHS)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    (early, early_files), (late, late_files) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert late_files <= early_files + 1  # a checkpoint may be half-written at either moment
    assert late - early < FEW_BYTES, f"{early} bytes after 100 epochs, {late} after {EPOCHS}"
    assert [file.name for file in tmp_path.iterdir()] == ["train.safetensors"]
