"""Edges whose rows are read where they lie name the rows that edges of copied rows name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.config import model_from_dict
from gnnflow.executions import sliced
from gnnflow.executions.tensors import block_tensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import InEdges
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.infer.reads import LayerReads
from gnnflow.layers import ModelInputs, build_model
from gnnflow.native import core

WIDTH = 5


class Reads(NamedTuple):
    """What one of three partitions reads, and the dense ids of its targets [T] and of its edges' sources [E]."""

    found: LayerReads
    targets: np.ndarray
    sources: np.ndarray


def reads(seed: int) -> Reads:
    """Return random in-edges, self-loops too, of some of a partition's rows, which come before and after others."""
    rng = np.random.default_rng(seed)
    book = PartitionBook(offsets_of(rng.integers(1, 6, 3)))
    index = int(rng.integers(3))
    rows = np.flatnonzero((rng.random(book.size(index)) < 0.7) | (np.arange(book.size(index)) == 0))
    targets, lengths = rows + book.start(index), rng.integers(0, 5, len(rows))
    sources = rng.integers(0, book.num_nodes, lengths.sum())
    asked = np.setdiff1d(sources, targets)
    edges = InEdges(offsets_of(lengths), sources, weight=rng.uniform(0.5, 2, len(sources)).astype(np.float32))
    job: Any = SimpleNamespace(neighbors=SimpleNamespace(store=SimpleNamespace(book=book), sampling=EVERY_EDGE))
    offsets = np.searchsorted(asked, book.offsets)
    return Reads(LayerReads(index, job, 0, rows, edges, asked, offsets), targets, sources)


def named(block: Block, ids: np.ndarray) -> list[list[int]]:
    """Return the nodes that each target reads, then itself. ids: the node of each source row."""
    csr = block_tensors(block).with_self.csr
    assert csr.num_sources == len(ids)
    return [part.tolist() for part in np.split(ids[csr.sources.numpy()], csr.offsets[1:-1].numpy())]


@given(st.integers(0, 2**32 - 1))
def test_a_block_in_place_names_the_rows_of_the_copied_one(seed: int) -> None:
    """Finds a row taken for another in a block, its runs and its cuts, which else runs of GraphInfer alone find."""
    of = reads(seed)
    copied, placed, count = of.found.whole, of.found.in_place, len(of.targets)
    every, ids = np.arange(placed.num_sources), np.concatenate([of.targets, of.found.asked])
    reached = np.split(of.sources, copied.edges.offsets[1:-1])
    wanted = [[*each.tolist(), own] for each, own in zip(reached, of.targets.tolist(), strict=True)]
    assert named(copied, ids) == named(placed, every) == wanted
    rng = np.random.default_rng(seed)
    begin = int(rng.integers(count))
    run, order = slice(begin, int(rng.integers(begin, count)) + 1), rng.permutation(count)
    assert named(copied.run(run), np.concatenate([ids[run], ids])) == named(placed.run(run), every) == wanted[run]
    assert named(placed.cut(order), every) == [wanted[target] for target in order]


@pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat", "gin", "pinsage", "ggnn"])
def test_a_layer_gives_the_rows_of_a_copied_block_from_a_block_in_place(kind: str) -> None:
    """Finds a layer that takes the first source rows for those of its targets."""
    model = build_model(model_from_dict({"kind": kind, "hidden": 4, "layers": 1}), ModelInputs(WIDTH, num_outputs=3))
    model.eval()
    of = next(each for each in map(reads, range(99)) if len(each.targets) > 3 and len(each.found.asked) > 3)
    copied, placed, ids = of.found.whole, of.found.in_place, np.concatenate([of.targets, of.found.asked])
    assert sliced.reads_in_place(model, 0, copied)
    degrees = np.arange(1, placed.num_sources + 1)
    nodes = Degrees(degrees, degrees, degrees.astype(np.float32))
    h = np.random.default_rng(0).normal(size=(placed.num_sources, WIDTH)).astype(np.float32)
    terms = sliced.term_slice(model, 0, h=h, nodes=nodes)
    own = {name: rows[of.targets] for name, rows in terms.target.items()}
    runs = [slice(0, 2), slice(2, len(of.targets))]
    room = sliced.room_for(runs)
    source = {name: np.concatenate([np.zeros_like(rows[:room]), rows[ids]]) for name, rows in terms.source.items()}
    ways = [sliced.Gathered(source, copied, room=room), sliced.Gathered(dict(terms.source), placed)]
    rows = [
        np.concatenate([*sliced.gathered_runs(model, 0, own=own, gathered=gathered, runs=runs)]) for gathered in ways
    ]
    assert np.array_equal(*rows)
