"""An audit holds on clean runs, and each check finds its own damage, planted in a copy of the run.

A damaged file is listed anew with its digest: otherwise reading it would be refused, whatever an audit looks at.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gnnflow as gf
from gnnflow.config import Config
from gnnflow.stages import audit, audit_edges
from gnnflow.stages.base import StageContext
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.storage import verified
from gnnflow.storage.columns import from_matrix, to_numpy
from gnnflow.storage.documents import encode_document
from gnnflow.storage.manifest import commit, read_manifest
from gnnflow.storage.run_folder import damaged_files, read_run
from gnnflow.storage.tables import read_table, write_table
from tests.command_line import printed, run_cli
from tests.small_graphs import graph_config, write_graph
from tests.small_links import config_of as links_config
from tests.small_links import write_groups
from tests.typed_graphs import typed_tables
from tests.typed_tasks import config_of as typed_config

Edit = Callable[[pa.Table], pa.Table]
QUICK: dict[str, Any] = {"train": {"epochs": 1}, "infer": {"parity_samples": 5}}
CHECKS = ("parity", "conservation", "held-out edges", "later edges", "label columns", "predictions")


def made(config: Config) -> str:
    return str(run_pipeline(StageContext.of(config)).uri)


@pytest.fixture(scope="module")
def nodes_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run whose neighbours are sampled, on a graph of 240 nodes with edge attributes."""
    folder = tmp_path_factory.mktemp("nodes")
    write_graph(folder, num_nodes=240, num_edges=1500)
    sampling = {"sampling": {"kind": "uniform", "fanout": [4, 3]}}
    return made(graph_config(folder, neighbors=sampling, train={"epochs": 1}, infer={"parity_samples": 5}))


@pytest.fixture(scope="module")
def links_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("links")
    write_groups(folder)
    return made(links_config(folder, **QUICK, graph={"reverse_edges": True}))


@pytest.fixture(scope="module")
def timed_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of links that are held out by time; some pairs have edges of several times."""
    folder = tmp_path_factory.mktemp("timed")
    write_groups(folder)
    edges = pq.read_table(folder / "edges.parquet")
    times = np.random.default_rng(0).permutation(edges.num_rows)
    pq.write_table(edges.append_column("timestamp", pa.array(times)), folder / "edges.parquet")
    return made(links_config(folder, task={"split": {"kind": "time", "valid": 0.1, "test": 0.1}}, **QUICK))


def verdicts(run: str) -> dict[str, str]:
    return {each.name: each.verdict for each in gf.audit(run).findings}


def test_findings_are_kept_with_the_run_and_its_report_shows_them(nodes_run: str) -> None:
    """What a person audited last month can be read by whoever decides by the report now."""
    folder = Path(nodes_run)
    found = gf.audit(nodes_run)
    assert not found.not_kept
    kept = json.loads((folder / "audit.json").read_text())
    assert kept["findings"] == [asdict(each) for each in found.findings]
    page = (folder / "report.html").read_text()
    assert f"Findings of gnnflow audit at {kept['at']}" in page
    assert all(name in page for name in CHECKS)
    assert damaged_files(nodes_run) == ()
    with pytest.MonkeyPatch.context() as patched:  # a folder that others own: the findings are told all the same
        patched.setattr(audit, "write_document", Mock(side_effect=PermissionError("read-only")))
        again = gf.audit(nodes_run)
    assert again.findings == found.findings
    assert "not kept with the run: read-only" in list(again.lines())


def broken(run: str) -> list[str]:
    return [each.name for each in gf.audit(run).broken]


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], str]:
    """Copy the workspace of a run, whose artifacts are found below the copy."""

    def copy(run: str) -> str:
        above, below = run.split("/runs/", 1)
        shutil.copytree(f"{above}/runs", tmp_path / "runs")
        return str(tmp_path / "runs" / below)

    return copy


def damage(run: str, stage: str, name: str, edit: Edit, *, facts: dict[str, Any] | None = None) -> None:
    """Change a table of a stage's artifact, and list it as it is now."""
    record = read_run(run)
    artifact = record["artifacts"][record["store"] if stage == "store" else stage]
    held = read_manifest(artifact)
    entry = replace(write_table(f"{artifact}/{name}", edit(read_table(f"{artifact}/{name}"))), name=name)
    files = tuple(entry if each.name == name else each for each in held.files)
    Path(artifact, "manifest.json").unlink()
    commit(artifact, replace(held, files=files, facts={**held.facts, **(facts or {})}))
    verified._listed.clear()


