"""Hybrid aggregation against scatter alone, and MAGNN against forms with a row per path, on skewed graphs.

    python benchmarks/hybrid.py [--nodes 20000] [--repeats 3] [--only gcn,pinsage,magnn] [--how hybrid,scatter]

Graphs are drawn with the skew of FlexGraph's: fb91 as LDBC's Datagen makes friendships (lognormal degrees, 50 on
average), twitter as followers (Zipf's law at both ends, 36 on average). A step is one layer forward and backward over
all nodes, of the same parameters: gcn on the edges, pinsage on the 10 most visited of each node, magnn on 3 metapaths
with 10 paths of two leaves per node and 8 heads.

    hybrid    gnnflow: leaves and instances in one fused sum, softmax by segments, the top level dense and fused
    scatter   every message written out: gathers, index_add, scatter_reduce, at every level
    paths     magnn alone: a tensor [paths, nodes, D] per metapath, as the authors' code has it
    loop      magnn alone: a loop over the nodes, each with the tensor of its paths (measured on some of them)

Each runs in a separate process; the table has the best of the repeats, of whole steps and of the levels of aggregation
alone (from terms to the input of `update`, attention across metapaths included), and the peak growth of memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from harness import Benchmark, Chosen, Found, Option, cell, peak_mib, run
from torch import Tensor
from torch.nn import functional

from gnnflow.config import model_from_dict
from gnnflow.executions.base import OneBlock, layer_rows, layer_terms, maps_first, terms_of
from gnnflow.executions.propagate import takes_self, whole_rows
from gnnflow.executions.tensors import BlockTensors, block_tensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.kernels.memory import kept_memory
from gnnflow.layers import Layer, Mean, NodeContext, RelationLayers, Terms
from gnnflow.layers.kinds import build_relations
from gnnflow.layers.place import Place

MODELS = ("gcn", "pinsage", "magnn")
GRAPHS = ("fb91", "twitter")
HOW: dict[str, tuple[str, ...]] = {"gcn": ("hybrid", "scatter"), "pinsage": ("hybrid", "scatter")}
HOW["magnn"] = ("hybrid", "scatter", "paths", "loop")
WIDTH, HEADS, PATHS, VISITED, METAPATHS = 64, 8, 10, 10, 3
LEVELS = ("hybrid", "scatter")
LOOPED = 500  # nodes that the loop is measured on


@dataclass(frozen=True)
class Case:
    """A layer of one relation or several, the blocks it reads over all N nodes, and the nodes."""

    layers: RelationLayers
    blocks: list[BlockTensors]
    nodes: list[NodeContext]
    h: Tensor


def popularity(graph: str, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return the probability of each node to be the start of an edge [N]."""
    ranks = rng.permutation(np.arange(1, number + 1))
    drawn = rng.lognormal(0.0, 1.0, number) if graph == "fb91" else ranks**-0.8
    return drawn / drawn.sum()  # type: ignore[no-any-return]


def edges_of(model: str, graph: str, number: int, rng: np.random.Generator) -> list[InEdges]:
    """Return each relation's in-edges."""
    shares = popularity(graph, number, rng)
    if model == "gcn":
        degree = rng.poisson((50 if graph == "fb91" else 36) * number * popularity(graph, number, rng))
        return [InEdges(offsets_of(degree), rng.choice(number, degree.sum(), p=shares))]
    per_node = VISITED if model == "pinsage" else PATHS
    offsets, size = np.arange(number + 1) * per_node, number * per_node
    if model == "pinsage":
        weight = rng.dirichlet(np.ones(per_node), number).ravel().astype(np.float32)
        return [InEdges(offsets, rng.choice(number, size, p=shares), weight=weight)]
    leaves = np.arange(size + 1) * 2
    return [InEdges(offsets, rng.choice(number, 2 * size, p=shares), leaves=leaves) for _ in range(METAPATHS)]


def case_of(model: str, graph: str, number: int) -> Case:
    """Return the layer of a model and the graph it runs on."""
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    found = edges_of(model, graph, number, rng)
    names = [f"n-{letter}-n" for letter in "abc"][: len(found)]
    schema = GraphSchema.of(["n"], [Relation("n", name, "n") for name in names])
    heads = {"heads": HEADS} if model == "magnn" else {}
    config = model_from_dict({"kind": model, "hidden": WIDTH, "layers": 1, "head": "linear", "dropout": 0.0, **heads})
    leaves = [2 if each.leaves is not None else 1 for each in found]
    layers = build_relations(config, Place(WIDTH, WIDTH), schema, leaves=leaves)
    nodes = []
    for each in found:
        degree = torch.from_numpy(each.lengths).float()
        out = torch.from_numpy(np.bincount(each.sources, minlength=number)).float()
        nodes.append(NodeContext(degree, out, degree if each.weight is None else torch.ones(number)))
    blocks = [block_tensors(Block(each, number)) for each in found]
    return Case(layers, blocks, nodes, torch.randn(number, WIDTH))


