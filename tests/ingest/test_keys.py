"""Tables whose columns are called otherwise in each give the store of tables that call them alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnflow.config import GraphConfig, config_from_dict
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.ingest.subsample import read_subsample
from gnnflow.progress import Silent
from tests.typed_graphs import ingested, typed_tables, write_tables

USES, PAYS = "account__uses__device", "account__pays__merchant"
NAMES: dict[str, dict[str, str]] = {
    "id": {"account": "account_id", "device": "serial"},
    "label": {"account": "risk"},
    "split": {"account": "part"},
    "src": {USES: "account_id"},
    "dst": {USES: "serial", PAYS: "shop"},
    "weight": {PAYS: "share"},
}


def renamed(folder: Path) -> dict[str, Any]:
    """Write the tables with their columns called as NAMES has it, and return the graph section."""
    tables = typed_tables()
    for key, names in NAMES.items():
        for table, name in names.items():
            held = tables[table]
            tables[table] = held.rename_columns([name if own == key else own for own in held.column_names])
    return {**write_tables(folder, tables), **NAMES}


def test_a_map_of_names_reads_what_one_name_for_all_reads(tmp_path: Path) -> None:
    _, alike = ingested(tmp_path / "alike", write_tables(tmp_path / "alike", typed_tables()))
    _, own = ingested(tmp_path / "own", renamed(tmp_path / "own"))
    assert own.digest == alike.digest
    assert own.facts["labelled"] == 40


def test_a_plan_reads_them_too(tmp_path: Path) -> None:
    found = read_subsample(GraphConfig(**renamed(tmp_path)), targets=None, smallest=1, largest=100, progress=Silent())
    small = found.subsample.write(str(tmp_path / "small"), one_in=found.levels[0], chunks=1)
    store, _ = ingested(tmp_path, small.model_dump())
    assert store.facts.num_nodes > 0


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"id": {"acount": "a"}}, r"graph\.id\.acount: 'acount' is not known: graph\.nodes has account, device, mer"),
        ({"src": {"account": "a"}}, r"graph\.src\.account: 'account' is not known: graph\.edges has account__pays"),
        ({"id": {"account": "label"}}, r"graph\.label: 'label' is the column of graph\.id too"),
        ({"dst": {USES: "src"}}, r"graph\.dst\.account__uses__device: 'src' is the column of graph\.src too"),
        ({"id": {"account": "k"}, "features": {"account": ["k"]}}, r"graph\.features\.account: 'k' is the column of"),
        ({"id": {}}, r"graph\.id"),
    ],
)
def test_maps_that_cannot_be_are_refused_when_the_config_is_read(
    tmp_path: Path, graph: dict[str, Any], words: str
) -> None:
    section = {**write_tables(tmp_path, typed_tables()), **graph}
    with pytest.raises(ConfigError, match=words):
        config_from_dict({"name": "typed", "workspace": str(tmp_path), "graph": section})


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"id": {"device": "nr"}}, r"device\.parquet: has no column 'nr' .*graph\.id: \{device: COLUMN\}"),
        ({"weight": {PAYS: "none"}}, r"graph\.weight\.account__pays__merchant: its edge table has no column 'none'"),
        ({"label": {"account": "none"}}, r"has no column 'none' \(graph\.label\)"),
    ],
)
def test_names_that_a_table_lacks_are_refused(tmp_path: Path, graph: dict[str, Any], words: str) -> None:
    with pytest.raises(TableError, match=words):
        ingested(tmp_path, {**write_tables(tmp_path, typed_tables()), **graph})
