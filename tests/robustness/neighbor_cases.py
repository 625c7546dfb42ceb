"""Neighbours beyond direct ones that cannot be, or hardly: refused readably, or scored as any others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.robustness.case import Case, accepted, refused
from tests.robustness.inputs import Inputs, Spoil, both, command, key, one_edge
from tests.robustness.partition_cases import every_node_is_scored

PATHS = {"kind": "metapaths", "paths": [["node", "node", "node"]]}
OWN = "tests.neighbors.odd_functions:"


def cases() -> Iterator[Case]:
    yield from _functions()
    yield from _keys()
    yield from _models()
    yield from _hardly_any()


def _functions() -> Iterator[Case]:
    """Yield functions of one's own that break the contract."""
    for name, function, *words in (
        ("that raises", "raises", "failed on the", "KeyError: 'colour'"),
        ("that gives leaves beyond the last node", "out_of_range", "the leaf 60|the leaf 30", "nodes are 0 to 59"),
        ("that counts roots from zero", "by_position", "the root 0", "not among the given nodes"),
        ("that reads a relation that is not there", "of_another_relation", "node__knows__node"),
        ("that returns a list", "list_of_pairs", "returned list", "Instances"),
        ("that is not there", "missing", "no function 'missing'", "Its functions are:"),
    ):
        spoil = _run({"kind": OWN + function})
        yield refused(f"neighbors: a function {name}", spoil, "neighbors.kind", *words, leaves=("runs",))
    unknown = _run({"kind": f"{OWN}varying", "options": {"most": 3}})
    yield refused("neighbors: an option it does not take", unknown, "neighbors.kind", "most", leaves=("runs",))


def _keys() -> Iterator[Case]:
    """Yield keys that cannot be."""
    for name, section, *words in (
        ("anchors at distance 0", {"kind": "anchors", "distance": 0}, "neighbors.distance", "0"),
        ("rings at distance 17", {"kind": "rings", "distance": 17}, "neighbors.distance", "17"),
        ("walks of no step", {"kind": "walks", "length": 0}, "neighbors.length", "0"),
        ("a path of one node", {"kind": "metapaths", "paths": [["node"]]}, "neighbors.paths[0]"),
        ("a path of an unknown type", {"kind": "metapaths", "paths": [["node", "film"]]}, "'film'", "They are node"),
        ("a path as text", {"kind": "metapaths", "paths": "node-node"}, "neighbors.paths"),
        ("no path", {"kind": "metapaths", "paths": []}, "neighbors.paths"),
        ("walks by chance", {"kind": "walks", "by": "chance"}, "neighbors.by", "chance"),
        ("walks by nothing", {"kind": "walks", "by": None}, "neighbors.by", "uniform"),
        ("direct neighbours by weight", {"kind": "direct", "by": "weight"}, "neighbors.by", "unknown key"),
        ("sampled walks", {"kind": "walks", "sampling": {"kind": "none"}}, "neighbors.sampling", "unknown key"),
    ):
        yield refused(f"neighbors: {name}", key("neighbors", section), *words)


def _models() -> Iterator[Case]:
    """Yield models that the selected relations do not fit, and some that these fit as any others."""
    own = {"kind": f"{OWN}varying"}
    for name, section, model, *words in (
        ("positions in walks", {"kind": "walks"}, {"kind": "pgnn", "anchor_sets": 5}, "model.anchor_sets", "walks"),
        ("positions in edges", {"kind": "direct"}, {"kind": "pgnn", "anchor_sets": 5}, "model.anchor_sets", "direct"),
        ("fewer positions than sets", {"kind": "anchors"}, {"kind": "pgnn", "anchor_sets": 2}, "anchor_sets", "2"),
        ("positions in what has no number", own, {"kind": "pgnn", "anchor_sets": 2}, "anchor_sets|attributes"),
        ("gat_e of walks", {"kind": "walks"}, {"kind": "gat_e"}, "model.kind", "walks"),
        ("gat_e of paths", PATHS, {"kind": "gat_e"}, "model.kind", "metapaths"),
        ("gat_e of one's own without attributes", own, {"kind": "gat_e"}, "attributes"),
        ("magnn of varying leaves", own, {"kind": "magnn"}, "model.kind", "leaves"),
    ):
        yield refused(f"neighbors: {name}", _run(section, model), *words, leaves=("runs",))
    none = both(_run({"kind": "direct"}, {"kind": "gat_e"}), key("graph.edge_features", []))
    yield refused("neighbors: gat_e of edges without attributes", none, "model.kind", "graph.edge_features")
    turned = _run(PATHS, {"kind": "magnn", "encodes": "rotate"})
    yield refused("neighbors: paths turned in rows of three columns", turned, "model.encodes", "has 3 columns")
    for name, section in (("walks", {"kind": "walks"}), ("edges", {"kind": "direct"})):
        yield accepted(f"neighbors: pgnn of {name}", _run(section, {"kind": "pgnn"}), check=every_node_is_scored)


def _hardly_any() -> Iterator[Case]:
    """Yield graphs that have few neighbours of a kind or none: those without aggregate nothing."""
    for name, section, model in (
        ("walks", {"kind": "walks"}, {"kind": "pinsage"}),
        ("paths", PATHS, {"kind": "magnn"}),
        ("rings", {"kind": "rings"}, {"kind": "sage"}),
        ("anchors", {"kind": "anchors"}, {"kind": "pgnn"}),
    ):
        # one edge, and none that goes on from it
        spoil = both(_run(section, model), one_edge)
        yield accepted(f"neighbors: {name} of one edge", spoil, check=every_node_is_scored)
    nothing = _run({"kind": f"{OWN}nothing_found"}, {"kind": "sage"})
    yield accepted("neighbors: a function that finds nothing", nothing, check=every_node_is_scored)
    varying = _run({"kind": f"{OWN}varying"}, {"kind": "gat"})
    yield accepted("neighbors: leaves that vary, and a model that does not mind", varying, check=every_node_is_scored)


def _run(section: dict[str, Any], model: dict[str, Any] | None = None) -> Spoil:
    """Run the whole pipeline with these neighbours."""
    settings: list[Callable[[Inputs], Any]] = [key("neighbors", section), command("run")]
    if model is not None:
        settings.append(key("model", {"hidden": 4, **model}))
    return both(*settings)
