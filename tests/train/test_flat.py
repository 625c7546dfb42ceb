"""A long training run holds no more memory and no more open files late than early, in any of its processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

EPOCHS = 1000
MARKS = (100, 500, EPOCHS - 1)
FEW_BYTES = 16 << 20  # the history itself is some two megabytes, and what a checkpoint encodes comes and goes
FEW_FILES = 2  # a checkpoint may be half-written at any moment, and Dask's connections come and go
SERVER = {"kind": "parameter_server", "mode": "synchronous"}
RANKS: dict[str, dict[str, Any]] = {"one": {}, "two": {"workers": 2}, "server": {"workers": 2, "updater": SERVER}}
ON_WORKERS = pytest.param("two", marks=pytest.mark.distributed)

MEASURED = '''
import gc, json, os, sys
from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.trainer import train
from gnnflow.progress import Silent
from tests.train.planted import job_for, planted

uri, marks, epochs, keys, leaks = sys.argv[1], *map(json.loads, sys.argv[2:])
graph = planted()

def held():
    gc.collect()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * os.sysconf("SC_PAGESIZE"), len(os.listdir("/proc/self/fd"))

class Measuring(Silent):
    client, epoch = None, -1
    def step(self, name, done, total, fields):
        reached = done * epochs // total
        for mark in marks:
            if self.epoch < mark <= reached:
                workers = sorted(self.client.run(held).items()) if self.client else []
                print(json.dumps([mark, held(), *(each for _, each in workers)]), flush=True)
        self.epoch = reached

class Leaking:
    """A source that keeps an open file and 64 KiB of every epoch."""
    def __init__(self, source):
        self.source, self.kept = source, []
    def __getattr__(self, name):
        return getattr(self.source, name)
    def __enter__(self):
        self.source.__enter__()
        return self
    def __exit__(self, *raised):
        self.source.__exit__(*raised)
    def steps(self, epoch, *, since):
        self.kept.append((open("/proc/self/statm"), b"x" * (64 << 10)))
        return self.source.steps(epoch, since=since)

def opened(job, *, edges):
    source = graph.open_source(job, edges=edges)
    return Leaking(source) if leaks else source

job, progress = job_for(graph, uri=uri, epochs=epochs, batch_size=60, checkpoint_steps=2, **keys), Measuring()
if "workers" in keys:
    with Cluster(LocalCluster(workers=keys["workers"] + ("updater" in keys), memory_limit="2GiB")) as cluster:
        progress.client = cluster.dask_client()
        result = train_on_ranks(job, progress.client, progress=progress, open_source=opened).result
else:
    result = train(job, progress=progress, open_source=opened)
assert len(result.history) == epochs
'''


def measured(folder: Path, epochs: int, marks: tuple[int, ...], ranks: str, *, leaks: bool = False) -> list[Any]:
    """Return, for each mark, (bytes, open files) of the driver and of each worker."""
    told = [json.dumps(each) for each in (marks, epochs, RANKS[ranks], leaks)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), *told], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    return [json.loads(line)[1:] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("ranks", ["one", ON_WORKERS, pytest.param("server", marks=pytest.mark.distributed)])
def test_a_thousand_epochs_hold_no_more_than_a_hundred(
    tmp_path: Path, ranks: str, record_property: Callable[[str, object], None]
) -> None:
    held = measured(tmp_path, EPOCHS, MARKS, ranks)
    record_property(f"bytes and open files of the driver and each worker after {MARKS} epochs", held)
    for later in held[1:]:
        for (early_bytes, early_files), (late_bytes, late_files) in zip(held[0], later, strict=True):
            assert late_files <= early_files + FEW_FILES
            assert late_bytes - early_bytes < FEW_BYTES, held
    assert [file.name for file in tmp_path.iterdir()] == ["train.safetensors"]


@pytest.mark.parametrize("ranks", ["one", ON_WORKERS])
def test_a_file_and_64_kib_that_each_epoch_keeps_would_be_seen(tmp_path: Path, ranks: str) -> None:
    early, late = measured(tmp_path, 400, (50, 399), ranks, leaks=True)
    trained = slice(1, None) if ranks == "two" else slice(None)
    for (early_bytes, early_files), (late_bytes, late_files) in zip(early[trained], late[trained], strict=True):
        assert late_files > early_files + 300
        assert late_bytes - early_bytes > FEW_BYTES
