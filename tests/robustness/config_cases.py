"""Configs: every key of the schema with every wrong type and bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ByteSize

from gnnflow.config import Config
from tests.robustness.case import Case, refused
from tests.robustness.inputs import Inputs, both, command, key

HUGE = 10**30


WRONG: dict[str, tuple[Any, ...]] = {  # by what a key holds: values of no such kind
    "int": ("many", True, 1.5, [1], {"a": 1}, -HUGE, "1e400", ""),
    "float": ("many", True, [1.0], {"a": 1}, ".nan", "1e999", -1e300, ""),
    "bool": ("maybe", 2, [True], {"a": 1}, "", 0.5),
    "str": (5, True, [], {}, 1.5, ""),
    "choice": ("nonsense", 5, True, [], {}, ""),
    "size": ("many", "2 parsecs", -1, [1], True, "1e400GiB"),
    "map": (5, True, [], 1.5, "", {"x": 1}),
    "tuple": ({}, "", 7, [[]], [{}], [None]),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _every_key()
    yield from _choices()
    yield from _ranks()
    yield from _links()
    yield from _names()
    yield from _types()


def leaves(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key of the schema with what it holds; of a union, the first kind stands for all."""
    for name, field in model.model_fields.items():
        here = f"{path}{name}"
        if here in {"cluster", "model.options", "neighbors.sampling"} or name == "kind":
            continue
        parts = [part for part in _parts(field.annotation) if part is not type(None)]
        below = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
        if below is not None:
            yield from leaves(below, f"{here}.")
        else:
            yield here, _holds(parts)


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (UnionType, Union):
        return [found for part in get_args(annotation) for found in _parts(part)]
    if hasattr(annotation, "__metadata__"):
        return _parts(annotation.__origin__)
    return [annotation]


def _holds(parts: list[Any]) -> str:
    kinds = {tuple: "tuple", dict: "str" if len(parts) > 1 else "map", Literal: "choice"}
    plain = {bool: "bool", ByteSize: "size", int: "int", float: "float", str: "str"}
    found = [kinds.get(get_origin(part)) or plain.get(part, "str") for part in parts]
    return "tuple" if "tuple" in found else found[0]


def _every_key() -> Iterator[Case]:
    for path, holds in leaves(Config):
        for value in WRONG[holds]:
            shown = "a mapping" if value == {} else json.dumps(value)[:14]
            where = f"{path}|line 1" if value == -HUGE else path
            yield refused(f"config {path}: {shown}", key(path, value), where, "'many'" if value == "many" else where)
        if holds in {"int", "float"}:
            yield refused(f"config {path}: -1", key(path, -1), path, "-1")
    yield refused("config train.lr: 0", key("train.lr", 0), "train.lr", "0 is not allowed", "greater than 0")
    for section in ("graph", "neighbors", "flat", "model", "train", "infer", "guards", "publish", "cluster"):
        for value in (5, "text", [1], True):
            yield refused(f"config {section} is {value!r}", key(section, value), section)
        keys = [path.rpartition(".")[2] for path, _ in leaves(Config) if path.startswith(f"{section}.")]
        spoil = key(f"{section}.nonsense", 1)
        yield refused(f"config {section} with an unknown key", spoil, f"{section}.nonsense", *keys)


def _choices() -> Iterator[Case]:
    for value in ({"kind": "best"}, 5, "uniform"):
        spoil = key("neighbors.sampling", value)
        yield refused(f"config neighbors.sampling is {value}", spoil, "neighbors.sampling", "uniform, weighted, top_k")
    for value in ({"kind": "uniform"}, {"kind": "uniform", "fanout": [0, 1]}):
        yield refused(f"config neighbors.sampling is {value}", key("neighbors.sampling", value), "neighbors.sampling")
    for value in ([5], [5, 5, 5]):  # two layers
        spoil = key("neighbors.sampling", {"kind": "uniform", "fanout": value})
        yield refused(f"config fanout is {value}", spoil, "neighbors.sampling.fanout", "2 numbers")
    for value in ([-1, 5], ["a", 5], [1.5, 2], [True, 2], [HUGE, -HUGE], [], None, "5,5"):
        spoil = key("neighbors.sampling", {"kind": "uniform", "fanout": value})
        yield refused(f"config fanout is {str(value)[:20]}", spoil, "neighbors.sampling.fanout|line 1")
    for value in (
        {"kind": "cloud"},
        {"kind": "address"},
        {"kind": "local", "workers": 0},
        {"kind": "local", "memory_limit": "x"},
    ):
        yield refused(f"config cluster is {value}", key("cluster", value), "cluster")
    for value in ("transformer", "os:system", "os.path:join", "no.such:Layer", "json:JSONDecoder", "a b:C", ":", "x:"):
        yield refused(
            f"config model.kind is {value}",
            both(command("run"), lambda i, v=value: i.config.update(model={"kind": v})),
            "model.kind|kind|" + value,
        )
    for value in ("torch_geometric.nn:GCNConv", "torch_geometric.nn:PNAConv", "torch_geometric.nn:SAGEConf"):
        yield refused(
            f"config model.kind is {value}", both(command("run"), key("model", {"kind": value})), "model.", value[19:]
        )
    for value in (
        "nobody",
        "nobody/3",
        "nobody/champion",
        "../nothing",
        "a/b/c",
        "memory://nowhere",
        "a" * 200,
        ".",
        "-a",
    ):
        spoil = both(command("run"), key("train.start", value))
        yield refused(f"config train.start is {value[:20]}", spoil, "train.start|registry", value.partition("/")[0])
    typed = both(key("graph.nodes", {"a": "n.parquet"}), key("graph.edges", {"a__to__a": "e.parquet"}))
    yield refused("config of a typed graph whose table is not there", typed, "n.parquet", "no such table")
    yield refused("config heads of gcn", key("model.heads", 4), "model.heads")
    yield refused("config hops below layers", key("flat.hops", 1), "flat.hops")


