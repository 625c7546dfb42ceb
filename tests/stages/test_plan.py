"""What a plan says of a run before it runs, and what it leaves behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.errors import TableError, TrainingError
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.forecast import Forecast, StageForecast, error_of, full_cost, growth_of
from gnnflow.stages.plan import budget_text, plan_run
from gnnflow.stages.rehearsal import RUN, Cost, Rehearsal
from gnnflow.stages.running import make_artifact
from gnnflow.train.hybrid import open_task_source
from gnnflow.train.minibatch.memory import array_bytes
from tests.command_line import run_cli
from tests.small_graphs import graph_config, write_graph
from tests.train.globalbatch.stepping import opened
from tests.train.on_stores import job_of
from tests.train.ranks.together import together
from tests.typed_graphs import typed_tables, write_tables

SHARDS = {"train": {"epochs": 5_000, "batch_size": 64}}
GLOBAL = {"train": {"strategy": "global-batch", "epochs": 5_000}}
HYBRID = {"train": {"parallel": "hybrid", "epochs": 5_000, "batch_size": 64}}
LINKS = {"task": {"kind": "link"}, "train": {"metric": "mrr", "epochs": 2}}


def context_of(folder: Path, **sections: Any) -> StageContext:
    return StageContext.of(graph_config(folder, **{"model": {"kind": "gcn", "hidden": 4}, **sections}))


def files(folder: Path) -> list[str]:
    return sorted(str(each) for each in folder.rglob("*") if each.is_file())


@pytest.mark.table(2)
@pytest.mark.slow
@pytest.mark.parametrize("sections", [SHARDS, GLOBAL, HYBRID, LINKS], ids=["shards", "global-batch", "hybrid", "links"])
def test_a_plan_says_what_each_stage_writes_and_leaves_nothing(tmp_path: Path, sections: dict[str, Any]) -> None:
    write_graph(tmp_path, num_nodes=2_000, num_edges=8_000)
    context = context_of(tmp_path, **sections)
    before = files(tmp_path)
    forecast = plan_run(context, limit=0)
    assert files(tmp_path) == before
    assert not (tmp_path / "runs" / "work").exists()
    assert [each.stage for each in forecast.stages] == [*context.run.stages, "run"]
    assert (forecast.num_nodes, forecast.num_edges, forecast.one_in) == (2_000, 8_000, (4, 1))
    assert all(each.seconds > 0 and not each.is_done for each in forecast.stages)
    # The larger of the two rehearsals was of the graph itself, so what is written is what it wrote.
    for each in forecast.stages[:2]:
        made = make_artifact(context, each.stage)
        assert each.num_bytes == sum(file.size for file in made.manifest.files)
    trained = next(each for each in forecast.stages if each.stage == "train")
    assert trained.epochs == context.config.train.epochs
    assert trained.seconds >= trained.epochs * trained.epoch_seconds > 0


@pytest.mark.parametrize(("limit", "rehearsed"), [(0, (16, 4)), (10, (16, 4)), (60, (16, 4, 1)), (None, (16, 4))])
def test_rehearsals_end_where_a_larger_graph_would_go_beyond_their_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float | None, rehearsed: tuple[int, ...]
) -> None:
    def rehearse(context: StageContext, *, one_in: int, completes: bool, **_: Any) -> Rehearsal:
        seconds = 1 + 40 / one_in
        costs = {stage: Cost(seconds / 5, 0, 0, 0) for stage in context.run.stages}
        costs |= {RUN: Cost(2, 0, 0, 0)} if completes else {}
        return Rehearsal(one_in, context.run.partitions, costs, seconds)

    monkeypatch.setattr("gnnflow.stages.plan.rehearse", rehearse)
    write_graph(tmp_path, num_nodes=10_000, num_edges=150_000)
    forecast = plan_run(context_of(tmp_path), limit=limit)
    assert forecast.one_in == rehearsed
    assert sum(each.seconds for each in forecast.stages) == pytest.approx(41 + 2)
    assert "the time may be wrong by " in "\n".join(forecast.lines())


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["one type", "several types"])
def test_a_budget_that_training_would_refuse_is_refused_by_the_plan(tmp_path: Path, graph: str) -> None:
    train = {"strategy": "global-batch", "epochs": 2, "memory": "70MiB"}
    if graph == "one type":
        write_graph(tmp_path, num_nodes=40_000, num_edges=300_000)
        section: dict[str, Any] = {"partitions": 1}
    else:
        tables = typed_tables(num_edges=100_000)
        section = {**write_tables(tmp_path, tables), "partitions": 1}
    context = StageContext.of(graph_config(tmp_path, graph=section, train=train))
    said = plan_run(context, limit=0).budget
    with pytest.raises(TrainingError) as refused:
        pipeline.run(context)
    needed = [int(re.search(r"(\d+)MiB are needed", text).group(1)) for text in (said, str(refused.value))]
    assert said.startswith("train would be refused: train.memory: 70MiB is not enough")
    assert needed[0] == pytest.approx(needed[1], rel=0.05)
    roomy = {**train, "memory": "1GiB"}
    context = StageContext.of(graph_config(tmp_path, graph=section, train=roomy))
    assert "train keeps train.memory with" in [*plan_run(context, limit=0).lines()][-1]


def test_what_is_not_planned_of_a_budget_is_said(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=10, num_edges=20)
    for train, said in (({}, ""), ({"workers": 2}, "with several ranks"), ({"device": "cuda"}, "on a GPU")):
        budget = {"memory": "1GiB", **train} if train else {}
        cluster = {"kind": "local", "workers": 2}
        config = graph_config(tmp_path, train={"strategy": "global-batch", **budget}, cluster=cluster)
        found = budget_text(StageContext.of(config), times=1, partitions=4)
        assert said in found
        assert bool(found) == bool(said)


def test_a_plan_tells_a_hybrid_ranks_memory(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=4_000, num_edges=40_000, width=16)
    train = {"parallel": "hybrid", "batch_size": 64, "workers": 2}
    config = graph_config(tmp_path, train=train, cluster={"kind": "local", "workers": 2})
    context, job = StageContext.of(config), job_of(config)

    def on(group: Any) -> tuple[int, int]:
        with opened(open_task_source, job, group) as source:
            part, batch = source.shares[0].part, next(source.steps(0, since=0)).batch
            return part.num_bytes, array_bytes(batch.tensors)

    graph, batch = np.array(together(on, 2)).max(0)
    for times in (1, 3):
        said = budget_text(context, times=times, partitions=3)
        assert said.startswith("a rank of 2 holds about ")
        told = [float(size) * {"kB": 1e3, "MB": 1e6}[unit] for size, unit in re.findall(r"([\d.]+) (kB|MB)", said)]
        assert told[0] == pytest.approx(times * graph, rel=0.1)
        assert 0.4 * batch <= told[1] <= batch


@pytest.mark.slow
def test_types_of_nodes_are_planned_as_well(tmp_path: Path) -> None:
    graph = write_tables(tmp_path, typed_tables(num_edges=300))
    context = StageContext.of(graph_config(tmp_path, graph=graph, train={"epochs": 2}))
    assert [each.stage for each in plan_run(context, limit=0).to_do] == [*context.run.stages, "run"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hash", "metis"])
def test_many_partitions_are_rehearsed_as_fewer_unless_they_hold_clusters(tmp_path: Path, kind: str) -> None:
    write_graph(tmp_path, num_nodes=400, num_edges=2_000)
    sections: dict[str, Any] = {"train": {"epochs": 2}}
    if kind == "metis":
        sections = {"train": {"strategy": "cluster-batch", "epochs": 2}, "partition": {"kind": kind, "clusters": 60}}
    told: list[str] = []
    heard = Silent()
    heard.message = told.append  # type: ignore[method-assign]
    config = graph_config(tmp_path, graph={"partitions": 20}, **sections)
    forecast = plan_run(StageContext.of(config, progress=heard), limit=0)
    counts = [int(number) for number in re.findall(r"(\d+) partitions", " ".join(told))]
    assert counts == ([16, 16, 16, 32] if kind == "hash" else [20, 20, 20])
    assert forecast.partitions == 20


def test_what_is_done_is_told_from_its_manifest(tmp_path: Path) -> None:
    write_graph(tmp_path)
    context = context_of(tmp_path, train={"epochs": 2})
    made = make_artifact(context, "ingest")
    forecast = plan_run(context, limit=0)
    assert [each.stage for each in forecast.stages if each.is_done] == ["ingest"]
    assert forecast.stages[0].seconds == made.manifest.timings["seconds"]
    assert forecast.stages[0].num_bytes == sum(file.size for file in made.manifest.files)
    assert forecast.seconds >= sum(each.seconds for each in forecast.stages[1:])

    pipeline.run(context)
    before = files(tmp_path)
    complete = plan_run(context, limit=0)
    assert not complete.to_do
    assert complete.seconds == 0
    assert complete.one_in == ()  # nothing was rehearsed
    assert [*complete.lines()][-1] == "nothing to do: this run is complete"
    assert files(tmp_path) == before


def test_what_rehearsals_find_wrong_is_said_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as where the first rows, which are looked at before, show nothing
    monkeypatch.setattr("gnnflow.stages.plan.check_run", lambda *_: None)
    write_graph(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    place = edges.column_names.index("dst")
    bad = edges.set_column(place, "dst", pa.array(np.full(edges.num_rows, 10_000)))
    pq.write_table(bad, tmp_path / "edges.parquet")
    context = context_of(tmp_path)
    before = files(tmp_path)
    with pytest.raises(TableError) as raised:
        plan_run(context, limit=0)
    assert "gnnflow ingest" in str(raised.value)
    assert "work" not in str(raised.value)
    assert files(tmp_path) == before


@pytest.mark.slow
def test_the_command_prints_a_line_per_stage_or_one_object(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, train={"epochs": 2})
    (tmp_path / "c.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    shown = run_cli(["plan", str(tmp_path / "c.yaml"), "--seconds", "0"])
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines()[3:9]] == [
        "ingest", "select", "flat", "train", "infer", "run"
    ]  # fmt: skip
    told = json.loads(run_cli(["plan", str(tmp_path / "c.yaml"), "--seconds", "0", "--json"]).out)
    assert list(told["stages"]) == sorted(["ingest", "select", "flat", "train", "infer", "run"])
    assert told["seconds"] > 0


@pytest.mark.table(4)
@pytest.mark.parametrize("file", ["broken_layer.py", "broken_layers/inner.py"])
def test_what_a_layer_of_ones_own_raises_is_told_as_its_matter(tmp_path: Path, file: str) -> None:
    write_graph(tmp_path)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "from gnnflow.layers.gcn import GCN\n\n\n"
        "class Broken(GCN):\n"
        "    def update(self, own, aggregated):\n        return own / (1 // 0)\n"
    )
    name = file.partition("/")[0].removesuffix(".py")
    if path.parent != tmp_path:  # a package that passes on what a module of it has
        path.with_name("__init__.py").write_text(f"from {name}.inner import Broken as Broken\n")
    config = graph_config(tmp_path, train={"epochs": 2}).model_dump(mode="json", exclude_unset=True)
    config["model"] = {"kind": f"{name}:Broken", "hidden": 4}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        shown = run_cli(["plan", str(tmp_path / "c.yaml"), "--seconds", "0"])
    assert f"{name}:Broken raised ZeroDivisionError" in shown.message
    assert f"{file}, line 6" in shown.message


FIGURE = st.floats(0, 1e6)


@given(st.tuples(FIGURE, FIGURE, FIGURE), st.sampled_from([4, 16, 64]), st.integers(17, 4000))
def test_figures_on_a_line_of_nodes_and_partitions_are_found(
    parts: tuple[float, float, float], finest: int, partitions: int
) -> None:
    always, per_graph, per_partition = parts

    def cost(share: float, count: int) -> Cost:
        grown = round(always + per_graph * share / count)
        return Cost(always + per_graph * share + per_partition * count, 0, grown, grown)

    sizes = [Rehearsal(one_in, 16, {"flat": cost(1 / one_in, 16)}, 1.0) for one_in in (16 * finest, 4 * finest, finest)]
    more = Rehearsal(finest, 32, {"flat": cost(1 / finest, 32)}, 1.0)
    found, true = full_cost([*sizes, more], "flat", partitions=partitions), cost(1.0, partitions)
    assert found.seconds == pytest.approx(true.seconds, rel=1e-6, abs=1e-3)
    # bytes are whole, so the line through them is off by as much as it is drawn out
    assert found.memory == pytest.approx(true.memory, rel=1e-6, abs=70 * finest)


@given(st.lists(FIGURE, min_size=2, max_size=5))
def test_no_figure_is_below_nothing_or_falls_as_the_graph_grows(seconds: list[float]) -> None:
    shares = [4**power for power in range(len(seconds), 0, -1)]
    costs = [Cost(value, 0, 0, 0) for value in seconds]
    sizes = [Rehearsal(one_in, 4, {"flat": cost}, 1.0) for one_in, cost in zip(shares, costs, strict=True)]
    found = full_cost(sizes, "flat", partitions=4).seconds
    assert found >= np.mean(seconds) * (1 - 1e-9)


@given(st.lists(st.floats(1, 100), min_size=3, max_size=3), st.integers(0, 3))
def test_the_error_of_the_time_is_of_a_line_and_falls_as_more_is_rehearsed(values: list[float], finer: int) -> None:
    def error(shares: list[int]) -> float:
        costs = [Cost(value, 0, 0, 0, epoch_seconds=value) for value in values]
        held = zip(shares, costs, strict=True)
        return error_of([Rehearsal(one_in, 4, {"flat": cost}, 1.0) for one_in, cost in held], epochs=1)

    near, far = [64, 16, 1], [64 * 4**finer, 16 * 4**finer, 4**finer]
    assert error(near) <= error(far) * (1 + 1e-9)
    assert error(near) >= 0.1 * np.mean(values)


def test_what_may_go_wrong_is_said() -> None:
    def warnings(one_in: int = 4, **figures: Any) -> str:
        stages = (StageForecast("flat", is_done=False, seconds=1.0, num_bytes=10, **figures),)
        found = Forecast("run", 1, 1, 4, stages, one_in=(one_in,), machine_memory=2 << 30, memory_limit=1 << 30)
        return " ".join(found.warnings)

    assert warnings(memory=1 << 20, worker_memory=1 << 20) == ""
    assert "cluster.memory_limit" in warnings(memory=1, worker_memory=3 << 29)
    assert "this machine" in warnings(memory=3 << 30, worker_memory=0)
    assert "faster than the graph" in warnings(growth=1.5)
    assert warnings(growth=1.5, one_in=1) == ""


def test_growth_is_of_bytes_per_node() -> None:
    rehearsals = [Rehearsal(one_in, 4, {"flat": Cost(0, size, 0, 0)}, 1.0) for one_in, size in ((16, 10), (4, 60))]
    assert growth_of(rehearsals, "flat") == pytest.approx(1.5)
    assert growth_of([Rehearsal(each, 4, {"run": Cost(0, 0, 0, 0)}, 1.0) for each in (4, 1)], "run") == 1.0


def test_disk_is_of_all_that_is_there_at_once() -> None:
    def stage(name: str, num_bytes: int, disk: int, *, is_done: bool = False) -> StageForecast:
        return StageForecast(name, is_done=is_done, seconds=1.0, num_bytes=num_bytes, disk=disk)

    first, flat = stage("ingest", 10, 0, is_done=True), stage("flat", 5, 20)
    assert Forecast("run", 1, 1, 4, (first, flat, stage("infer", 7, 9), stage(RUN, 0, 0))).disk == 10 + 20
    # the run's copy of the predictions is the most
    assert Forecast("run", 1, 1, 4, (first, flat, stage("infer", 17, 17), stage(RUN, 0, 0))).disk == 10 + 5 + 2 * 17


@given(st.integers(-20, 20), st.integers(4, 256))
def test_what_a_process_keeps_of_earlier_work_is_not_drawn_out_to_the_whole_graph(kept: int, partitions: int) -> None:
    whole, base = 64 << 30, 300 << 20  # bytes between rounds, and of a process without work

    def rehearsal(one_in: int, more: int) -> Rehearsal:
        return Rehearsal(one_in, 4, {"flat": Cost(0, 0, 0, base + (more << 20), disk=whole // one_in)}, 1.0)

    found = full_cost([rehearsal(4096, 0), rehearsal(1024, kept)], "flat", partitions=partitions).worker_memory
    assert found == pytest.approx(base + 3 * whole / partitions, rel=0.4)
