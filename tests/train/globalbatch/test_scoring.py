"""Chosen targets scored in one process: what reaches them is read, and the scores are those of the whole graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnflow.train.globalbatch import logits_of, open_source
from tests.train.globalbatch.stored import job_for, write

SAMPLES = {"every edge": None, "uniform": {"kind": "uniform", "fanout": [3, 2]}}


@pytest.mark.parametrize("sample", SAMPLES)
def test_scores_are_those_of_a_source(tmp_path: Path, sample: str):
    write(tmp_path)
    job = job_for(tmp_path, sampling=SAMPLES[sample])
    model = job.model.build(seed=1)
    with open_source(job) as source:
        expected = source.outputs(model, "test")
    some = expected.targets[2:9:3]
    again = logits_of(model, some, neighbors=job.neighbors)
    np.testing.assert_allclose(again, expected.logits[2:9:3], rtol=1e-4, atol=1e-5)
