"""On a typed graph rows or partial states are chosen by relation, and either gives what the plain definition gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.infer import choice
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from tests.infer.test_states import WAYS
from tests.infer.test_typed import KINDS, assert_as_defined, predictions, prepare

if TYPE_CHECKING:
    from pathlib import Path


TAKE_STATES: dict[str, dict[str, Any]] = {
    "sage": KINDS["sage"],
    "sage max": {"kind": "sage", "aggregator": "max", "across": "max"},
    "gcn": {"kind": "gcn", "across": "attention"},
    "gin": {"kind": "gin", "across": "mean"},
    "rgcn": KINDS["rgcn"],
    "norm and residual": {"kind": "sage", "head": "jumping", "layers": 3, "norm": "layer", "residual": True},
}
NUM_RELATIONS = 5
CASES = [(model, way, "uniform") for model in TAKE_STATES for way in WAYS]
CASES += [("sage", "both", sampling) for sampling in ("none", "by relation", "weighted", "top_k")]
CASES += [("gcn", "both", "weighted"), ("rgcn", "states", "none")]
CASES += [(model, way, "uniform") for model in ("gat", "gat_e", "han", "hgt") for way in WAYS]
CASES += [("han", "both", sampling) for sampling in ("none", "by relation", "weighted", "top_k")]


@pytest.mark.table(40)
@pytest.mark.parametrize(("model", "way", "sampling"), CASES)
def test_either_choice_equals_reference(tmp_path: Path, model: str, way: str, sampling: str) -> None:
    job = prepare(tmp_path, (TAKE_STATES | KINDS)[model], sampling=sampling, partitions=3, exchange=WAYS[way])
    assert_as_defined(job, predictions(job, tmp_path))


def test_states_are_sent_in_each_relation_that_crosses_partitions(tmp_path: Path) -> None:
    job = prepare(tmp_path, KINDS["sage"], partitions=3, exchange=WAYS["states"])
    sent = run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous())).sent
    # accounts alone are scored: the last layer reads the three relations into them, the first all five
    assert (sent.sends, sent.as_states) == (6 * (3 + NUM_RELATIONS),) * 2


def test_relations_choose_on_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "LEAST_SAVED_BYTES", 0)
    job = prepare(tmp_path, {**KINDS["sage"], "hidden": 64}, partitions=2)
    sent = run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous())).sent
    assert 0 < sent.as_states < sent.sends
    assert 0 < sent.saved_bytes < sent.row_bytes
    (tmp_path / "work").rename(tmp_path / "before")
    assert_as_defined(job, predictions(job, tmp_path))
