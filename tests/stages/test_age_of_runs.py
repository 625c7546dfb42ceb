"""A run is as old as its completion, whatever of its folder is made again later."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from gnnflow.stages import pipeline
from gnnflow.stages.report import report_of
from gnnflow.storage.documents import encode_document
from gnnflow.storage.run_folder import age_of_run, list_runs
from gnnflow.storage.workspace import Workspace
from tests.small_graphs import graph_config, write_graph


@pytest.mark.parametrize("is_older", [False, True], ids=["now", "earlier version"])
@pytest.mark.parametrize("lost", ["report.html", "metrics.json"])
def test_a_file_that_is_made_again_makes_no_run_the_latest(tmp_path: Path, lost: str, *, is_older: bool) -> None:
    write_graph(tmp_path)
    train = {"epochs": 1, "threads": 1}
    configs = [graph_config(tmp_path, name=name, train=train) for name in ("first", "second")]
    runs = [pipeline.run_quietly(config).uri for config in configs]
    if is_older:  # a record without its time has the time of its file
        for run, age in zip(runs, (7200, 3600), strict=True):
            record = Path(run, "run.json")
            held = json.loads(record.read_text())
            assert held.pop("at") > "2000"
            held.pop("checksum")
            record.write_bytes(encode_document(held))
            os.utime(record, (time.time() - age,) * 2)
    Path(runs[0], lost).unlink()
    if lost == "report.html":
        report_of(runs[0], workspace=configs[0].workspace)
    else:
        pipeline.run_quietly(configs[0])
    assert Path(runs[0], lost).exists()
    assert list_runs(Workspace.at(configs[0].workspace)) == runs
    if is_older:
        assert 7200 <= age_of_run(runs[0]) < 7300
