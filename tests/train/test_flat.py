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

EPOCHS = 1200
SAMPLES = 5  # from each mark on, at some 25 epochs each: the least is without what comes and goes, as half a checkpoint
MARKS = (100, 500, 1000)
FEW_BYTES = 16 << 20  # the history itself is some two megabytes
FEW_FILES = 8  # one kept in a hundred epochs would be 9; Dask has a connection more for each call of its own under way
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

uri, marks, samples, epochs, keys, leaks = sys.argv[1], *map(json.loads, sys.argv[2:])
graph = planted()

def close_idle(dask_worker=None, dask_scheduler=None):
    """Close the connections that Dask keeps for later calls: of as many as were ever under way at once."""
    (dask_worker or dask_scheduler).rpc.collect()

def held():
    gc.collect()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * os.sysconf("SC_PAGESIZE"), len(os.listdir("/proc/self/fd")), "TRAINS" in os.environ

class Measuring(Silent):
    client, left = None, dict.fromkeys(marks, samples)
    def step(self, name, done, total, fields):
        mark = max((each for each in marks if each <= done * epochs // total), default=None)
        if mark is not None and self.left[mark]:
            sample = self.sample()
            if sum(trains for _, _, trains in sample) == keys.get("workers", 1):  # and has not ended meanwhile
                self.left[mark] -= 1
                print(json.dumps([mark, *(each[:2] for each in sample)]), flush=True)
    def sample(self):
        if not self.client:
            return [held()]
        self.client.run(close_idle)
        self.client.run_on_scheduler(close_idle)
        self.client.sync(self.close_own)
        workers = sorted(self.client.run(held).items())
        return [held(), *(each for _, each in workers)]
    async def close_own(self):
        self.client.rpc.collect()

class Watched:
    """A source whose process says so while it trains; it may keep an open file and 64 KiB of every epoch."""
    def __init__(self, source):
        self.source, self.kept = source, []
    def __getattr__(self, name):
        return getattr(self.source, name)
    def __enter__(self):
        self.source.__enter__()
        os.environ["TRAINS"] = "yes"
        return self
    def __exit__(self, *raised):
        del os.environ["TRAINS"]
        self.source.__exit__(*raised)
    def steps(self, epoch, *, since):
        if leaks:
            self.kept.append((open("/proc/self/statm"), b"x" * (64 << 10)))
        return self.source.steps(epoch, since=since)
    def step(self, epoch, number, **keys):
        if leaks and not number:
            self.kept.append((open("/proc/self/statm"), b"x" * (64 << 10)))
        return self.source.step(epoch, number, **keys)

def opened(job, *, edges):
    return Watched(graph.open_source(job, edges=edges))

job = job_for(graph, uri=uri, epochs=epochs, batch_size=60, patience=0, checkpoint_steps=2, **keys)
progress = Measuring()
if "workers" in keys:
    with Cluster(LocalCluster(workers=keys["workers"] + ("updater" in keys), memory_limit="2GiB")) as cluster:
        progress.client = cluster.dask_client()
        result = train_on_ranks(job, progress.client, progress=progress, open_source=opened).result
else:
    result = train(job, progress=progress, open_source=opened)
assert len(result.history) == epochs
'''


def measured(folder: Path, epochs: int, marks: tuple[int, ...], ranks: str, *, leaks: bool = False) -> list[Any]:
    """Return, for each mark, the least (bytes, open files) of its samples: of the driver and of each worker."""
    told = [json.dumps(each) for each in (marks, SAMPLES, epochs, RANKS[ranks], leaks)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), *told], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    samples = [[row[1:] for row in rows if row[0] == mark] for mark in marks]
    assert all(len(of_mark) > SAMPLES // 2 for of_mark in samples), "it ended before it was looked at"
    return [[tuple(map(min, zip(*held, strict=True))) for held in zip(*of_mark, strict=True)] for of_mark in samples]


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
    early, late = measured(tmp_path, 600, (50, 350), ranks, leaks=True)
    trained = slice(1, None) if ranks == "two" else slice(None)
    for (early_bytes, early_files), (late_bytes, late_files) in zip(early[trained], late[trained], strict=True):
        assert late_files > early_files + 250
        assert late_bytes - early_bytes > FEW_BYTES
