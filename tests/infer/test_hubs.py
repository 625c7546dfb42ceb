"""In-edges of hubs that several tasks add up give what one task gives, wherever rows lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.infer import sending
from gnnflow.infer.choice import Exchange
from gnnflow.infer.run import run_rounds
from gnnflow.infer.states import layer_bytes
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.tables import read_table
from tests.budget import examples
from tests.contracts.test_graphinfer import MODELS, SAMPLINGS, TOLERANCE, prepare, reference, stored
from tests.infer import test_typed as typed
from tests.infer.test_mapped import EXCHANGES, both_ways
from tests.infer.test_states import MODELS_HERE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

SPLIT = sorted(set(MODELS_HERE) - {"median layer", "layer of PyG"})
THRESHOLDS = st.sampled_from([1, 8, 12, 60])


class Backwards(Synchronous):
    """Runs tasks in another order, as several workers do."""

    def run(self, function: Callable[[int], Any], indices: Sequence[int]) -> Iterator[Any]:
        """Yield results, the last task's first."""
        yield from super().run(function, indices[::-1])


@settings(max_examples=examples(40), deadline=None)
@given(drawn=st.data())
def test_split_hubs_give_what_the_definition_gives_both_ways(drawn: st.DataObject) -> None:
    """Finds an edge of a hub that is lost or counted twice, in any aggregation or pruned round."""
    name, threshold = drawn.draw(st.sampled_from(SPLIT)), drawn.draw(THRESHOLDS)
    targets, exchange = drawn.draw(st.sampled_from(["all", (2,)])), drawn.draw(st.sampled_from(EXCHANGES))
    least = drawn.draw(st.sampled_from([1, sending._LEAST_PIECE_BYTES]))
    graph = stored("graph")
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "_LEAST_PIECE_BYTES", least)
        job = prepare(graph, Path(folder), MODELS_HERE[name], SAMPLINGS["whole"], targets=targets)
        job = replace(job, exchange=exchange, hub_threshold=threshold)
        sent, kept = both_ways(job, Path(folder))
        last = run_rounds(job, RoundRunner(str(Path(folder) / "work"), Backwards())).files
        table = pa.concat_tables([read_table(f"{job.artifact}/{entry.name}") for entry in last])
        expected = reference(graph, job)
    rows = np.arange(graph.nodes.num_rows) if targets == "all" else np.flatnonzero(graph.nodes["split"].to_numpy() == 2)
    assert sent == kept == last
    assert np.abs(to_matrix(table["probabilities"]) - expected[rows]).max() < TOLERANCE


@settings(max_examples=examples(25), deadline=None)
@given(drawn=st.data())
def test_split_hubs_of_a_relation_give_what_the_definition_gives_both_ways(drawn: st.DataObject) -> None:
    """Finds edges of one relation's hubs that are another's, or that read terms of other targets."""
    kind, threshold = drawn.draw(st.sampled_from([*typed.KINDS.values(), typed.RICH])), drawn.draw(THRESHOLDS)
    exchange = drawn.draw(st.sampled_from(EXCHANGES))
    with TemporaryDirectory() as folder:
        job = typed.prepare(Path(folder), kind, partitions=3, exchange=exchange, hub_threshold=threshold)
        sent, kept = both_ways(job, Path(folder))
        typed.assert_as_defined(job, typed.predictions(job, Path(folder)))
    assert sent == kept


@pytest.mark.parametrize(("model", "split"), [("sage mean", True), ("gat", True), ("median layer", False)])
@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_hub_is_split_where_states_merge_and_nothing_is_left(
    tmp_path: Path, model: str, *, split: bool, is_mapped: bool
) -> None:
    job = prepare(stored("graph"), tmp_path, MODELS[model], SAMPLINGS["whole"])
    job = replace(job, exchange=Exchange(mapped=is_mapped), hub_threshold=50)
    runner = RoundRunner(str(tmp_path / "work"), Synchronous())
    text = run_rounds(job, runner).hubs
    assert text.startswith("hubs: 1 times a target reads more than 50 in-edges; ")
    assert ("partitions of their sources" in text) is split
    assert {"hubs_1", "hubs_2"} <= {each.name for each in runner.timings} or not split
    assert not list((tmp_path / "work").glob("*/hub_*")), "what no later round reads is deleted"


def test_a_sample_is_not_split(tmp_path: Path) -> None:
    job = prepare(stored("graph"), tmp_path, MODELS["gcn"], SAMPLINGS["uniform"])
    runner = RoundRunner(str(tmp_path / "work"), Synchronous())
    run_rounds(replace(job, hub_threshold=1), runner)
    assert not any(each.name.startswith("hubs") for each in runner.timings)


def test_a_row_that_every_partition_reads_is_sent_once_to_each(tmp_path: Path) -> None:
    """Finds a node with many out-edges whose row travels once per edge."""
    graph = stored("graph")
    edges, book = graph.edges, graph.store.book
    source, owner = edges["src"].to_numpy(), book.owner(edges["dst"].to_numpy())
    pairs = np.unique(np.stack([source, owner])[:, book.owner(source) != owner], axis=1).shape[1]
    job = prepare(graph, tmp_path, MODELS["gcn"], SAMPLINGS["whole"])
    sent = run_rounds(replace(job, exchange=Exchange("rows")), RoundRunner(str(tmp_path), Synchronous())).sent
    layers = layer_bytes(job.load_model(), leaves=[1], columns=job.edge_columns)
    assert sent.row_bytes == pairs * sum(of_relations[0].row for of_relations in layers)
