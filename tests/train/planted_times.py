"""A small graph whose edges have times, as shards that need no files: its last edges are held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnflow.config import EdgeTask
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.hashing import hash_integers
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import PairShard, Shard
from gnnflow.layers.decoders import DecoderInputs
from gnnflow.layers.model import ModelInputs
from gnnflow.sampling.pairs import pair_keys
from gnnflow.train.job import Shards, TrainJob
from gnnflow.train.minibatch import MiniBatchSource, open_source
from tests.time_splits import time_splits
from tests.train.planted_links import NUM_NODES, WIDTH, Links, link_job, links, message_graph

LINK = {"split": {"kind": "time", "valid": 0.15, "test": 0.15}}
ATTRIBUTES = 2


@dataclass(frozen=True)
class Edges:
    """Pairs of each split with times, labels and attributes, in a graph of some of them."""

    neighborhood: Neighborhood
    pairs: Mapping[str, np.ndarray]
    times: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]
    attributes: Mapping[str, np.ndarray]
    have_times: bool = True

    def read(self, entry: ShardEntry) -> PairShard:
        pairs, every = self.pairs[entry.split], np.arange(NUM_NODES)
        return PairShard(
            Shard(self.neighborhood, every, every, None),
            pairs[:, 0],
            pairs[:, 1],
            pair_keys(hash_integers(pairs[:, 0]), hash_integers(pairs[:, 1])),
            every,
            labels=self.labels[entry.split],
            attributes=self.attributes[entry.split],
            times=self.times[entry.split] if self.have_times else None,
        )

    def open_source(self, job: TrainJob, *, edges: bool) -> MiniBatchSource:
        labels = self.labels
        if job.task.kind == "link":  # the column of the true target
            labels = {split: np.zeros(len(pairs), np.int64) for split, pairs in self.pairs.items()}
        return open_source(job, edges=edges, read=replace(self, labels=labels).read)

    def entries(self) -> list[ShardEntry]:
        return Links(self.neighborhood, self.pairs).entries()

    def alone(self, split: str, number: int, *, carrying: Sequence[str] = ("train",)) -> Edges:
        """One pair in the graph of the edges before it, those of some splits, which has no times."""
        pairs, times = (np.concatenate([each[name] for name in carrying]) for each in (self.pairs, self.times))
        x = self.neighborhood.features.dense
        assert x is not None
        graph = message_graph(pairs[times < self.times[split][number]], x)
        return replace(self.only(split, number), neighborhood=graph, have_times=False)

    def only(self, split: str, number: int) -> Edges:
        """One pair, as one to train on, in the same graph."""
        columns = (self.pairs, self.times, self.labels, self.attributes)
        return Edges(self.neighborhood, *({"train": each[split][number : number + 1]} for each in columns))

    def without_times(self) -> Edges:
        """The same, as if nothing were known of times."""
        edges = replace(self.neighborhood.edges, time=None)
        return replace(self, neighborhood=replace(self.neighborhood, edges=edges), have_times=False)


def timed_edges(*, chance: bool = False, leak: bool = False, all_carry: bool = False, coarse: int = 40) -> Edges:
    """Return the graph of `links` with a time for each edge, of `coarse` different ones.

    leak: one test edge carries messages too; all_carry: all do. A label says whether an edge's first attribute is above
    zero.
    """
    rng = np.random.default_rng(4)
    drawn = links(chance=chance)
    x = drawn.neighborhood.features.dense
    assert x is not None
    ends = np.concatenate(list(drawn.pairs.values()))
    times = rng.integers(0, coarse, len(ends))
    attributes = rng.normal(size=(len(ends), ATTRIBUTES)).astype(np.float32)
    labels = (attributes[:, 0] > 0).astype(np.int64)
    split = time_splits(times, valid=0.15, test=0.15)
    carrying = (split == 0) | all_carry
    if leak:
        carrying[np.flatnonzero(split == SPLITS.index("test"))[0]] = True
    return Edges(
        with_times(message_graph(ends[carrying], x), ends[carrying], times[carrying]),
        *(
            {name: each[split == code] for code, name in enumerate(SPLITS)}
            for each in (ends, times, labels, attributes)
        ),
    )


def with_times(graph: Neighborhood, ends: np.ndarray, times: np.ndarray) -> Neighborhood:
    """Return a graph of edges in both directions with the time of each."""
    both = np.concatenate([ends, ends[:, ::-1]])
    order = np.lexsort((both[:, 0], both[:, 1]))
    assert (offsets_of(np.bincount(both[:, 1], minlength=NUM_NODES)) == graph.edges.offsets).all()
    return replace(graph, edges=replace(graph.edges, time=np.concatenate([times, times])[order]))


def timed_job(graph: Edges, **keys: object) -> TrainJob:
    """Return a job of links on the graph."""
    job = link_job(Links(graph.neighborhood, graph.pairs), task=keys.pop("task", LINK), **keys)  # type: ignore[arg-type]
    return replace(job, graph=Shards("links", graph.entries()))


def edge_job(graph: Edges, *, task: Mapping[str, object] | None = None, outputs: int = 2, **keys: object) -> TrainJob:
    """Return a job of labels of edges on the graph."""
    asked = EdgeTask.model_validate({"width": 8, "decoder": {"kind": "mlp", "hidden": 16}, **(task or {})})
    job = timed_job(graph, metric="accuracy", **keys)
    is_mlp = asked.decoder.kind == "mlp"
    decoder = DecoderInputs(
        asked.decoder.kind, num_outputs=outputs, hidden=16, attribute_width=ATTRIBUTES if is_mlp else 0
    )
    inputs = ModelInputs(WIDTH, asked.width, decoder=decoder)
    return replace(job, task=asked, model=replace(job.model, inputs=inputs), label_kind="single", num_classes=outputs)