def by_hybrid(case: Case, h: Tensor) -> Tensor:
    """Return the layer's rows as gnnflow computes them."""
    rows = []
    for layer, block, nodes in zip(case.layers.layers, case.blocks, case.nodes, strict=True):
        delivery = OneBlock(block)
        first = maps_first(layer, h, block.num_targets, delivery.num_edges)
        terms = terms_of(layer, h, nodes=nodes, num_targets=block.num_targets, map_first=first)
        rows.append(layer_rows(layer, terms=terms, delivery=delivery, map_first=first))
    return case.layers.joined(0, rows, h)


def by_scatter(case: Case, h: Tensor) -> Tensor:
    """Return the same with every message written out."""
    found = zip(case.layers.layers, case.blocks, terms_by(case, h), strict=True)
    rows = [layer.update(terms.target, _scattered(layer, block, terms)) for layer, block, terms in found]
    if len(rows) == 1:
        return case.layers.joined(0, rows, h)
    mapped: Tensor = case.layers.out["0"](_scattered_top(case.layers, rows))
    return mapped


def terms_by(case: Case, h: Tensor) -> list[Terms]:
    """Return each relation's terms, values mapped."""
    each = zip(case.layers.layers, case.nodes, strict=True)
    return [layer_terms(layer, h=h, nodes=nodes, map_first=True) for layer, nodes in each]


def levels_alone(case: Case, how: str, terms: Sequence[Terms]) -> Tensor:
    """Return the result of the levels on each relation's terms, without the maps before and after."""
    close = _scattered if how == "scatter" else _fused
    each = zip(case.layers.layers, case.blocks, terms, strict=True)
    rows = [close(*given).flatten(1) for given in each]
    if len(rows) == 1:
        return rows[0]
    if how == "hybrid":
        joined: Tensor = case.layers.across["0"](rows)
        return joined
    return _scattered_top(case.layers, rows)


def _fused(layer: Layer, block: BlockTensors, terms: Terms) -> Tensor:
    block = block.with_self if takes_self(layer, block) else block
    return whole_rows(layer, source=terms.source, target=terms.target, block=block)


def _scattered(layer: Layer, block: BlockTensors, terms: Terms) -> Tensor:
    csr, number = block.csr, block.num_targets
    targets = csr.targets
    if block.leaves is None:
        source = {name: rows[csr.sources] for name, rows in terms.source.items()}
    else:
        # a row per leaf, added up per path
        leaf_of, size = block.leaves.targets, csr.num_edges
        written = {name: rows[block.leaves.sources] for name, rows in terms.source.items()}
        source = {n: rows.new_zeros(size, *rows.shape[1:]).index_add(0, leaf_of, rows) for n, rows in written.items()}
    target = {name: terms.target[name][targets] for name in ("logit",) if name in terms.target}
    coefficient, value = layer.coefficient(source, target, block.edge), source["value"]
    if "scale" in source:
        value = value * source["scale"][:, None, None]
    if layer.logit_slope is not None and coefficient is not None:
        coefficient = _softmax(coefficient, targets, number)
    message = value if coefficient is None else coefficient[:, :, None] * value
    rows = message.new_zeros(number, *message.shape[1:]).index_add(0, targets, message)
    if isinstance(layer.levels.instance, Mean) and coefficient is not None:
        total = coefficient.new_zeros(number, 1).index_add(0, targets, coefficient)
        rows = rows / total.clamp(min=1e-12)[:, :, None]
    if layer.include_self:
        rows = rows + terms.source["value"] * terms.source["scale"][:, None, None]
    return rows * terms.target["scale"][:, None, None] if "scale" in terms.target else rows


def _softmax(logit: Tensor, targets: Tensor, number: int) -> Tensor:
    index = targets[:, None].expand_as(logit)
    top = logit.new_full((number, logit.shape[1]), -torch.inf).scatter_reduce(0, index, logit.detach(), "amax")
    shifted = (logit - top[targets]).exp()
    return shifted / shifted.new_zeros(number, logit.shape[1]).index_add(0, targets, shifted)[targets]


def _scattered_top(layers: RelationLayers, rows: Sequence[Tensor]) -> Tensor:
    attention: Any = layers.across["0"].attention
    number = len(rows[0])
    messages, targets = torch.cat(list(rows)), torch.arange(number).repeat(len(rows))
    score = attention.query(torch.tanh(attention.linear(messages)))
    share = _softmax(score, targets, number)
    return torch.zeros_like(rows[0]).index_add(0, targets, share * messages)


