"""Some ids are scored as all nodes are, sample and seed included, by function and by command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import gnnflow as gf
from gnnflow.graph.errors import ConfigError
from gnnflow.stages import score_ids
from tests.command_line import printed, run_cli
from tests.small_graphs import write_graph


@pytest.mark.parametrize("sampling", ["uniform", "weighted"])
def test_ids_get_the_scores_of_the_whole_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: str) -> None:
    write_graph(tmp_path)
    content: dict[str, Any] = {
        "name": "sampled",
        "workspace": str(tmp_path / "runs"),
        "graph": {
            "nodes": str(tmp_path / "nodes.parquet"),
            "edges": str(tmp_path / "edges.parquet"),
            "partitions": 2,
        },
        "neighbors": {"sampling": {"kind": sampling, "fanout": [3, 2]}},
        "model": {"kind": "sage", "hidden": 8},
        "train": {"epochs": 2, "batch_size": 16},
        "infer": {"parity_samples": 5, "embeddings": True},
    }
    file = tmp_path / "sampled.yaml"
    file.write_text(yaml.safe_dump(content))
    gf.publish(gf.run(file, progress=False), progress=False)
    edges = pq.read_table(tmp_path / "edges.parquet").slice(50)
    monkeypatch.setattr(score_ids, "AT_ONCE", 4)
    monkeypatch.setattr(score_ids, "_BATCH", 3)
    ids = pq.read_table(tmp_path / "nodes.parquet")["id"].to_pylist()[11:1:-1]
    some = gf.score("sampled@champion", edges=edges, ids=ids, workspace=content["workspace"], progress=False)
    assert (some.uri, some.predictions["id"].to_pylist()) == ("", ids)
    every = gf.score("sampled@champion", edges=edges, workspace=content["workspace"], progress=False)
    held = every.predictions.take([every.predictions["id"].to_pylist().index(each) for each in ids])
    assert some.predictions.schema.equals(held.schema)
    for name in ("probabilities", "embedding"):
        mine, theirs = (np.stack(table[name].to_pylist()) for table in (some.predictions, held))
        assert np.allclose(mine, theirs, atol=1e-6)


def test_the_command_takes_a_list_or_a_file(tmp_path: Path) -> None:
    write_graph(tmp_path)
    places = {name: str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges")}
    content = {
        "name": "small",
        "workspace": str(tmp_path / "runs"),
        "graph": {**places, "partitions": 2},
        "train": {"epochs": 2},
    }
    file, listed = tmp_path / "small.yaml", tmp_path / "ids.txt"
    file.write_text(yaml.safe_dump(content))
    run = gf.run(file, progress=False)
    gf.publish(run, progress=False)
    ids = run.predictions["id"].to_pylist()[2:4]
    listed.write_text("\n".join(map(str, ids)) + "\n")
    found = json.loads(printed(["score", str(file), "--ids", str(listed), "--json"]))
    assert [row["id"] for row in found["predictions"]] == ids
    lines = printed(["score", str(file), "--ids", f"{ids[0]},{ids[1]}"]).splitlines()[:3]
    assert lines.pop(0).split()[0] == "id"
    assert [line.split()[0] for line in lines] == [str(each) for each in ids]
    assert "ids: id -5: not in the graph" in run_cli(["score", str(file), "--ids", f"{ids[0]},-5"]).err
    many = ",".join(str(ids[0]) for _ in range(3000))  # longer than the name of a file can be
    assert printed(["score", str(file), "--ids", many]).splitlines()[1].split() == lines[0].split()
    listed.write_text(f"{ids[0]}\n", encoding="utf-8-sig")
    assert printed(["score", str(file), "--ids", str(listed)]).splitlines()[1].split() == lines[0].split()
    listed.write_bytes(b"\xff\n")
    assert "ids.txt: is not UTF-8 text" in run_cli(["score", str(file), "--ids", str(listed)]).err


def test_ids_of_edges_are_refused() -> None:
    with pytest.raises(ConfigError, match="the targets of this model are edges"):
        score_ids._refuse_targets(_Context())  # type: ignore[arg-type]


class _Context:
    """A context of a task of edges."""

    config = gf.Config.model_validate(
        {"name": "edges", "graph": {"nodes": "n.parquet", "edges": "e.parquet"}, "task": {"kind": "edge"}}
    )
