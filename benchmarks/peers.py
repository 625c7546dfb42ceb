"""DGL and PyG in the benchmarks: each function runs in the interpreter of the library that it measures.

    PYTHON benchmarks/peers.py NAME JSON

`harness.peer` starts this with the function's arguments and reads the one line of JSON. The interpreter has torch and
the library, and need not have gnnflow. DGL and PyG over merged batches are in `models.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import peak_mib
from torch import Tensor, nn
from torch.nn import functional

BATCH, WIDTH = 1024, 64
SCORED, OUTPUTS = 4096, 16  # targets of a batch that scores all nodes, and its scores
FANOUT = (15, 10)
Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]


class _Nothing(types.ModuleType):
    """A module with any class, so that imports of dgl.graphbolt succeed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def dgl_module() -> Any:
    """Return DGL without graphbolt, which was built for an older torch and which no benchmark uses."""
    if "dgl" not in sys.modules:
        os.environ.setdefault("DGLBACKEND", "pytorch")
        sys.modules["dgl.graphbolt"] = _Nothing("dgl.graphbolt")
    import dgl
    import dgl.nn

    return dgl


def load(graph: str, threads: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features, labels, edges [2, E] and seeds of an .npz file, with torch set up."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with np.load(graph) as held:
        x, y, edges, seeds = (torch.from_numpy(held[name]) for name in ("x", "y", "edge_index", "seeds"))
    return x, y, edges, seeds


def trained(net: nn.Module, batches: Batches, *, epochs: int, rate: float = 0.003) -> dict[str, Any]:
    """Return the seconds of each epoch, by the clock and of the processor, and the last loss."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    times, spent, loss = [], [], torch.zeros(())
    for _ in range(epochs):
        begin, cpu = time.perf_counter(), time.process_time()
        for logits, labels in batches():
            optimizer.zero_grad()
            loss = functional.cross_entropy(logits, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    return {"times": times, "cpu": spent, "loss": float(loss.detach())}


class PygSage(nn.Module):
    """GraphSAGE of two layers over NeighborLoader's batches."""

    def __init__(self, width: int, classes: int) -> None:
        from torch_geometric.nn import SAGEConv

        super().__init__()
        self.first, self.second = SAGEConv(width, WIDTH), SAGEConv(WIDTH, classes)

    def forward(self, batch: Any) -> Tensor:
        """Return the logits of the batch's seeds."""
        hidden = functional.relu(self.first(batch.x, batch.edge_index))
        logits: Tensor = self.second(hidden, batch.edge_index)[: batch.batch_size]
        return logits


def minibatch_pyg(graph: str, *, epochs: int, threads: int) -> dict[str, Any]:
    """Train GraphSAGE over NeighborLoader's batches, the graph in memory; needs torch-sparse or pyg-lib."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    x, y, edges, seeds = load(graph, threads)
    loader = NeighborLoader(Data(x=x, y=y, edge_index=edges), FANOUT, seeds, batch_size=BATCH, shuffle=True)
    net = PygSage(x.shape[1], int(y.max()) + 1)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in loader:
            yield net(batch), batch.y[: batch.batch_size]

    return trained(net, batches, epochs=epochs)


class DglSage(nn.Module):
    """GraphSAGE over NeighborSampler's blocks."""

    def __init__(self, width: int, classes: int, layers: int) -> None:
        super().__init__()
        widths = [width, *[WIDTH] * (layers - 1), classes]
        self.layers = nn.ModuleList([dgl_module().nn.SAGEConv(*pair, "mean") for pair in pairwise(widths)])

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        """Return the logits of the last block's nodes."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, functional.relu(x) if number else x)
        return x


def minibatch_dgl(graph: str, *, epochs: int, threads: int, layers: int = 0) -> dict[str, Any]:
    """Train GraphSAGE over NeighborSampler's blocks, drawn for each batch; layers: read every in-edge instead."""
    dgl = dgl_module()
    x, y, edges, seeds = load(graph, threads)
    held = dgl.graph((edges[0], edges[1]), num_nodes=len(y)).formats(["csc"])
    # DGL counts fan-outs from the first layer on
    sampler = dgl.dataloading.NeighborSampler([-1] * layers if layers else list(FANOUT[::-1]))
    net = DglSage(x.shape[1], int(y.max()) + 1, layers or len(FANOUT))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in seeds[torch.randperm(len(seeds))].split(BATCH):  # type: ignore[no-untyped-call]
            nodes, rows, blocks = sampler.sample_blocks(held, batch)
            yield net(blocks, x[nodes]), y[rows]

    return trained(net, batches, epochs=epochs)


def end_to_end_dgl(nodes: str, edges: str, out: str, *, epochs: int, threads: int) -> dict[str, Any]:
    """Train GraphSAGE on Parquet tables and write scores for every node, the graph in memory; seconds of each step."""
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    import pyarrow.parquet as pq

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    dgl, steps, since = dgl_module(), {}, time.perf_counter()

    def lap(name: str) -> None:
        nonlocal since
        now = time.perf_counter()
        steps[name], since = now - since, now

    table, ends = pq.read_table(nodes), pq.read_table(edges, columns=["src", "dst"])
    ids = table["id"].to_numpy()
    index = pd.Index(ids)  # a hash table, faster than a sort and a search
    source, target = (torch.from_numpy(index.get_indexer(ends[each].to_numpy())) for each in ("src", "dst"))
    x = torch.from_numpy(table["x"].combine_chunks().flatten().to_numpy().reshape(len(ids), -1).copy())
    y = torch.from_numpy(table["label"].fill_null(0).to_numpy().astype(np.int64))
    split = table["split"].to_pandas().to_numpy()
    lap("read")
    graph = dgl.graph((source, target), num_nodes=len(ids)).formats("csc")
    graph.create_formats_()
    graph.ndata["x"], graph.ndata["y"] = x, y
    lap("graph")
    net, classes = DglSage(x.shape[1], int(y.max()) + 1, len(FANOUT)), int(y.max()) + 1
    sampler = dgl.dataloading.NeighborSampler(list(FANOUT[::-1]), prefetch_node_feats=["x"], prefetch_labels=["y"])
    seeds = torch.from_numpy(np.flatnonzero(split == "train"))
    loader = dgl.dataloading.DataLoader(graph, seeds, sampler, batch_size=BATCH, shuffle=True)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for _, _, blocks in loader:
            yield net(blocks, blocks[0].srcdata["x"]), blocks[-1].dstdata["y"]

    trained(net, batches, epochs=epochs)
    lap("train")
    scores = layer_by_layer(net.layers, functional.relu, graph, x, batch=8 * BATCH).softmax(1)
    lap("infer")
    columns = pa.FixedSizeListArray.from_arrays(pa.array(scores.numpy().ravel()), classes)
    pq.write_table(pa.table({"id": ids, "prediction": scores.argmax(1).numpy(), "scores": columns}), out)
    lap("write")
    test = split == "test"
    right = float((scores.argmax(1) == y).numpy()[test].mean()) if test.any() else None
    return {"steps": steps, "accuracy": right}


@torch.no_grad()
def layer_by_layer(
    layers: nn.ModuleList, activation: Callable[[Tensor], Tensor], graph: Any, x: Tensor, *, batch: int
) -> Tensor:
    """Return the logits of all nodes: each layer over batches of nodes with all their in-edges, its rows in memory."""
    dgl = dgl_module()
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(1)
    batches = dgl.dataloading.DataLoader(graph, torch.arange(len(x)), sampler, batch_size=batch, shuffle=False)
    for number, layer in enumerate(layers):
        rows = torch.empty(0)
        for sources, targets, (block,) in batches:
            row = layer(block, x[sources]).flatten(1)
            rows = rows if len(rows) else torch.empty(len(x), row.shape[1])
            rows[targets] = row if number + 1 == len(layers) else activation(row)
        x = rows
    return x


def _dgl_convs(model: str, width: int) -> tuple[nn.ModuleList, Callable[[Tensor], Tensor]]:
    """Return two layers of DGL, and the activation between them."""
    conv = dgl_module().nn
    if model == "sage":
        return nn.ModuleList([conv.SAGEConv(width, WIDTH, "mean"), conv.SAGEConv(WIDTH, OUTPUTS, "mean")]), torch.relu
    heads = 4
    layers = [conv.GATConv(width, WIDTH // heads, heads), conv.GATConv(WIDTH, OUTPUTS, 1)]
    return nn.ModuleList(layers), functional.elu


def scored_dgl(graph: str, *, model: str, repeats: int, threads: int) -> dict[str, Any]:
    """Score all nodes layer by layer, in batches with all their in-edges, and hold each layer's rows in memory."""
    dgl = dgl_module()
    x, _, edges, _ = load(graph, threads)
    held = dgl.graph((edges[0], edges[1]), num_nodes=len(x))
    held = (dgl.add_self_loop(held) if model == "gat" else held).formats("csc")
    held.create_formats_()
    convs, activation = _dgl_convs(model, x.shape[1])
    times, spent = [], []
    for _ in range(repeats + 1):
        begin, cpu = time.perf_counter(), time.process_time()
        layer_by_layer(convs, activation, held, x, batch=SCORED)
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    return {"times": times[1:], "cpu": spent[1:], "mib": peak_mib()}


class DglGcn(nn.Module):
    """GCN of any depth over a whole graph."""

    def __init__(self, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(dgl_module().nn.GraphConv(*pair, norm="both") for pair in pairwise(widths))
        self.dropout = dropout

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        """Return the logits of all nodes."""
        for number, layer in enumerate(self.layers):
            h = layer(graph, functional.dropout(h, self.dropout))
            h = functional.relu(h) if number + 1 < len(self.layers) else h
        return h


def globalbatch_dgl(
    folder: str, *, layers: int, hidden: int, dropout: float, threads: int, epochs: int
) -> dict[str, Any]:
    """Train a GCN over the whole graph of `globalbatch.make_graph`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    dgl = dgl_module()
    held = {name: np.load(Path(folder) / f"{name}.npy") for name in ("offsets", "sources", "x", "y", "train")}
    targets = np.repeat(np.arange(len(held["y"])), np.diff(held["offsets"]))
    graph = dgl.graph((torch.from_numpy(held["sources"]), torch.from_numpy(targets)), num_nodes=len(held["y"]))
    graph = dgl.add_self_loop(graph)
    graph.create_formats_()
    net = DglGcn([held["x"].shape[1], *[hidden] * (layers - 1), int(held["y"].max()) + 1], dropout)
    x, y, rows = (torch.from_numpy(each) for each in (held["x"], held["y"], np.flatnonzero(held["train"])))
    return trained(net, lambda: iter([(net(graph, x)[rows], y[rows])]), epochs=epochs, rate=0.01)


class DglPinSage(nn.Module):
    """PinSage of two layers and a linear head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.pools, self.maps = (
            nn.ModuleList(nn.Linear(width, WIDTH) for _ in range(2)) for width in (WIDTH, 2 * WIDTH)
        )
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, graph: Any, weight: Tensor, total: Tensor, h: Tensor) -> Tensor:
        """Return the logits of all nodes."""
        for pool, own in zip(self.pools, self.maps, strict=True):
            pooled = dgl_module().ops.u_mul_e_sum(graph, torch.relu(pool(h)), weight) / total
            h = functional.normalize(torch.relu(own(torch.cat([h, pooled], 1))))
        logits: Tensor = self.head(h)
        return logits


def walks_dgl(folder: str, *, walks: int, length: int, top_k: int, classes: int, threads: int) -> dict[str, Any]:
    """Return the seconds of walks from all nodes, in batches and in one call, and of a PinSage step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    dgl = dgl_module()
    src, dst = (torch.from_numpy(np.load(Path(folder) / f"{name}.npy")) for name in ("src", "dst"))
    num_nodes = int(max(src.max(), dst.max())) + 1
    # walks follow in-edges, which are the out-edges of the reversed graph
    sampler = dgl.sampling.RandomWalkNeighborSampler(
        dgl.graph((dst, src), num_nodes=num_nodes), length, 0.0, walks, top_k
    )
    sampler(torch.arange(min(BATCH, num_nodes)))
    order, begin = torch.randperm(num_nodes), time.perf_counter()
    for batch in order.split(BATCH):  # type: ignore[no-untyped-call]
        sampler(batch)
    in_batches, begin = time.perf_counter() - begin, time.perf_counter()
    found = sampler(torch.arange(num_nodes))
    whole = time.perf_counter() - begin
    weight = found.edata["weights"].float()[:, None]
    total = dgl.ops.copy_e_sum(found, weight).clamp(min=1e-12)
    x, labels, net = torch.randn(num_nodes, WIDTH), torch.randint(0, classes, (num_nodes,)), DglPinSage(classes)
    ran = trained(net, lambda: iter([(net(found, weight, total, x), labels)]), epochs=2, rate=0.01)
    return {"walks": in_batches, "walks_whole": whole, "step": ran["times"][-1]}


def read_tables(folder: str) -> dict[str, Any]:
    """Read node and edge table, number the ends of edges, and make the graph with its in-edges, in memory."""
    import pyarrow.parquet as pq

    dgl, pd = dgl_module(), importlib.import_module("pandas")
    nodes, edges = (pq.read_table(Path(folder) / f"{name}.parquet") for name in ("nodes", "edges"))
    index = pd.Index(nodes["id"].to_numpy())
    src, dst = (torch.from_numpy(index.get_indexer(edges[name].to_numpy())) for name in ("src", "dst"))
    graph = dgl.graph((src, dst), num_nodes=len(index)).formats("csc")
    graph.create_formats_()
    x = nodes["x"].combine_chunks().flatten().to_numpy().reshape(len(index), -1)
    graph.ndata["x"] = torch.from_numpy(x.copy())
    return {"edges": graph.num_edges()}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
