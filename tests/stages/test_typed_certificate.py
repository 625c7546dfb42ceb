"""The certificate of typed graphs: GraphInfer and the path that trained agree, and accounts alone are scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gnnflow.config import config_from_dict
from gnnflow.stages import pipeline
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import read_table
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

EXACT = 1e-5


@pytest.mark.table(4)
@pytest.mark.parametrize(
    ("model", "sampling"),
    [
        ({"kind": "hgt", "heads": 2}, {"kind": "none"}),
        ({"kind": "han", "heads": 2}, {"kind": "weighted", "fanout": [4, 3]}),
    ],
    ids=["hgt of every edge", "han of a sample"],
)
def test_both_paths_agree_on_a_typed_graph(tmp_path: Path, model: dict[str, Any], sampling: dict[str, Any]) -> None:
    tables = typed_tables()
    config = config_from_dict(
        {
            "name": "typed",
            "workspace": str(tmp_path / "runs"),
            "graph": {**write_tables(tmp_path, tables), "reverse_edges": True},
            "neighbors": {"sampling": sampling},
            "model": {**model, "layers": 2, "hidden": 8},
            "train": {"epochs": 2},
            "infer": {"parity_samples": 20, "embeddings": True},
            "cluster": {"kind": "synchronous"},
        }
    )
    stage = pipeline.run_quietly(config).stages["infer"]
    parity = stage.manifest.facts["parity"]
    assert parity["samples"] == 20
    assert parity["compared"] == "like training"
    assert parity["max_difference"] < EXACT
    parts = [join(stage.artifact, each.name) for each in stage.manifest.files if each.name.startswith("predictions/")]
    table = pa.concat_tables([read_table(each) for each in parts])
    assert sorted(table["id"].to_pylist()) == sorted(tables["account"]["id"].to_pylist())
    assert to_matrix(table["embedding"]).shape[0] == table.num_rows
