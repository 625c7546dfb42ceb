"""The report of a typed graph says what each table gave, and which rows of it were set aside."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from gnnflow.config import config_from_dict
from gnnflow.graph.facts import SelectFacts
from gnnflow.stages import pipeline
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables


def test_types_relations_and_rows_set_aside_are_listed(tmp_path: Path) -> None:
    tables = typed_tables()
    uses = tables["account__uses__device"]
    tables["account__uses__device"] = uses.set_column(1, "dst", pa.array(["nobody's", *uses["dst"].to_pylist()[1:]]))
    config = config_from_dict(
        {
            "name": "typed",
            "workspace": str(tmp_path / "runs"),
            "graph": {**write_tables(tmp_path, tables), "reverse_edges": True, "on_bad_rows": "quarantine"},
            "model": {"kind": "sage", "hidden": 4},
            "train": {"epochs": 1},
            "infer": {"parity_samples": 4},
            "cluster": {"kind": "synchronous"},
        }
    )
    page = Path(pipeline.run_quietly(config).report.removeprefix("file://")).read_text()
    rows = {cells[0]: cells[1:] for cells in map(_cells, page.split("<tr>")) if cells}
    assert rows["account, scored"] == ["40", "3 dense", "0"]
    assert rows["device"] == ["13", "none: a learned row and degrees", "0"]
    # edges, in-edges per node, at most, attributes, and the row that names no device
    assert rows["account__uses__device"][:2] == ["119", "9.15"]
    assert rows["account__uses__device"][3:] == ["none", "1"]
    unknown = "dst is not an id of the node table of device"
    assert rows["edges/account__uses__device"] == ["dst", unknown, "1", "0.833 %", "no labels"]
    assert rows["device__rev_uses__account"][0] == "119"
    assert rows["account__pays__merchant"][3:] == ["1, weights", "0"]


def test_relations_that_were_selected_are_listed(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(
        tmp_path,
        neighbors={"kind": "walks", "top_k": 4},
        model={"kind": "pinsage", "hidden": 4},
        train={"epochs": 1},
        infer={"parity_samples": 4},
    )
    made = pipeline.run_quietly(config)
    (walks,) = made.stages["select"].facts(SelectFacts).relations
    page = Path(made.report.removeprefix("file://")).read_text()
    rows = {cells[0]: cells[1:] for cells in map(_cells, page.split("<tr>")) if cells}
    shown = [str(walks.num_edges), f"{walks.num_edges / 60:.3g}", str(walks.max_in_degree), "none, weights"]
    assert rows["node__walks__node"] == shown


def _cells(row: str) -> list[str]:
    """Return the texts of a row's cells."""
    return [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