def by_paths(case: Case, h: Tensor) -> Tensor:
    """Return MAGNN's rows from a tensor of all paths' nodes per metapath, as the authors' code has it."""
    rows = []
    layer: Any
    for layer, block in zip(case.layers.layers, case.blocks, strict=True):
        assert block.leaves is not None
        targets, number = block.csr.targets, len(h)
        nodes = torch.cat([block.leaves.sources.view(-1, 2), targets[:, None]], 1)
        path = functional.embedding(nodes, h).mean(1)
        logit = h[targets] @ layer.attend_root.T + path @ layer.attend_path.T
        share = _softmax(functional.leaky_relu(logit, 0.01), targets, number)
        message = share[:, :, None] * path[:, None].expand(-1, HEADS, -1)
        added = message.new_zeros(number, HEADS, h.shape[1]).index_add(0, targets, message)
        rows.append(functional.elu(added).flatten(1))
    return case.layers.joined(0, rows, h)


def by_loop(case: Case, h: Tensor) -> Tensor:
    """Return the rows of the first nodes, one node after the other."""
    rows = []
    layer: Any
    for layer, block in zip(case.layers.layers, case.blocks, strict=True):
        assert block.leaves is not None
        leaves, found = block.leaves.sources.view(-1, PATHS, 2), []
        for node in range(LOOPED):
            own = h[node].expand(PATHS, 1, -1)
            path = torch.cat([own, h[leaves[node]]], 1).mean(1)
            logit = functional.leaky_relu(own[:, 0] @ layer.attend_root.T + path @ layer.attend_path.T, 0.01)
            found.append(functional.elu(torch.softmax(logit, 0).T @ path).flatten())
        rows.append(torch.stack(found))
    return case.layers.joined(0, rows, h[:LOOPED])


RUNS: dict[str, Callable[[Case, Tensor], Tensor]] = {
    "hybrid": by_hybrid,
    "scatter": by_scatter,
    "paths": by_paths,
    "loop": by_loop,
}


def measured(chosen: Chosen) -> Found:
    """Return the best seconds of a step and of its levels alone, and the peak growth of memory in MiB."""
    torch.set_num_threads(chosen.threads)
    how, repeats, compute = chosen.way, chosen.repeats, RUNS[chosen.way]
    case = case_of(chosen.model, chosen.graph, chosen.nodes)
    parameters = list(case.layers.parameters())
    held, step, alone, check = peak_mib(), float("inf"), float("inf"), 0.0
    with kept_memory():
        for _ in range(repeats + 1):
            h = case.h.clone().requires_grad_()
            started = time.perf_counter()
            rows = compute(case, h)
            check = float(rows[:LOOPED].detach().abs().sum())
            torch.autograd.grad(rows.square().sum(), [h, *parameters], allow_unused=True)
            step = min(step, time.perf_counter() - started)
            del rows
        peak = peak_mib() - held
        terms = [Terms(*({n: r.detach() for n, r in of.items()} for of in each)) for each in terms_by(case, case.h)]
        inputs = [rows.requires_grad_() for each in terms for n, rows in each.source.items() if n != "scale"]
        inputs += [each.target["logit"].requires_grad_() for each in terms if "logit" in each.target]
        for _ in range(repeats + 1 if how in LEVELS else 0):
            started = time.perf_counter()
            rows = levels_alone(case, how, terms)
            torch.autograd.grad(rows, inputs, torch.ones_like(rows))
            alone = min(alone, time.perf_counter() - started)
            del rows
    if how == "loop":
        step *= chosen.nodes / LOOPED
    return {"seconds": step, "levels": alone if how in LEVELS else None, "mib": peak, "check": check}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield each way to compute a model over a graph; all give the same rows."""
    for model in chosen.only.split(","):
        for graph in GRAPHS:
            asked = [how for how in HOW[model] if how in chosen.how.split(",")]
            found = {how: cell(chosen, "step", model=model, graph=graph, way=how) for how in asked}
            checks = [each["check"] for each in found.values()]
            assert max(checks) < 1.001 * min(checks), checks
            first = found[asked[0]]
            for how, each in found.items():
                step, levels = each["seconds"], each["levels"]
                of_levels = levels and first["levels"] and levels / first["levels"]
                yield model, graph, how, step, step / first["seconds"], levels, of_levels, each["mib"]


BENCH = Benchmark(
    columns=("model", "graph", "how", "step s", "x first", "levels s", "x first levels", "peak MiB"),
    rows=rows,
    options={
        "nodes": 20_000,
        "only": ",".join(MODELS),
        "how": Option(",".join(RUNS), "ways to compute"),
        "repeats": 3,
        "threads": 2,
    },
    small={"nodes": 600, "only": "magnn", "how": "hybrid,scatter", "repeats": 1},
    cells={"step": measured},
)


if __name__ == "__main__":
    run(BENCH)