def damage_predictions(run: str, name: str, edit: Edit) -> None:
    entry = replace(write_table(f"{run}/{name}", edit(read_table(f"{run}/{name}"))), name=name)
    record = json.loads(Path(run, "run.json").read_text())
    record["files"] = [asdict(entry) if each["name"] == name else each for each in record["files"]]
    Path(run, "run.json").write_bytes(encode_document({k: v for k, v in record.items() if k != "checksum"}))
    verified._listed.clear()


def without_first(table: pa.Table) -> pa.Table:
    return table.slice(1)


def with_edges(table: pa.Table, src: Any, dst: Any, **others: Any) -> pa.Table:
    """Replace the ends of the first edges, so that no degree of another node changes in number of rows."""
    number = len(src)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    for name, values in {"src": src, "dst": dst, **others}.items():
        kept = to_numpy(columns[name]).copy()
        kept[:number] = values
        columns[name] = pa.array(kept, columns[name].type)
    return pa.table(columns)


def held_pairs(run: str, partition: int = 0) -> pa.Table:
    record = read_run(run)
    pairs = read_table(f"{record['artifacts'][record['store']]}/pairs-{partition:05d}.parquet")
    return pairs.filter(pa.array(to_numpy(pairs["split"]) > 0))


def test_a_run_of_nodes_holds_and_says_what_has_no_times_or_pairs(nodes_run: str) -> None:
    found = gf.audit(nodes_run)
    assert tuple(each.name for each in found.findings) == CHECKS
    assert verdicts(nodes_run) == {
        **dict.fromkeys(CHECKS, "holds"),
        "held-out edges": "not checked",
        "later edges": "not checked",
    }
    assert all(each.why for each in found.findings if each.verdict == "not checked")
    assert "1,500 edges of the store" in found.findings[1].looked
    assert "240 predictions of 240 targets" in found.findings[-1].looked
    assert found.to_pandas()["verdict"].tolist() == [each.verdict for each in found.findings]


