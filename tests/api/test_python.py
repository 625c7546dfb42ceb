"""`import gnnflow`: one run whichever library holds the tables, the command line's words, and what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import gnnflow as gf
from gnnflow.config import config_from_dict
from gnnflow.graph.errors import ConfigError, RegistryError, StorageError, TableError
from gnnflow.remote.driver import run_here
from gnnflow.storage import kept_tables
from gnnflow.storage.workspace import Workspace
from tests.command_line import printed, run_cli
from tests.conftest import REPOSITORY
from tests.small_graphs import write_graph
from tests.typed_graphs import typed_tables

HEAVY = ("torch", "dask", "distributed", "pyarrow", "pandas", "numpy", "pydantic", "matplotlib")
SMALL = {"train": {"epochs": 2, "batch_size": 16}, "infer": {"parity_samples": 5}, "graph": {"partitions": 2}}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    folder = tmp_path_factory.mktemp("tables")
    write_graph(folder, string_ids=True)
    return {name: pq.read_table(folder / f"{name}.parquet") for name in ("nodes", "edges")}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"name": "small", "workspace": str(tmp_path_factory.mktemp("small") / "runs"), **SMALL}


@pytest.fixture(scope="module")
def run(config: dict[str, Any], tables: dict[str, pa.Table]) -> gf.Run:
    return gf.run(config, **tables, progress=False)


def of_pandas(table: pa.Table) -> Any:
    frame = pytest.importorskip("pandas").concat([table.to_pandas()])
    return frame.sort_values(frame.columns[0], ascending=False).sort_index()  # an index that is no range


def of_polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def of_duckdb(table: pa.Table) -> Any:
    return pytest.importorskip("duckdb").connect().from_arrow(table)


def of_reader(table: pa.Table) -> Any:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))


def test_importing_gnnflow_loads_no_library() -> None:
    shown = f"import sys, gnnflow; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.strip() == "[]"
    assert set(gf.__all__) <= set(dir(gf))


@pytest.mark.parametrize(
    "held_by",
    [
        of_pandas,
        of_polars,
        of_duckdb,
        of_reader,
    ],
)
def test_the_same_rows_are_the_same_run_whichever_library_holds_them(
    run: gf.Run, config: dict[str, Any], tables: dict[str, pa.Table], held_by: Callable[[pa.Table], Any]
) -> None:
    again = gf.run(config, **{name: held_by(table) for name, table in tables.items()}, progress=False)
    assert again.uri == run.uri
    assert again.reused
    assert all(stage["reused"] for stage in again.summary()["stages"].values())


def test_a_file_an_object_and_a_config_that_names_the_kept_tables_are_the_same_run(
    run: gf.Run, config: dict[str, Any], tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config))
    assert gf.run(tmp_path / "small.yaml", **tables, progress=False).uri == run.uri
    kept = {name: run.config["graph"][name] for name in tables}
    named = {**config, "graph": {**config["graph"], **kept}}
    (tmp_path / "named.yaml").write_text(yaml.safe_dump(named))
    assert json.loads(printed(["run", str(tmp_path / "named.yaml"), "--json"]))["run"] == run.uri
    by_operator = run_here("run", config_from_dict(named), say=lambda _: None)  # as Airflow's operators call it
    assert (by_operator["run"], by_operator["metrics"]) == (run.uri, run.metrics)
    made = gf.Config.model_validate(named)
    assert gf.run(made, progress=False).uri == run.uri
    assert gf.run(made, **tables, overrides=["train.epochs=2"], progress=False).uri == run.uri


def test_another_workspace_gives_the_same_fingerprints_and_bytes(
    run: gf.Run, config: dict[str, Any], tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    other = gf.run(config, **tables, workspace=str(tmp_path / "runs"), progress=False)
    assert not other.reused
    assert [uri.rsplit("/", 1)[1] for uri in other.stages.values()] == [
        uri.rsplit("/", 1)[1] for uri in run.stages.values()
    ]
    assert other.record["digests"] == run.record["digests"]
    assert other.predictions == run.predictions


def test_tables_in_files_of_a_user_give_the_same_bytes(
    run: gf.Run, config: dict[str, Any], tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    places = {name: tmp_path / f"{name}.parquet" for name in tables}
    other = gf.run(config, **places, workspace=str(tmp_path / "runs"), progress=False)
    assert other.record["digests"]["infer"] == run.record["digests"]["infer"]


def test_rows_are_kept_in_groups_however_they_come(
    tables: dict[str, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tables, "_ROWS", 64)
    workspace, edges = Workspace.at(str(tmp_path)), tables["edges"]
    kept = kept_tables.keep_table(edges, workspace, where="graph.edges")
    assert pq.ParquetFile(kept).num_row_groups == 7
    assert pq.read_table(kept) == edges
    written = Path(kept).stat().st_mtime_ns
    views = edges.set_column(0, "src", edges["src"].cast(pa.string_view()).combine_chunks().dictionary_encode())
    assert kept_tables.keep_table(of_reader(views), workspace, where="graph.edges") == kept
    assert Path(kept).stat().st_mtime_ns == written
    Path(kept).write_bytes(b"cut short")
    assert kept_tables.keep_table(edges, workspace, where="graph.edges") == kept
    assert pq.read_table(kept) == edges


def test_typed_graphs_take_maps_and_keep_the_other_tables_of_the_config(tmp_path: Path) -> None:
    held = typed_tables()
    types = {name: table for name, table in held.items() if "__" not in name}
    relations = {name: table for name, table in held.items() if "__" in name}
    pq.write_table(held["device"], tmp_path / "device.parquet")
    pq.write_table(held["account__uses__device"], tmp_path / "uses.parquet")
    features = {"account": ["x"], "merchant": ["x"]}
    graph = {
        "nodes": {"device": str(tmp_path / "device.parquet")},
        "edges": {"account__uses__device": {"table": "elsewhere.parquet", "src": "src"}},
        "target": "account",
        "features": features,
        "partitions": 2,
    }
    content = {**SMALL, "name": "typed", "workspace": str(tmp_path / "runs"), "graph": graph, "model": {"kind": "rgcn"}}
    found = gf.run(
        content,
        nodes={name: table for name, table in types.items() if name != "device"},
        edges={**relations, "account__uses__device": tmp_path / "uses.parquet"},
        progress=False,
    )
    assert found.config["graph"]["nodes"]["device"] == str(tmp_path / "device.parquet")
    uses = found.config["graph"]["edges"]["account__uses__device"]
    assert (uses["table"], uses["src"]) == (str(tmp_path / "uses.parquet"), "src")
    ids = held["account"]["id"].to_pylist()[:5]
    (batch,) = gf.neighborhoods(found, ids)
    assert np.allclose(scores_of(found, batch), predicted(found, ids), atol=1e-5)
    data = batch.to_pyg()
    assert data["account"].batch_size == 5
    assert torch.equal(data["account"].y, torch.tensor(held["account"]["label"].to_numpy()[:5]))
    assert torch.equal(data["account"].x[:5], torch.tensor(np.stack(held["account"]["x"].to_pylist()[:5])).float())
    sends = held["account__sends__account"]
    for row, own in enumerate(ids):
        into = int((data["account", "sends", "account"].edge_index[1] == row).sum())
        assert into == pc.sum(pc.equal(sends["dst"], own)).as_py()


def scores_of(run: gf.Run, batch: Any) -> Any:
    with torch.no_grad():
        return torch.softmax(batch.logits(run.model), 1).numpy()


def predicted(run: gf.Run, ids: list[Any]) -> Any:
    held = dict(zip(run.predictions["id"].to_pylist(), run.predictions["probabilities"].to_pylist(), strict=True))
    return np.array([held[each] for each in ids])


def test_neighbourhoods_score_as_the_run_and_hold_the_tables_rows(run: gf.Run, tables: dict[str, pa.Table]) -> None:
    nodes, edges = tables["nodes"], tables["edges"]
    ids = nodes["id"].to_pylist()[::-1][:7]
    batches = list(gf.neighborhoods(run, [*ids, ids[0]], batch_size=3))
    assert [list(batch.ids) for batch in batches] == [ids[:3], ids[3:6], ids[6:]]
    for batch in batches:
        assert np.allclose(scores_of(run, batch), predicted(run, list(batch.ids)), atol=1e-5)
        data = batch.to_pyg()
        rows = [nodes["id"].to_pylist().index(each) for each in batch.ids]
        assert data.y.tolist() == nodes["label"].take(rows).to_pylist()
        x = torch.tensor(np.stack(nodes["x"].to_pylist())).float()
        assert torch.equal(data.x[: len(rows)], x[rows])
        for row, own in enumerate(batch.ids):
            into = edges.filter(pc.equal(edges["dst"], own))
            here = data.edge_index[1] == row
            assert np.isclose(float(data.edge_weight[here].sum()), pc.sum(into["weight"]).as_py(), rtol=1e-5)
            sources = [nodes["id"].to_pylist().index(each) for each in into["src"].to_pylist()]
            assert torch.allclose(data.x[data.edge_index[0, here]].sum(0), x[sources].sum(0), atol=1e-4)


def test_an_unknown_id_and_a_missing_pyg_are_said(run: gf.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TableError, match="id 'nobody': not in the graph"):
        next(gf.neighborhoods(run, ["nobody"]))
    with pytest.raises(TableError, match="the ids are not"):
        next(gf.neighborhoods(run, [object()]))
    (batch,) = gf.neighborhoods(run, run.predictions["id"].to_pylist()[:1])
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'gnnflow[pyg]'")):
        batch.to_pyg()


@pytest.mark.parametrize(
    "changes",
    [{"train": {"lr": -1}}, {"modle": {}}, {"graph": {"partitions": 2, "label": "nothing"}}, {"graph": [1]}],
)
def test_errors_are_exceptions_with_the_words_of_the_command_line(
    config: dict[str, Any], tables: dict[str, pa.Table], tmp_path: Path, changes: dict[str, Any]
) -> None:
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    content = {**config, **changes, "workspace": str(tmp_path / "runs")}
    if isinstance(content["graph"], dict):
        content["graph"] |= {name: str(tmp_path / f"{name}.parquet") for name in tables}
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(content))
    shown = run_cli(["run", str(file)])
    assert shown.code == 2
    with pytest.raises(gf.GnnflowError) as raised:
        gf.run(file, progress=False)
    assert f"error: {raised.value}" == shown.message


def test_what_is_no_table_or_no_value_is_refused(config: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    with pytest.raises(ConfigError, match=r"graph.nodes: a list is not a table"):
        gf.run(config, nodes=[1, 2], edges=tables["edges"])
    with pytest.raises(ConfigError, match=r"graph.edges.a__to__b: a int is not a table"):
        gf.check({**config, "graph": {"nodes": {"a": "x", "b": "y"}}}, edges={"a__to__b": 3})
    with pytest.raises(ConfigError, match="a list is not a config"):
        gf.run([config], **tables)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a value of a config"):
        gf.run({**config, "train": {"lr": object()}}, **tables)
    with pytest.raises(TableError, match=r"graph.nodes: the table cannot be read as Arrow"):
        gf.run(config, nodes=Broken(), edges=tables["edges"])
    assert gf.check({**config, "seed": np.int64(3)}, **tables).stops == ()


class Broken:
    """What pandas does with a column of values of several types."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise pa.ArrowInvalid("Could not convert 'a' with type str: tried to convert to int64")


