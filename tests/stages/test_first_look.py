"""The first mistakes that people make: each has its message before a run starts, and all of a config come at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from gnnflow.config import load_config
from gnnflow.config.loading import read_config
from gnnflow.graph.errors import GnnflowError
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.progress import Silent
from gnnflow.remote.driver import run_here
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.first_look import first_look, refuse_first
from gnnflow.stages.look import Look
from gnnflow.stages.resolve import cluster_for, resolve
from gnnflow.storage.samples import MOST_ROWS
from tests.hearing import Heard
from tests.stages.mistakes import (
    HALVES,
    ROWS,
    Content,
    Mistake,
    Tables,
    both,
    column,
    plain_graph,
    put,
    renamed,
    typed_graph,
    written,
)
from tests.stages.plain_mistakes import PLAIN_MISTAKES
from tests.stages.typed_mistakes import TYPED_MISTAKES

_AGES: list[Any] = [None if number == 3 else float(number) for number in range(ROWS)]


def _look(folder: Path, tables: Tables, content: Content) -> Look:
    return first_look(read_config(written(folder, tables, content), source="first.yaml"))


def _cases(mistakes: dict[str, Mistake]) -> list[Any]:
    return [pytest.param(case, id=name) for name, case in mistakes.items()]


def test_a_graph_without_mistakes_is_stopped_by_nothing(tmp_path):
    for number, (tables, content) in enumerate((plain_graph(), typed_graph())):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not _look(folder, tables, content).stops


@pytest.mark.parametrize("split", [{"kind": "stratified"}, {"kind": "time", "column": "when"}])
def test_a_split_by_rank_is_checked_as_ingest_makes_it(tmp_path, split):
    tables, content = plain_graph()
    column("nodes", "when", [f"2024-01-{1 + number:02d}" for number in range(ROWS)])(tables)
    put("task.split", split)(content)
    assert not _look(tmp_path, tables, content).stops
    put("task.split", split | {"valid": 0.001, "test": 0.9})(content)
    column("nodes", "when", ["2024-01-01"] * ROWS)(tables)
    stops = _look(tmp_path, tables, content).stops
    assert len(stops) == (split["kind"] == "time"), stops


def test_times_that_python_has_no_value_for_are_shown(tmp_path):
    tables, content = plain_graph()
    days = pa.array([2**30 + number for number in range(ROWS)], pa.int32()).cast(pa.date32())
    for name, held in (("nodes", "when"), ("edges", "timestamp")):
        column(name, held, days)(tables)
    look = _look(tmp_path, tables, content)
    assert not look.stops
    assert any("beyond years 1 to 9999" in line for line in look.lines())


@pytest.mark.parametrize("case", _cases(PLAIN_MISTAKES))
def test_a_first_mistake_has_its_message(tmp_path, case):
    _finds(tmp_path, *plain_graph(), case)


@pytest.mark.parametrize("case", _cases(TYPED_MISTAKES))
def test_a_first_mistake_on_a_typed_graph_has_its_message(tmp_path, case):
    _finds(tmp_path, *typed_graph(), case)


def _finds(folder: Path, tables: Tables, content: Content, case: Mistake) -> None:
    """Look for one message with place and fix, of a run that begins with nothing; the lines of the fix mend it."""
    case.files(folder)
    case.spoil(tables)
    case.change(content)
    read = read_config(written(folder, tables, content))
    stops = first_look(read).stops
    shown = "\n".join(map(str, stops))
    assert len(stops) == 1, shown
    assert stops[0].where, shown
    assert stops[0].fix, shown
    assert all(part in shown for part in case.said), shown
    if not read.errors:  # a run says the same, before its first stage
        with pytest.raises(GnnflowError):
            perform(StageContext(refuse_first(read), Synchronous(), Silent()), "run")
    assert not (folder / "work" / "artifacts").exists()
    if case.mended is not None:
        case.mended(content)
        assert not first_look(read_config(written(folder, tables, content))).stops


def test_the_tables_of_mistakes_are_as_many_as_they_should_be():
    assert len(PLAIN_MISTAKES) + len(TYPED_MISTAKES) >= 64
    assert len(TYPED_MISTAKES) >= 32
    mended = [case for case in (*PLAIN_MISTAKES.values(), *TYPED_MISTAKES.values()) if case.mended is not None]
    assert 3 * len(mended) >= len(PLAIN_MISTAKES) + len(TYPED_MISTAKES)


def test_all_mistakes_of_a_graph_without_types_come_in_one_answer(tmp_path):
    tables, content = plain_graph()
    both(
        column("nodes", "split", ["train", "dev"] * (ROWS // 2)),
        column("edges", "weight", [-1.0] * ROWS),
    )(tables)
    both(
        put("train", {"num_epochs": 3, "batch_size": 0}),
        put("graph.features", ["age", "agee"]),
        put("publish.name", "${GNNFLOW_NO_SUCH}"),
    )(content)
    text = written(tmp_path, tables, content)
    said = "\n".join(map(str, first_look(read_config(text)).stops))
    parts = (
        "publish.name: the environment variable GNNFLOW_NO_SUCH is not set",
        "train.num_epochs: unknown key. Write it as train.epochs.",
        "train.batch_size: 0 is not allowed",
        "no column 'agee'",
        "'split': split is none of train, valid, test",
        "'weight': weight is negative",
    )
    assert all(part in said for part in parts), said
    assert said.count("\n") == len(parts) - 1, said


def test_all_mistakes_of_a_config_and_its_tables_come_in_one_answer(tmp_path):
    tables, content = typed_graph()
    for spoil in (
        column("user", "age", [str(age) for age in HALVES]),
        column("buys", "dst", ["i99"] * ROWS),
        renamed("knows", "src", "from"),
    ):
        spoil(tables)
    for change in (
        put("epochs", 3),
        put("train", {"strategy": "global-batch", "batch_size": 8, "lr": "fast"}),
        put("model", {"kind": "sage", "layers": 0}),
        put("graph.features.item", ["price", "size"]),
        put("graph.nodes.shop", "shop.parquet"),
    ):
        change(content)
    text = written(tmp_path, tables, content)
    said = "\n".join(map(str, first_look(read_config(text)).stops))
    for part in (
        "epochs: unknown key",
        "train.batch_size: unknown key",
        "train.lr: 'fast'",
        "model.layers: 0",
        "shop.parquet: no such table",
        "column 'age' is",
        "no column 'size'",
        "'dst': dst is not an id of the node table of item",
        "no column 'src'",
    ):
        assert part in said, f"{part}\n{said}"
    assert said.count("\n") == len(("epochs", "batch", "lr", "layers", "shop", "age", "size", "dst", "src")) - 1
    with pytest.raises(GnnflowError, match="9 things would stop this run"):
        refuse_first(read_config(text))


def test_the_look_shows_columns_roles_missing_values_classes_splits_and_keys(tmp_path):
    tables, content = plain_graph()
    column("nodes", "income", _AGES)(tables)
    column("nodes", "\x1b[2J\nx", _AGES)(tables)  # a name that would clear the terminal
    look = _look(tmp_path, tables, content)
    shown = "\n".join(look.lines(keys=True))
    assert "train mini-batch" in shown
    assert "train (strategy" not in "\n".join(look.lines())
    assert "  \\x1b[2J\\nx " in shown
    nodes = {column.name: column for column in look.tables[0].columns}
    assert nodes["id"].role == "id"
    assert nodes["age"].role == "feature (numerical)"
    assert nodes["country"].role == "not read (categorical)"
    assert nodes["income"].missing == 1 / ROWS
    assert nodes["country"].examples == ("'de'", "'fr'")
    assert look.targets.classes == {"0": 10, "1": 10}
    assert look.targets.splits == {"train": 10, "valid": 5, "test": 5}
    assert "train (strategy: mini-batch): epochs=1, lr" in shown
    assert "cluster   none" in shown
    assert "Nothing that can be seen" in shown
    assert look.as_json()["tables"][0]["rows"] == ROWS


def test_the_look_counts_the_edges_of_a_relation_that_takes_some_rows(tmp_path):
    """A filter by a value that no row has leaves a relation without edges, which a run of nodes allows."""
    tables, content = typed_graph()
    for value, edges in (("a", ROWS // 2), ("later", 0)):
        put("graph.edges.item__in__category.where", {"kind": value})(content)
        look = _look(tmp_path, tables, content)
        held = {table.key: table.edges for table in look.tables}
        assert held["graph.edges.item__in__category"] == edges
        assert held["graph.edges.user__buys__item"] is None
        assert f"{edges} of them edges of this relation" in "\n".join(look.lines())
    put("graph.edges.item__in__category.where", {"kind": "A"})(content)
    (stop,) = _look(tmp_path, tables, content).stops
    assert "no row has 'A' in column 'kind', and some have 'a'" in str(stop)


@pytest.mark.parametrize("form", ["parquet", "csv", "arrow"])
def test_a_large_table_is_judged_by_its_first_rows_alone(tmp_path, form):
    """A later value may fill a column that is empty in the sample, so nothing may be said about it."""
    rows = 40 * MOST_ROWS
    empty = pa.array([None] * (rows - 1) + [1.5])
    table = pa.table({"id": range(rows), "f": empty, "label": [0, 1] * (rows // 2)})
    folder = tmp_path / "nodes"
    folder.mkdir()
    if form == "csv":
        pa_csv.write_csv(table, folder / "part.csv")
    elif form == "arrow":
        with pa.ipc.new_file(folder / "part.arrow", table.schema) as out:
            out.write_table(table, max_chunksize=rows)
    else:
        pq.write_table(table, folder / "part.parquet")
    pq.write_table(pa.table({"src": [0, 1], "dst": [rows - 1, 2]}), tmp_path / "edges.parquet")
    graph = {
        "nodes": str(folder),
        "edges": str(tmp_path / "edges.parquet"),
        "features": ["f"],
        "on_bad_rows": "quarantine",
    }
    content = {"name": "large", "graph": graph, "task": {"split": {"kind": "random"}}, "workspace": str(tmp_path / "w")}
    look = first_look(read_config(yaml.safe_dump(content)))
    assert not look.stops
    nodes = look.tables[0]
    assert nodes.sampled < rows
    assert abs(nodes.rows - rows) < rows / 10
    if form == "parquet":  # the footer counts the nulls of all rows
        assert {column.name: column.missing for column in nodes.columns}["f"] == (rows - 1) / rows


@pytest.mark.parametrize("task", ["node", "link"])
def test_files_that_the_sample_does_not_reach_have_the_same_columns(tmp_path, monkeypatch, task):
    monkeypatch.setattr("gnnflow.storage.samples.MOST_ROWS", ROWS // 2)
    tables, content = plain_graph()
    content["task"] = {"kind": task}
    if task == "link":
        content["train"] = {"metric": "mrr"}
        content["task"]["split"] = {"kind": "random", "valid": 0.3, "test": 0.2}
    (folder := tmp_path / "many").mkdir()
    pq.write_table(tables["nodes"], folder / "1.parquet")
    pq.write_table(_cast(tables["nodes"].slice(0, 0), "age", pa.string()), folder / "2.parquet")
    text = yaml.safe_load(written(tmp_path, tables, content))
    text["graph"]["nodes"] = str(folder)
    (stop,) = first_look(read_config(yaml.safe_dump(text))).stops
    assert "column 'age' is string, in" in str(stop)
    assert stop.where.endswith("2.parquet")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_column_whose_first_rows_are_words_and_later_ones_amounts_is_asked_about(tmp_path, form):
    """Finds columns that the first rows of a sorted table make categories of."""
    rows = 8000
    price = ["free"] * 1500 + [f"{number + 999:,}.50" for number in range(rows - 1500)]
    table = pa.table({"id": range(rows), "price": price, "label": [0, 1] * (rows // 2)})
    if form == "csv":
        pa_csv.write_csv(table, tmp_path / "nodes.csv")
    else:
        pq.write_table(table, tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"src": [0, 1], "dst": [3, 2]}), tmp_path / "edges.parquet")
    graph = {"nodes": str(tmp_path / f"nodes.{form}"), "edges": str(tmp_path / "edges.parquet"), "features": ["price"]}
    content = {"name": "sorted", "graph": graph, "task": {"split": {"kind": "random"}}}
    (stop,) = first_look(read_config(yaml.safe_dump(content | {"workspace": str(tmp_path / "w")}))).stops
    assert re.search("column 'price' is .*string, not numbers", str(stop))


def test_codes_that_are_read_as_numbers_are_told_with_the_line_to_write(tmp_path):
    tables, content = plain_graph()
    column("nodes", "age", [f"{number % 7:03d}" for number in range(ROWS)])(tables)
    text = yaml.safe_load(written(tmp_path, tables, content))
    pa_csv.write_csv(tables["nodes"], tmp_path / "nodes.csv")
    text["graph"]["nodes"] = str(tmp_path / "nodes.csv")
    look = first_look(read_config(yaml.safe_dump(text)))
    assert not look.stops
    (note,) = [each for each in look.notes if "leading zeros" in each]
    assert "'000'" in note
    text["graph"] |= yaml.safe_load(note.partition("set graph: ")[2].removesuffix("."))
    look = first_look(read_config(yaml.safe_dump(text)))
    assert not look.notes
    assert {each.name: each.role for each in look.tables[0].columns}["age"] == "feature (categorical)"


def _cast(table: pa.Table, name: str, to: pa.DataType) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, table[name].cast(to))


def test_a_small_graph_starts_no_workers_unless_it_is_asked_to(tmp_path):
    tables, content = plain_graph()
    chosen = {}
    for name, more in {
        "default": {},
        "asked": {"cluster": {"kind": "local"}},
        "ranks": {"train": {"workers": 2}},
    }.items():
        run = resolve(load_config(written(tmp_path, tables, content | more), environment={}))
        chosen[name] = cluster_for(run).kind
    assert chosen == {"default": "synchronous", "asked": "local", "ranks": "local"}
    said: list[str] = []  # an operator without a cluster has the same rule
    run_here("ingest", load_config(written(tmp_path, tables, content), environment={}), say=said.append)
    assert any("the work runs in this process" in line for line in said)


def test_check_and_the_run_say_the_form_of_files_that_have_no_header(tmp_path):
    nodes, edges = tmp_path / "n.csv", tmp_path / "e.dat"
    rows = [f"u{number};Köln;{number},5;{('ja', 'nein')[number % 2]}" for number in range(100)]
    nodes.write_text("\n".join(rows) + "\n", encoding="latin-1")
    edges.write_text("".join(f"u{number} u{(number + 1) % 100}\n" for number in range(100)))
    formats = {
        "nodes": {"header": False, "columns": ["id", "city", "size", "label"], "encoding": "latin-1"},
        "edges": {"header": False, "columns": ["src", "dst"]},
    }
    graph = {"nodes": str(nodes), "edges": str(edges), "features": ["size", "city"], "formats": formats}
    content = yaml.safe_dump(
        {"name": "forms", "workspace": str(tmp_path / "w"), "graph": graph, "train": {"epochs": 1}}
    )
    look = first_look(read_config(content))
    assert not look.stops
    forms = ["separator semicolon, latin-1; decimal commas in size; no header", "separator space; no header"]
    assert [table.form for table in look.tables] == forms
    assert all(any(form in line for line in look.lines()) for form in forms)
    heard = Heard()
    perform(StageContext.of(load_config(content), progress=heard), "run")
    assert {f"nodes: read with {forms[0]}", f"edges: read with {forms[1]}"} <= {*heard.messages}


def test_a_type_whose_nodes_only_their_degrees_tell_apart_is_told_with_the_fix(tmp_path):
    tables, content = typed_graph()
    content["graph"] |= {"features": {"item": ["price"], "category": ["size"]}, "target": "user__buys__item"}
    content["task"] = {"kind": "link", "split": {"kind": "random", "valid": 0.3}}
    content["train"]["metric"] = "mrr"
    (note,) = _look(tmp_path, tables, content).notes
    assert note.startswith("user: its nodes have no features, and no edge into them brings any")
    assert note.endswith("Set graph.reverse_edges: true.")
    content["graph"]["reverse_edges"] = True
    assert not _look(tmp_path, tables, content).notes
