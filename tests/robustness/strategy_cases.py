"""Strategies that cannot train, or hardly: refused readably, or scored as any others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.robustness.case import Case, accepted, refused
from tests.robustness.inputs import Inputs, Spoil, both, command, key, one_edge
from tests.robustness.partition_cases import every_node_is_scored

_CLUSTERS = {"strategy": "cluster-batch", "epochs": 2}
_WHOLE = {"strategy": "global-batch", "epochs": 2}
_STORE = {"strategy": "mini-batch", "source": "store", "epochs": 2}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _keys()
    yield from _sections()
    yield from _budgets()
    yield from _hardly_any()


def _keys() -> Iterator[Case]:
    """Yield keys that cannot be, or are another strategy's."""
    for name, section, *words in (
        ("of no name", {"strategy": "whole"}, "train.strategy", "'whole'", "global-batch"),
        ("of a number", {"strategy": 3}, "train.strategy", "3"),
        ("of clusters with a size", {**_CLUSTERS, "batch_size": 4}, "train.batch_size", "unknown key"),
        ("of no cluster", {**_CLUSTERS, "clusters_per_batch": 0}, "train.clusters_per_batch", "0"),
        ("of half a cluster", {**_CLUSTERS, "clusters_per_batch": 0.5}, "train.clusters_per_batch", "0.5"),
        ("three hops out", {**_CLUSTERS, "boundary_hops": 3}, "train.boundary_hops", "3"),
        ("of the whole with batches", {**_WHOLE, "batch_size": 4}, "train.batch_size", "unknown key"),
        ("of the whole, accumulated", {**_WHOLE, "accumulate": 2}, "train.accumulate", "unknown key"),
        ("of the whole, computed maybe", {**_WHOLE, "recompute": "maybe"}, "train.recompute", "'maybe'"),
        ("from nowhere", {"source": "cloud"}, "train.source", "'cloud'"),
        ("anew each step", {**_STORE, "resample": "step"}, "train.resample", "'step'"),
        ("anew without a sample", {**_STORE, "resample": "epoch"}, "train.resample", "none"),
        ("with clusters in mini-batches", {"clusters_per_batch": 2}, "train.clusters_per_batch", "unknown key"),
    ):
        yield refused(f"strategy: {name}", key("train", section), *words)


def _sections() -> Iterator[Case]:
    """Yield strategies that do not go with another section."""
    sampled = key("neighbors", {"sampling": {"kind": "uniform", "fanout": [2, 2]}})
    yield refused("strategy: clusters of a sample", both(key("train", _CLUSTERS), sampled), "neighbors.sampling.kind")
    one = key("graph.partitions", 1)
    yield refused("strategy: one cluster", both(key("train", _CLUSTERS), one), "graph.partitions", "1")
    for section in (_WHOLE, _CLUSTERS, _STORE):
        for name, value in (("shard_size", 9), ("layout", "inline"), ("targets", "all")):
            spoil = both(key("train", section), key(f"flat.{name}", value))
            yield refused(
                f"strategy: flat.{name} of {section['strategy']}", spoil, f"flat.{name}", "GraphFlat", "reads none"
            )
    timed = key("task", {"kind": "link", "split": {"kind": "time"}})
    for section in (_CLUSTERS, _WHOLE):
        train = both(key("train", {**section, "metric": "mrr"}), key("graph.timestamp", "timestamp"))
        said = f"strategy: times by {section['strategy']}"
        yield refused(said, both(train, timed), "train.strategy", "its row differs at each")
    few = key("train", {**_WHOLE, "folds": 0})
    yield refused("strategy: the whole in no fold", few, "train.folds", "0")
    servers = {**_WHOLE, "updater": {"kind": "parameter_server"}}
    spoil = both(key("train", servers), key("cluster", {"kind": "local", "workers": 2}))
    yield refused("strategy: the whole through servers", spoil, "train.updater.kind", "parameter_server")


def _budgets() -> Iterator[Case]:
    """Yield budgets of memory and places of files that cannot be, which no stage is run for."""
    for memory, said in (("1KiB", "1KiB"), (1000000, "1000000"), ("31.5MiB", "32256KiB")):
        spoil = both(key("train", {**_WHOLE, "memory": memory}), command("run"))
        yield refused(f"strategy: {memory} of memory", spoil, "train.memory", f"{said} is not enough for any graph")
    for folder in ("{folder}/none", "{folder}/config.yaml", "s3://bucket/x"):
        yield refused(f"strategy: files in {folder}", _filed_in(folder), "train.scratch", "folder of a local disk")
    filed = both(key("train", {**_WHOLE, "memory": "1GiB"}), command("run"))
    paths = [["node", "node"], ["node", "node", "node"]]
    spoil = both(key("train", {**_WHOLE, "memory": "1GiB", "device": "cuda"}), command("run"))
    spoil = both(spoil, key("neighbors", {"kind": "metapaths", "paths": paths}))
    yield refused("strategy: two metapaths in files for a card", spoil, "train.device", "give several relations")
    spoil = both(key("train", {**_WHOLE, "memory": "1GiB", "workers": 2}), command("run"))
    spoil = both(spoil, key("cluster", {"kind": "local", "workers": 2}))
    spoil = both(spoil, key("neighbors", {"kind": "metapaths", "paths": paths[1:]}))
    yield refused("strategy: metapaths in files of ranks", spoil, "train.workers", "leaves")
    yield accepted("strategy: one attribute of edges in files", filed, check=every_node_is_scored)


def _filed_in(folder: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        scratch = folder.replace("{folder}", str(inputs.folder))
        inputs.config["train"] = {**_WHOLE, "memory": "1GiB", "scratch": scratch}
        inputs.command = ["run"]

    return spoil


def _hardly_any() -> Iterator[Case]:
    """Yield graphs of one edge: most nodes have no neighbour in any batch."""
    sections: tuple[dict[str, Any], ...] = (_WHOLE, {**_WHOLE, "recompute": True}, _STORE, _CLUSTERS)
    for section in sections:
        spoil = both(key("train", section), key("model", {"hidden": 4}), command("run"), one_edge)
        yield accepted(f"strategy: {section} of one edge", spoil, check=every_node_is_scored)
