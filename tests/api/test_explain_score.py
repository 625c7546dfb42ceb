"""Contributions to a score are the differences that they claim to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import gnnflow as gf
from gnnflow.graph.errors import ConfigError
from gnnflow.stages.explanation import Explanation
from tests.command_line import printed
from tests.small_graphs import write_graph
from tests.typed_graphs import typed_tables

TRAIN = {"train": {"epochs": 3, "batch_size": 16}, "infer": {"parity_samples": 5}}


def log_odds(probabilities: list[float], number: int) -> float:
    return float(np.log(probabilities[number]) - np.log(1 - probabilities[number]))


def test_an_edge_contributes_what_the_score_lacks_without_it(tmp_path: Path) -> None:
    """GIN sums its neighbours and reads no degree, so that leaving out an edge is as if the table had none."""
    write_graph(tmp_path)
    nodes, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    workspace = str(tmp_path / "runs")
    content: dict[str, Any] = {"name": "sums", "workspace": workspace, "model": {"kind": "gin", "hidden": 8}, **TRAIN}
    content["graph"] = {"partitions": 2}
    run = gf.run(content, nodes=nodes, edges=edges, progress=False)
    gf.publish(run, progress=False)
    ends, counts = np.unique(edges["dst"].to_numpy(), return_counts=True)
    node = ends[counts.argmax()].item()
    found = gf.explain(run, node)
    assert {1, 2} == set(found.edges["hop"].to_pylist())
    row = run.predictions.filter(pc.equal(run.predictions["id"], node)).to_pylist()[0]
    assert found.explained == row["prediction"]
    assert np.isclose(found.value, log_odds(row["probabilities"], row["prediction"]), atol=1e-4)
    check_printed_sums(found)
    assert found.edges.filter(pc.equal(found.edges["hop"], 1)).num_rows == counts.max()
    for hop in (1, 2):
        strongest = found.edges.filter(pc.equal(found.edges["hop"], hop)).to_pylist()[0]
        same = pc.and_(pc.equal(edges["src"], strongest["source"]), pc.equal(edges["dst"], strongest["target"]))
        if pc.sum(same).as_py() != 1:  # of parallel edges one alone is left out
            continue
        without = edges.filter(pc.invert(same))
        later = gf.score("sums@champion", edges=without, ids=[node], workspace=workspace, progress=False)
        now = log_odds(later.predictions["probabilities"][0].as_py(), row["prediction"])
        assert np.isclose(strongest["contribution"], found.value - now, atol=1e-4)
    shown = json.loads(printed(["explain", run.uri, "--id", str(node), "--of", "0", "--json"]))
    assert shown["explained"] == 0
    assert printed(["explain", run.uri, "--id", str(node)]) == f"{found}\n"
    with pytest.raises(ConfigError, match="'9' is not a class"):
        gf.explain(run, node, of="9")


def check_printed_sums(found: Explanation) -> None:
    """Check that the numbers a person reads add up to the score less the score with all columns at 0."""
    lines = str(found).split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("columns: ")) + 2
    shown = [float(line.split()[-1].replace(",", "")) for line in lines[first : lines.index("", first)]]
    *parts, error, difference = shown
    half_digit = 0.5e-4
    assert abs(difference - (found.value - found.without_columns)) <= half_digit
    assert abs(sum(parts) + error - difference) <= half_digit * len(shown)
    assert abs(error) <= 1e-3 * max(0.1, abs(difference)) + half_digit
    own = found.columns.filter(pc.equal(found.columns["hop"], 0))
    assert np.isclose(pc.sum(own["contribution"]).as_py(), pc.sum(found.sums["own"]).as_py())
    assert np.isclose(sum(found.nodes["contribution"].to_pylist()), sum(found.sums["sum"].to_pylist()))


@pytest.mark.parametrize("sampling", ["weighted", "uniform"])
def test_sampled_and_typed_scores_are_explained(tmp_path: Path, sampling: str) -> None:
    held = typed_tables()
    content: dict[str, Any] = {
        "name": "typed",
        "workspace": str(tmp_path / "runs"),
        "graph": {"target": "account", "features": {"account": ["x"], "merchant": ["x"]}, "partitions": 2},
        "model": {"kind": "rgcn"},
        "neighbors": {"sampling": {"kind": sampling, "fanout": [4, 3]}},
        **TRAIN,
    }
    run = gf.run(
        content,
        nodes={name: table for name, table in held.items() if "__" not in name},
        edges={name: table for name, table in held.items() if "__" in name},
        progress=False,
    )
    node = held["account"]["id"].to_pylist()[3]
    found = gf.explain(run, node)
    row = run.predictions.filter(pc.equal(run.predictions["id"], node)).to_pylist()[0]
    assert np.isclose(found.value, log_odds(row["probabilities"], row["prediction"]), atol=1e-4)
    check_printed_sums(found)
    assert set(found.edges["relation"].to_pylist()) <= {name for name in held if "__" in name}
    assert {column[:2] for column in found.columns["column"].to_pylist()} == {"x["}
    near = found.edges.filter(pc.equal(found.edges["hop"], 1))
    assert set(near["target"].to_pylist()) <= {node}