def test_a_run_shows_itself(run: gf.Run, config: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"Run\('small', test\.\w+ 0\.\d+, '.*'\)", repr(run))
    assert run.config["train"]["metric"] == "auto"
    assert run.headline() == ("test.accuracy", run.metrics["test.accuracy"])
    page = run._repr_html_()
    assert page.count("<svg") >= 1
    assert f'href="file://{run.report}"' in page
    assert "<th>test</th>" in page
    assert run.metrics == json.loads((Path(run.uri) / "metrics.json").read_text())
    capfd.readouterr()
    gf.run(run.config)
    progress = capfd.readouterr()
    assert "already done, reused" in progress.err
    assert "\x1b" not in progress.err
    assert not progress.out


def test_runs_are_listed_and_compared_alike_by_function_and_command(
    config: dict[str, Any], tables: dict[str, pa.Table], run: gf.Run
) -> None:
    other = gf.run({**config, "name": "wider", "model": {"kind": "sage", "hidden": 8}}, **tables, progress=False)
    workspace = config["workspace"]
    assert [each.uri for each in gf.runs(workspace)] == [run.uri, other.uri]
    assert [line.split()[0] for line in printed(["runs", "--workspace", workspace]).splitlines()] == [
        "NAME",
        "small",
        "wider",
    ]
    found = gf.compare("small", other, workspace=workspace)
    assert found.config["model.hidden"][1] == 8
    assert found.config["model.kind"] == ("gcn", "sage")
    assert "graph.nodes" not in found.config
    assert printed(["compare", "small", other.uri, "--workspace", workspace]) == f"{found}\n"
    assert "<td>model.kind</td>" in found._repr_html_()
    assert repr(gf.compare(run, run)) == "These runs have the same config and metrics."
    with pytest.raises(ConfigError, match="two runs or more"):
        gf.compare(run)


