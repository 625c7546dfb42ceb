"""Rows that are read where they lie give the bytes of rows that are sent, whatever is computed from them and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config import config_from_dict
from gnnflow.executions.sliced import joined_states
from gnnflow.graph.errors import StorageError
from gnnflow.infer import sending
from gnnflow.infer.choice import Exchange
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce import way
from gnnflow.mapreduce.exchange import ExchangeError, Inbox
from gnnflow.mapreduce.mapped import ArrayWriter, Kept, map_arrays
from gnnflow.mapreduce.rounds import Round, RoundRunner, TaskOutput
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.native import core
from gnnflow.stages.infer import planned_way
from tests.budget import examples
from tests.contracts.test_graphinfer import MODELS, SAMPLINGS, prepare, stored
from tests.infer import test_typed as typed

if TYPE_CHECKING:
    from gnnflow.config import RowKind
    from gnnflow.infer.job import InferJob

EXCHANGES = [
    Exchange(),
    Exchange("rows", "every piece"),
    Exchange("rows", "nothing"),
    Exchange("states", "every piece"),
    Exchange("states", "no piece"),
]
ROWS: list[RowKind] = ["float32", "float16", "bfloat16"]


def both_ways(job: InferJob, folder: Path) -> list[Any]:
    """Return the predictions' digests of each way."""
    found = []
    for is_mapped in (False, True):
        way = replace(job, exchange=replace(job.exchange, mapped=is_mapped), artifact=str(folder / f"{is_mapped}"))
        found.append(run_rounds(way, RoundRunner(str(folder / f"work-{is_mapped}"), Synchronous())).files)
    return found


@settings(max_examples=examples(60), deadline=None)
@given(drawn=st.data())
def test_both_ways_give_the_same_bytes(drawn: st.DataObject) -> None:
    """Finds an order of sums, a number of rows in a product or a row taken for another that differs between them."""
    name = drawn.draw(st.sampled_from(sorted(MODELS)))
    sampling = drawn.draw(
        st.sampled_from(["whole", "whole", "uniform", "weighted"] if "median" not in name else ["whole"])
    )
    targets, exchange = drawn.draw(st.sampled_from(["all", (2,)])), drawn.draw(st.sampled_from(EXCHANGES))
    least = drawn.draw(st.sampled_from([1, sending._LEAST_PIECE_BYTES]))
    rows = drawn.draw(st.sampled_from(ROWS))
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "_LEAST_PIECE_BYTES", least)
        job = prepare(
            stored("graph"),
            Path(folder),
            MODELS[name],
            SAMPLINGS[sampling],
            targets=targets,
            embeddings=targets != "all",
        )
        sent, kept = both_ways(replace(job, exchange=exchange, rows=rows), Path(folder))
    assert sent == kept


@pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")
@pytest.mark.parametrize(("name", "sampling"), [("gat", "whole"), ("gcn", "whole"), ("gcn", "weighted")])
def test_sums_and_attention_are_joined_in_one_pass(
    name: str, sampling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finds a condition that sends every layer the slow way, which no comparison of bytes would tell."""
    joined: list[bool] = []

    def noted(*given: Any, **named: Any) -> Any:
        state = joined_states(*given, **named)
        joined.append(state is not None)
        return state

    monkeypatch.setattr("gnnflow.infer.mapped.joined_states", noted)
    job = prepare(stored("graph"), tmp_path, MODELS[name], SAMPLINGS[sampling])
    sent, kept = both_ways(replace(job, exchange=Exchange("rows", "every piece")), tmp_path)
    assert sent == kept
    assert joined
    assert all(joined)


def test_tasks_write_their_rows_to_one_array(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    for task, begin in ((0, 5), (1, 0), (0, 5)):
        with ArrayWriter(str(tmp_path), task) as writer:
            writer.write(Kept("c", {"x": rows[:2] + begin}, 9, begin))
            writer.write(Kept("c", {"x": rows[2:] + begin}, 9, begin + 2))
    found = map_arrays(str(tmp_path / "c"), None, ("x",))["x"]
    assert (found == np.concatenate([rows, np.zeros((1, 3)), rows + 5])).all()


@settings(max_examples=examples(40), deadline=None)
@given(drawn=st.data())
def test_both_ways_give_the_same_bytes_on_typed_graphs(drawn: st.DataObject) -> None:
    """Finds a relation whose rows or states are another's, or whose targets' terms differ in the last bits."""
    kind = drawn.draw(st.sampled_from([*typed.KINDS.values(), typed.RICH]))
    sampling, exchange = (
        drawn.draw(st.sampled_from(["none", "uniform", "weighted"])),
        drawn.draw(st.sampled_from(EXCHANGES)),
    )
    partitions, targets = drawn.draw(st.sampled_from([1, 3])), drawn.draw(st.sampled_from(["all", (2,)]))
    rows = drawn.draw(st.sampled_from(ROWS))
    with TemporaryDirectory() as folder:
        job = typed.prepare(Path(folder), kind, sampling=sampling, partitions=partitions, targets=targets)
        sent, kept = both_ways(replace(job, exchange=exchange, rows=rows), Path(folder))
    assert sent == kept


def test_a_run_goes_on_the_other_way_and_from_another_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds records of one way, or of lost files, that a resumed run takes for done."""
    job = prepare(stored("graph"), tmp_path, MODELS["gat"], SAMPLINGS["whole"])
    expected = both_ways(job, tmp_path / "expected")[0]

    class Broken(RoundRunner):
        def run(self, step: Round) -> Any:
            if step.name == "slice_1":
                raise KeyboardInterrupt
            return super().run(step)

    for is_mapped in (False, True):
        with pytest.raises(KeyboardInterrupt):
            run_rounds(job, Broken(str(tmp_path / "work"), Synchronous()))
        monkeypatch.setattr("gnnflow.mapreduce.rounds.this_boot", lambda: "another boot")
        way = replace(job, exchange=Exchange(mapped=is_mapped))
        assert run_rounds(way, RoundRunner(str(tmp_path / "work"), Synchronous())).files == expected
        monkeypatch.undo()


def test_arrays_come_back_as_runs_of_them_were_kept(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with ArrayWriter(str(tmp_path), 2) as writer:
        for run in (slice(0, 3), slice(3, 4)):
            writer.write(Kept("c", {"x": rows[run], "none": rows[run, :0]}, 4))
    found = map_arrays(str(tmp_path / "c"), 2)
    assert (found["x"] == rows).all()
    assert found["none"].shape == (4, 0)
    assert found["x"].flags.writeable  # torch would copy it otherwise


def test_a_task_that_dies_leaves_no_array(tmp_path: Path) -> None:
    def die() -> None:
        with ArrayWriter(str(tmp_path), 0) as writer:
            writer.write(Kept("c", {"x": np.zeros(3)}))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        die()
    assert not list((tmp_path / "c").iterdir())


def test_a_short_or_lost_array_is_an_error_of_the_exchange(tmp_path: Path) -> None:
    def keep(index: int, inbox: Inbox) -> TaskOutput:
        return TaskOutput(emits=(Kept("c", {"x": np.zeros(1000)}),))

    RoundRunner(str(tmp_path), Synchronous()).run(Round("r", 1, 1, keep, keeps=True))
    inbox, file = Inbox(str(tmp_path), 0, {"c": ("r", (1,))}), tmp_path / "r" / "c" / "00000.x.npy"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(ExchangeError, match="is damaged"):
        inbox.map("c", 0)
    file.unlink()
    with pytest.raises(ExchangeError, match="has 0 of 1 arrays"):
        inbox.map("c", 0)
    with pytest.raises(StorageError):
        inbox.map("c", 0, ("x",))


def test_rows_are_mapped_where_all_tasks_run_on_this_machine_and_files_lie_there(tmp_path: Path) -> None:
    def text_of(workspace: str, cluster: dict[str, str]) -> str:
        content = {"name": "a", "workspace": workspace, "graph": {"nodes": "n", "edges": "e"}, "model": {"kind": "gcn"}}
        return planned_way(config_from_dict({**content, "cluster": cluster})).text

    assert "read where they lie: all tasks" in text_of(str(tmp_path), {"kind": "local"})
    assert "owners send: tasks may run" in text_of(str(tmp_path), {"kind": "address", "address": "tcp://host:1"})
    assert "owners send: the workspace" in text_of("memory://work", {"kind": "synchronous"})


def test_rows_are_sent_where_a_machine_cannot_map_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepare(stored("graph"), tmp_path, MODELS["sage mean"], SAMPLINGS["whole"])
    found = []
    for memory in (1 << 30, 1 << 8):
        monkeypatch.setattr(way, "machine_memory", lambda memory=memory: memory)
        here = replace(job, artifact=str(tmp_path / f"a{memory}"))
        found.append(run_rounds(here, RoundRunner(str(tmp_path / f"w{memory}"), Synchronous())))
    assert [each.way.mapped for each in found] == [True, False]
    assert "more than half of this machine's" in found[1].way.text
    assert found[0].files == found[1].files


def test_mapped_rows_are_counted_as_they_lie_however_they_would_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finds bytes of half precision where files hold float32."""
    job = prepare(stored("graph"), tmp_path, MODELS["sage mean"], SAMPLINGS["whole"])
    monkeypatch.setattr(way, "machine_memory", lambda: 1 << 8)

    def text_of(rows: RowKind) -> str:
        own = replace(job, rows=rows, artifact=str(tmp_path / rows))
        return run_rounds(own, RoundRunner(str(tmp_path / f"work-{rows}"), Synchronous())).way.text

    assert "more than half of this machine's" in text_of("float32")
    assert text_of("float16") == text_of("float32")