def test_links_held_out_at_random_hold_whatever_pairs_are_in_memory_at_once(
    links_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gf.audit(links_run)
    assert not found.broken
    assert verdicts(links_run)["held-out edges"] == "holds"
    monkeypatch.setattr(audit_edges, "_MOST_HELD", 10)
    assert gf.audit(links_run) == found


def test_links_held_out_by_time_hold_and_earlier_edges_of_their_ends_are_counted(timed_run: str) -> None:
    found = {each.name: each for each in gf.audit(timed_run).findings}
    assert [found[name].verdict for name in ("held-out edges", "later edges")] == ["holds", "holds"]
    assert "earlier edges join the same ends" in found["held-out edges"].looked
    assert "; 0 earlier edges" not in found["held-out edges"].looked


def test_typed_links_with_reverses_hold(tmp_path: Path) -> None:
    run = made(typed_config(tmp_path, typed_tables()))
    assert not gf.audit(run).broken
    assert verdicts(run)["held-out edges"] == verdicts(run)["conservation"] == verdicts(run)["predictions"] == "holds"


def test_labels_of_edges_and_their_predictions_hold(tmp_path: Path) -> None:
    tables = typed_tables()
    pays = tables["account__pays__merchant"]
    label = np.random.default_rng(0).integers(0, 2, pays.num_rows)
    tables["account__pays__merchant"] = pays.append_column("label", pa.array(label))
    task = {"kind": "edge", "messages": False, "split": {"kind": "random", "valid": 0.2, "test": 0.2}}
    config = typed_config(tmp_path, tables, task=task, graph={"label": "label"}, infer={"targets": ["valid", "test"]})
    found = verdicts(made(config))
    assert found == {**dict.fromkeys(CHECKS, "holds"), "later edges": "not checked"}


def test_an_edge_that_is_gone_breaks_conservation(nodes_run: str, copied: Callable[[str], str]) -> None:
    run = copied(nodes_run)
    damage(run, "store", "edges-00001.parquet", without_first)
    assert broken(run) == ["conservation"]
    (finding,) = gf.audit(run).broken
    assert "1 nodes have another number of in-edges" in finding.why
    assert "1,499 sources of edges are 1,500 by out_degree" in finding.why


def test_an_edge_that_the_sample_lost_breaks_conservation(nodes_run: str, copied: Callable[[str], str]) -> None:
    run = copied(nodes_run)
    damage(run, "select", "edges-00001.parquet", without_first)
    assert broken(run) == ["conservation"]
    assert "the sample has" in gf.audit(run).broken[0].why


@pytest.mark.parametrize("ends", [("src", "dst"), ("dst", "src")], ids=["forward", "reversed"])
def test_a_held_out_edge_among_the_messages_is_found(
    links_run: str, copied: Callable[[str], str], ends: tuple[str, str]
) -> None:
    """Finds the copy of a pair that leads to another partition, and of its reverse."""
    run = copied(links_run)
    store = read_run(run)["artifacts"]["ingest"]
    starts = read_manifest(store).facts["offsets"]
    pairs = pa.concat_tables([held_pairs(run, each) for each in range(3)])
    src, dst = (to_numpy(pairs[name]) for name in ends)
    own = np.flatnonzero((dst >= starts[1]) & (dst < starts[2]))[:1]
    damage(run, "store", "edges-00001.parquet", lambda table: with_edges(table, src[own], dst[own]))
    assert "held-out edges" in broken(run)
    assert "1 edges that carry messages join the ends" in next(
        each.why for each in gf.audit(run).broken if each.name == "held-out edges"
    )


def test_a_later_edge_among_the_messages_is_found(timed_run: str, copied: Callable[[str], str]) -> None:
    run = copied(timed_run)
    late = int(to_numpy(held_pairs(run)["time"]).min())

    def edit(table: pa.Table) -> pa.Table:
        return with_edges(table, table["src"][:2], table["dst"][:2], time=[late + 5, late + 9])

    damage(run, "store", "edges-00000.parquet", edit)
    assert "later edges" in broken(run)
    assert "2 edges that carry messages are as late" in next(
        each.why for each in gf.audit(run).broken if each.name == "later edges"
    )


def test_a_held_out_edge_with_its_time_among_the_messages_is_found(
    timed_run: str, copied: Callable[[str], str]
) -> None:
    run = copied(timed_run)
    pair = held_pairs(run).slice(0, 1)
    src, dst, time = (to_numpy(pair[name]) for name in ("src", "dst", "time"))
    damage(run, "store", "edges-00000.parquet", lambda table: with_edges(table, src, dst, time=time))
    assert {"held-out edges", "later edges"} <= set(broken(run))


@pytest.mark.parametrize("kind", ["classes", "numbers", "values"])
def test_a_column_that_is_the_label_is_named(tmp_path: Path, kind: str) -> None:
    """Finds a bound of a number, a number scaled as the label is not, and values that only together tell a class."""
    write_graph(tmp_path, num_nodes=600, num_edges=900)
    nodes, draw = pq.read_table(tmp_path / "nodes.parquet"), np.random.default_rng(0)
    label: Any = to_numpy(nodes["label"])
    closed: Any = np.char.add("c", (label + 4 * draw.integers(0, 3, len(label))).astype(str))
    if kind != "values":
        label = label + draw.random(len(label)) if kind == "numbers" else label
        closed = label * 3.0
    nodes = nodes.set_column(nodes.column_names.index("label"), "label", pa.array(label))
    nodes = nodes.append_column("amount", pa.array(draw.random(len(label)))).append_column("closed", pa.array(closed))
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    graph: dict[str, Any] = {"features": ["amount", "closed"], "normalize": "standard"}
    if kind == "values":
        graph["columns"] = {"closed": {"kind": "categorical"}}
    run = made(graph_config(tmp_path, graph=graph, train={"epochs": 1}, infer={"parity_samples": 5}))
    (finding,) = gf.audit(run).broken
    assert finding.name == "label columns"
    assert finding.why.startswith("column 'closed' ")
    assert "amount" not in finding.why
    assert "graph.features" in finding.fix


def test_nodes_split_by_time_and_few_labels_say_why_they_are_not_checked(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(nodes.append_column("opened", pa.array(np.arange(60))), tmp_path / "nodes.parquet")
    split = {"kind": "time", "column": "opened", "valid": 0.3, "test": 0.3}
    run = made(graph_config(tmp_path, task={"split": split}, train={"epochs": 1}, infer={"parity_samples": 0}))
    found = {each.name: each for each in gf.audit(run).findings}
    assert "hides no edges" in found["later edges"].why
    assert "fewer than 30 targets" in found["label columns"].why
    assert [found[name].verdict for name in CHECKS].count("not checked") == 4


def test_a_placed_edge_that_is_gone_breaks_conservation(tmp_path: Path) -> None:
    write_graph(tmp_path)
    train = {"strategy": "global-batch", "epochs": 1}
    run = made(
        graph_config(tmp_path, partition={"kind": "edge_1d", "by": "source"}, train=train, infer={"parity_samples": 5})
    )
    assert not gf.audit(run).broken
    damage(run, "store", "placed-edges-00001.parquet", without_first)
    (finding,) = gf.audit(run).broken
    assert finding.why == "in the store, 399 of 400 edges are placed to be computed (edges)"


def test_predictions_that_are_not_numbers_and_ids_that_are_no_targets_are_found(
    nodes_run: str, copied: Callable[[str], str]
) -> None:
    run = copied(nodes_run)

    def edit(table: pa.Table) -> pa.Table:
        ids, scores = to_numpy(table["id"]).copy(), np.array(table["probabilities"].to_pylist(), np.float32)
        ids[0], ids[1], scores[2, 1] = -7, ids[2], np.nan
        table = table.set_column(table.column_names.index("id"), "id", pa.array(ids))
        return table.set_column(table.column_names.index("probabilities"), "probabilities", from_matrix(scores))

    damage_predictions(run, "predictions/part-00001.parquet", edit)
    (finding,) = gf.audit(run).broken
    assert finding.name == "predictions"
    for part in ("2 targets have no prediction", "1 targets have several", "1 predictions are of no target"):
        assert part in finding.why
    assert "1 predictions have no finite number in probabilities" in finding.why


def test_scores_that_disagree_break_parity(nodes_run: str, copied: Callable[[str], str]) -> None:
    run = copied(nodes_run)
    infer = read_manifest(read_run(run)["artifacts"]["infer"])
    parity = {**infer.facts["parity"], "max_difference": 0.5}
    name = next(each.name for each in infer.files if each.name.endswith("part-00000.parquet"))
    damage(run, "infer", name, lambda table: table, facts={"parity": parity})
    assert broken(run) == ["parity"]


def test_the_command_prints_a_table_and_ends_with_one_where_a_check_is_broken(
    nodes_run: str, copied: Callable[[str], str]
) -> None:
    shown = printed(["audit", nodes_run])
    assert shown == "\n".join(gf.audit(nodes_run).lines()) + "\n"
    assert "6 checks: 4 hold, 0 broken, 2 not checked" in shown
    run = copied(nodes_run)
    damage(run, "store", "edges-00001.parquet", without_first)
    assert run_cli(["audit", run]).code == 1
    told = run_cli(["audit", run, "--json"])
    assert (told.code, json.loads(told.out)["broken"]) == (1, 1)