def _ranks() -> Iterator[Case]:
    spoil = both(key("train.workers", 4), command("ingest"))
    yield refused("config train.workers 4 without a cluster", spoil, "train.workers", "cluster")
    for value in (0, -1, 2.5, True, HUGE, "many", None, [2]):
        yield refused(f"config train.workers {str(value)[:20]}", key("train.workers", value), "train.workers|line 1")
    for name in ("start_seconds", "step_seconds"):
        for value in (0, -1, "soon", True):
            yield refused(f"config train.{name} {value}", key(f"train.{name}", value), f"train.{name}")
    for value in (
        "all_reduce",
        {"kind": "gossip"},
        {"kind": "all_reduce", "servers": 2},
        {"kind": "parameter_server", "servers": 0},
        {"kind": "parameter_server", "mode": "late"},
        {"kind": "parameter_server", "staleness": -1},
    ):
        yield refused(f"config train.updater is {value}", key("train.updater", value), "train.updater")


def _links() -> Iterator[Case]:
    link = {"kind": "link"}
    for value in ("link", 5, {"kind": "edges"}, {"kind": "node", "width": 8}):
        yield refused(f"config task is {value}", key("task", value), "task")
    by_accuracy = both(key("task", link), key("train.metric", "accuracy"))
    yield refused("config links by accuracy", by_accuracy, "train.metric", "mrr")
    for name, value in (
        ("decoder", "dot"),
        ("decoder", {"kind": "cosine"}),
        ("decoder", {"kind": "dot", "hidden": 8}),
        ("width", 0),
        ("split", {"kind": "random", "valid": 0.6, "test": 0.5}),
        ("split", {"kind": "random", "test": 1}),
        ("split", {"kind": "recent"}),
        ("split", {"kind": "time", "valid": 0.5, "test": 0.5}),
        ("split", {"kind": "time", "earlier_only": True}),
        ("split", {"kind": "column", "earlier_only": "yes please"}),
        ("messages", False),
        ("negatives", {"kind": "hard"}),
        ("negatives", {"kind": "uniform", "power": 0.5}),
        ("negatives", {"kind": "uniform", "per_edge": 0}),
        ("negatives", {"kind": "degree", "power": 0}),
    ):
        spoil = both(key("train.metric", "mrr"), key("task", {**link, name: value}))
        yield refused(f"config task.{name} is {value}", spoil, f"task.{name}")
    edge = {"kind": "edge"}
    for name, value in (
        ("decoder", {"kind": "dot"}),
        ("decoder", {"kind": "mlp", "hidden": 0}),
        ("width", 0),
        ("split", {"kind": "time", "test": 1}),
        ("messages", "some"),
        ("negatives", {"kind": "uniform"}),
    ):
        yield refused(f"config task.{name} of edges is {value}", key("task", {**edge, name: value}), f"task.{name}")
    yield refused("config edges by mrr", both(key("train.metric", "mrr"), key("task", edge)), "train.metric")
    for path, value in (("infer.embeddings", True), ("flat.targets", "all")):
        yield refused(f"config edges with {path}", both(key(path, value), key("task", edge)), path)
    for name in ("", 5, ["timestamp"]):
        yield refused(f"config graph.timestamp is {name!r}", key("graph.timestamp", name), "graph.timestamp")