def test_a_damaged_run_is_named_and_the_others_are_listed(
    config: dict[str, Any], tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    workspace = str(tmp_path / "runs")
    kept, lost = (gf.run({**config, "name": name}, **tables, workspace=workspace, progress=False) for name in "ab")
    (Path(lost.uri) / "run.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"run\.json"):
        assert [each.uri for each in gf.runs(workspace)] == [kept.uri]
    shown = run_cli(["runs", "--workspace", workspace])
    assert (shown.code, "run.json" in shown.err, kept.uri in shown.out) == (2, True, True)


def test_a_published_model_is_loaded_and_scores_other_tables(
    config: dict[str, Any], tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    workspace = str(tmp_path / "runs")
    made = gf.run(config, **tables, workspace=workspace, progress=False)
    assert gf.publish(made, progress=False).in_service == 1
    loaded = gf.load_model("small@champion", workspace=workspace)
    for mine, other in zip(loaded.parameters(), gf.load_model(made).parameters(), strict=True):
        assert torch.equal(mine, other)
    same = gf.score("small@champion", **tables, workspace=workspace, progress=False)
    assert (same.model, same.predictions) == ("small/1", made.predictions)
    later = tables["edges"].slice(0, 300)
    ids = made.predictions["id"].to_pylist()[3:1:-1]
    today = gf.score("small@champion", edges=later, ids=ids, workspace=workspace, progress=False)
    assert today.predictions["id"].to_pylist() == ids
    assert not np.allclose(np.stack(today.predictions["probabilities"].to_pylist()), predicted(made, ids))
    whole = gf.score("small@champion", edges=later, workspace=workspace, progress=False)
    held = dict(zip(whole.predictions["id"].to_pylist(), whole.predictions.to_pylist(), strict=True))
    for row in today.predictions.to_pylist():
        assert row.keys() == held[row["id"]].keys()
        assert np.allclose(row["probabilities"], held[row["id"]]["probabilities"], atol=1e-6)
    with pytest.raises(TableError, match="ids 'nobody', 'no one': not in the graph"):
        gf.score("small@champion", ids=["nobody", ids[0], "no one"], workspace=workspace, progress=False)
    with pytest.raises(ConfigError, match="no ids"):
        gf.score("small@champion", ids=[], workspace=workspace, progress=False)
    with pytest.raises(RegistryError):
        gf.score("small@2", workspace=workspace, progress=False)
    with pytest.raises(StorageError, match="no such run"):
        gf.load_model("another", workspace=workspace)


def test_a_sweep_takes_tables_in_memory(config: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    result = gf.sweep({**config, "matrix": {"train.lr": [0.01, -1]}}, **tables, progress=False)
    assert [*result.runs] == ["lr=0.01"]
    assert [*result.failed] == ["lr=-1"]
    assert repr(result).startswith("lr    valid.accuracy")
    assert "lr=-1  failed: train.lr" in repr(result)
    assert repr(gf.explain(config, **tables)).startswith("layer 1  GCN\n")


def test_the_page_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GNNFLOW_WORKSPACE", raising=False)
    page, names = (REPOSITORY / "docs" / "python.md").read_text(), dict[str, Any]()
    blocks = re.findall(r"```(python|bash)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 4
    for kind, text in blocks:
        if kind == "bash":
            printed(text.partition("#")[0].split()[1:])
        else:
            exec(compile(text, "docs/python.md", "exec"), names)
    assert names["logits"].shape == (1, 2)
    assert names["data"].batch_size == 1
