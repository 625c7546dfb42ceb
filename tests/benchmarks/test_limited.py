"""GraphInfer over an exchange of limited rate: overlapping and states are worth their while, bytes and seconds."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from infer import WAYS, WORK, job_of
from limited import link

from gnnflow.infer.job import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.removal import remove_tree
from gnnflow.storage.tables import read_table

if TYPE_CHECKING:
    from pathlib import Path

    from limited import Link

    from gnnflow.infer.job import InferJob

APART, BESIDE = "rows, one after the other", "as it is chosen"
SIZES = {"nodes": 20_000, "edges": 200_000, "partitions": 4, "model": "sage", "hidden": 32}


def job(folder: Path, **changes: int) -> InferJob:
    """Return the job that scores a power-law graph, or one whose edges lead to few nodes, and run it once."""
    given = {"inward": 0, "merchants": 0, "store_behind_link": True}
    made = job_of(Namespace(**(SIZES | given | changes), data=folder))
    scored(made, APART)
    return made


def scored(job: InferJob, way: str, **limits: float) -> tuple[Link, float, np.ndarray]:
    """Return what the link carried, seconds of the slices, and the scores."""
    with link(**({"mib_per_second": 0.0} | limits)) as carried:
        runner = RoundRunner(WORK, Synchronous())
        result = run_rounds(replace(job, exchange=WAYS[way]), runner)
    remove_tree(WORK)
    seconds = sum(timing.seconds for timing in runner.timings if timing.name.startswith("slice"))
    scores = np.concatenate([to_matrix(read_table(f"{job.artifact}/{e.name}")["probabilities"]) for e in result.files])
    return carried, seconds, scores


def test_states_of_few_targets_carry_little_more_than_half_the_bytes(tmp_path: Path) -> None:
    few = job(tmp_path, inward=1, edges=400_000)
    by_rows, _, first = scored(few, "rows, fetched beside the block")
    chosen, _, second = scored(few, BESIDE)
    assert chosen.written < 0.6 * by_rows.written
    assert np.abs(first - second).max() < 1e-5


def test_states_into_few_merchants_save_a_fifth_of_the_bytes(tmp_path: Path) -> None:
    paid = job(tmp_path, merchants=200)
    by_rows, _, first = scored(paid, "rows, fetched beside the block")
    chosen, _, second = scored(paid, BESIDE)
    assert chosen.written < 0.8 * by_rows.written
    assert np.abs(first - second).max() < 1e-5


@pytest.mark.slow
def test_fetching_beside_the_block_is_worth_11_percent_of_all_slices_and_changes_no_bit(tmp_path: Path) -> None:
    any_graph = job(tmp_path)
    # as of an object store: the link is shared by all that is read and written, a request waits before its bytes come
    limits = {"mib_per_second": 100.0, "seconds_per_request": 0.03}
    shares: list[float] = []
    while len(shares) < 3 and min(shares, default=1.0) >= 0.89:  # what else the machine does may slow either of them
        _, apart, first = scored(any_graph, APART, **limits)
        _, beside, second = scored(any_graph, BESIDE, **limits)
        assert np.array_equal(first, second)
        shares.append(beside / apart)
    assert min(shares) < 0.89, shares