def _types() -> Iterator[Case]:
    typed = both(
        key("graph.nodes", {"a": "a.parquet", "b": "b.parquet"}),
        key("graph.edges", {"a__to__b": "ab.parquet", "b__rev_to__a": "ba.parquet"}),
        key("graph.target", "a"),
    )
    missing = both(typed, key("graph.target", None))
    yield refused("types without a target", missing, "graph.target: required", "a, b", "Name the type")
    plain = key("graph.target", "a")
    yield refused("target of a graph without types", plain, "graph.target", "'a'", "one table, without types")
    for path, value, *words in (
        ("graph.target", "c", "graph.target", "'c' is not known", "has a, b"),
        ("graph.features", {"c": ["x"]}, "graph.features.c", "has a, b"),
        ("graph.features", {"a": ["x", "x"]}, "graph.features.a", "twice"),
        ("graph.features", {"a": ["x", "label"]}, "graph.features.a", "graph.label"),
        ("graph.features", {"a": "x"}, "graph.features.a", "a list"),
        ("graph.edge_features", {"b__to__a": ["w"]}, "graph.edge_features.b__to__a", "has a__to__b, b__rev_to__a"),
        ("graph.edge_features", {"a__to__b": ["src"]}, "graph.edge_features.a__to__b", "graph.src"),
        ("graph.edges", {"a__to__c": "e.parquet"}, "graph.edges", "'a__to__c' does not join", "a, b"),
        ("graph.edges", {"a__t/o__b": "e.parquet"}, "graph.edges", "'a__t/o__b'", "file name", "Rename the relation"),
        ("graph.nodes", {"a": "a.parquet", "b/c": "b.parquet"}, "graph.nodes", "'b/c'", "file name", "Rename the type"),
        ("graph.reverse_edges", True, "graph.reverse_edges", "b__rev_to__a has a table", "rename the relation"),
        ("task", {"kind": "edge"}, "graph.target", "'a' is a type of nodes", "one of a__to__b, b__rev_to__a"),
        ("graph.target", "a__to__b", "graph.target", "'a__to__b' is a relation", "Name one of a, b"),
        ("graph.target", "a__of__b", "graph.target", "'a__of__b' is not known", "has a__to__b, b__rev_to__a"),
    ):
        yield refused(f"types: {path} is {value}", both(typed, key(path, value)), *words)
    pairs = both(typed, key("graph.target", "a__to__b"))
    for task, path, value, *words in (
        ("link", "graph.target", "b__to__a", "graph.target", "'b__to__a' is not known", "graph.edges has"),
        ("link", "train.metric", "accuracy", "train.metric", "mrr"),
        ("edge", "graph.edge_features", ["label"], "graph.edge_features", "'label' is the column of graph.label"),
        ("edge", "graph.edge_features", {"a__to__b": ["split"]}, "graph.edge_features", "graph.split"),
        ("edge", "neighbors", {"kind": "walks"}, "neighbors.kind", "walks is not allowed", "Set it to direct"),
    ):
        metric = key("train.metric", "mrr" if task == "link" else "accuracy")
        spoil = both(pairs, key("task", {"kind": task}), metric, key(path, value))
        yield refused(f"types: {task} of a relation with {path} {value}", spoil, *words)
    for fanout, *words in (
        ({"a__to__b": [5, 5]}, "has no list for b__rev_to__a", "Name every relation"),
        ({"a__to__b": [5, 5], "b__rev_to__a": [5, 5], "a__to__a": [1, 1]}, "'a__to__a' is not a relation", "a__to__b"),
        ({"a__to__b": [5, 5], "b__rev_to__a": [5]}, "fanout.b__rev_to__a", "2 numbers"),
        ({"a__to__b": [5, 0], "b__rev_to__a": [5, 5]}, "fanout.a__to__b[1]", "at least 1"),
    ):
        spoil = both(typed, key("neighbors.sampling", {"kind": "uniform", "fanout": fanout}))
        yield refused(f"types: fanout is {fanout}", spoil, "neighbors.sampling.fanout", *words)
    mapped = key("neighbors.sampling", {"kind": "uniform", "fanout": {"a__to__b": [5, 5]}})
    yield refused("fanout of relations without types", mapped, "neighbors.sampling.fanout", "Give one list")


def _names() -> Iterator[Case]:
    for path in ("name", "graph"):
        yield refused(
            f"config without {path}", lambda i, path=path: i.after_write.append(lambda w: _without(w, path)), path
        )
    for name in ("", ".", "..", "../x", "a/b", "a b", "-a", "_a", "é", "a" * 101, "a\n", "${HOME}", "a\0"):
        yield refused(f"config name is {name[:12]!r}", key("name", name), "name")
    for column in ("", "nonsense", "a" * 5000, "x\0", "${X_UNSET_VARIABLE}"):
        yield refused(f"config graph.features names {column[:20]!r}", key("graph.features", [column]), "graph.features")


def _without(inputs: Inputs, path: str) -> None:
    held = json.loads(inputs.config_file.read_text())
    del held[path]
    inputs.config_file.write_text(json.dumps(held))
