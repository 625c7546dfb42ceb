"""GCN, GraphSAGE and GAT in each library, over the same merged batches.

A batch is its targets and everything within as many hops as there are layers, merged, without sampling. A file of a
graph holds x [N, F], y [N] classes or [N, C] labels, edge_index [2, E] and train_mask [N], and for
scores val_mask and test_mask.

PPI: layers 64 wide (GAT: 4 heads of 64), each with its activation, then a linear map to the labels. Citation graphs:
the last layer gives the scores; 16 wide (GAT: 8 heads of 8, then one head), dropout as in the models' papers.

The data of each library: for gnnflow blocks, whose forms are the ablation; for PyG every edge of the batch in every
layer, in torch_sparse's SparseTensor if that is installed, or torch's CSR (attention: edge by edge); for DGL pruned
blocks.
Only numpy and torch are imported at the top, so that this runs in a peer's interpreter.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS = 64, 4
FORMS = ("base", "pruning", "partitioning", "both", "ahead")
PEER_FORM = "as it is"
CITATION_WIDTH, CITATION_HEAD, CITATION_HEADS = 16, 8, 8


@dataclass(frozen=True)
class Graph:
    """In-edges by target, features, labels and splits."""

    offsets: Any
    sources: Any
    x: Any
    y: Any
    masks: Mapping[str, Any]

    @property
    def spec(self) -> tuple[int, int]:
        """Widths of the features and of the outputs."""
        return self.x.shape[1], self.y.shape[1] if self.y.ndim > 1 else int(self.y.max()) + 1

    def within(self, split: str) -> Graph:
        """Return the nodes of a split, and the edges with both ends there."""
        mask = self.masks[split]
        target = np.repeat(np.arange(len(mask)), np.diff(self.offsets))
        inside, row = mask[self.sources] & mask[target], np.cumsum(mask) - 1
        degree = np.bincount(row[target[inside]], minlength=int(mask.sum()))
        masks = {name: each[mask] for name, each in self.masks.items()}
        return Graph(offsets_of(degree), row[self.sources[inside]], self.x[mask], self.y[mask], masks)


@dataclass(frozen=True)
class Batch:
    """Merged neighbourhoods: the graph's number of each row, how many rows lie within 0, 1, ... hops, and in-edges.

    Targets come first, then rows by hop. The rows of the last hop have no in-edges here.
    """

    nodes: Any
    sizes: list[int]
    offsets: Any
    sources: Any
    in_degree: Any
    out_degree: Any

    def layer(self, index: int, *, pruned: bool) -> tuple[Any, Any, int]:
        """Return a layer's offsets [T + 1], sources [E] and number of rows it reads.

        Pruned: it computes what the next layer reads. Else: it computes every row, over all of the batch's edges.
        """
        rows = self.sizes[-1]
        if not pruned:
            return np.pad(self.offsets, (0, rows + 1 - len(self.offsets)), mode="edge"), self.sources, rows
        hops = len(self.sizes) - 1 - index
        offsets = self.offsets[: self.sizes[hops - 1] + 1]
        return offsets, self.sources[: offsets[-1]], self.sizes[hops]


def read_graph(file: str) -> Graph:
    """Return the graph of a file; without masks of validation and test, these splits are empty."""
    with np.load(file) as held:
        x, y, train = held["x"], held["y"], held["train_mask"]
        masks = {name: held[f"{name}_mask"] if f"{name}_mask" in held else ~train & train for name in ("val", "test")}
        return graph_of_edges(held["edge_index"], x, y, {"train": train, **masks})


def graph_of_edges(edges: Any, x: Any, y: Any, masks: Mapping[str, Any]) -> Graph:
    """Return the graph of edges [2, E]."""
    source, target = edges
    order = np.lexsort((source, target))
    truth = y.astype(np.float32) if y.ndim > 1 else y
    return Graph(offsets_of(np.bincount(target, minlength=len(x))), source[order], x, truth, masks)


def random_graph(nodes: int, edges: int, *, width: int = 50, labels: int = 121) -> Graph:
    """Return a graph of the shape of PPI: in-degrees follow a power law, sources lie anywhere, all nodes train."""
    rng = np.random.default_rng(0)
    weight, share = rng.pareto(2.0, nodes) + 1, 0.3
    ends = np.stack([rng.integers(0, nodes, edges), rng.choice(nodes, edges, p=weight / weight.sum())])
    y = (rng.random((nodes, labels)) < share).astype(np.float32)
    x = rng.standard_normal((nodes, width), np.float32)
    every = np.ones(nodes, bool)
    return graph_of_edges(ends, x, y, {"train": every, "val": ~every, "test": ~every})


def offsets_of(counts: Any) -> Any:
    """Return the start of each run, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(counts)])


def edges_of(graph: Graph, nodes: Any) -> Any:
    """Return the positions of all in-edges of some nodes, node by node."""
    counts = graph.offsets[nodes + 1] - graph.offsets[nodes]
    return np.repeat(graph.offsets[nodes] - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())


def batch_of(graph: Graph, targets: Any, *, hops: int) -> Batch:
    """Return the targets and all nodes within this many hops."""
    row = np.full(len(graph.x), -1)
    row[targets] = np.arange(len(targets))
    found, sizes = [targets], [len(targets)]
    for _ in range(hops):
        reached = np.unique(graph.sources[edges_of(graph, found[-1])])
        fresh = reached[row[reached] < 0]
        row[fresh] = sizes[-1] + np.arange(len(fresh))
        found.append(fresh)
        sizes.append(sizes[-1] + len(fresh))
    nodes = np.concatenate(found)
    inner = nodes[: sizes[-2]]
    degrees = np.diff(graph.offsets), np.bincount(graph.sources, minlength=len(graph.x))
    return Batch(
        nodes,
        sizes,
        offsets_of(degrees[0][inner]),
        row[graph.sources[edges_of(graph, inner)]],
        degrees[0][nodes],
        degrees[1][nodes],
    )


def batches_of(graph: Graph, *, layers: int, size: int, number: int) -> Iterator[Batch]:
    """Yield the first batches of an epoch over the shuffled training targets; size 0: one of all, in order."""
    targets = np.flatnonzero(graph.masks["train"])
    if not size:
        yield batch_of(graph, targets, hops=layers)
        return
    targets = np.random.default_rng(0).permutation(targets)
    for start in range(0, len(targets), size)[:number]:
        yield batch_of(graph, targets[start : start + size], hops=layers)


@dataclass(frozen=True)
class Spec:
    """A model: its kind, layers, widths of features and outputs, and a flag for the small one of citation graphs."""

    name: str
    layers: int
    in_width: int
    out_width: int
    citation: bool = False

    @property
    def dropout(self) -> float:
        """Share of each layer's inputs that is dropped in training."""
        return (0.6 if self.name == "gat" else 0.5) if self.citation else 0.0

    def widths(self) -> list[tuple[int, int, int]]:
        """Return each layer's input width, width of a head, and heads."""
        heads = {False: HEADS, True: CITATION_HEADS}[self.citation] if self.name == "gat" else 1
        head = WIDTH if not self.citation else CITATION_HEAD if self.name == "gat" else CITATION_WIDTH
        shapes = [(self.in_width if layer == 0 else head * heads, head, heads) for layer in range(self.layers)]
        if self.citation:
            shapes[-1] = (shapes[-1][0], self.out_width, 1)
        return shapes


class Library(Protocol):
    """Training on a merged batch with one library."""

    def model(self, spec: Spec) -> nn.Module:
        """Return a new model."""

    def prepare(self, net: nn.Module, batch: Any, x: Any, *, form: str) -> Any:
        """Return the model's input for a batch, with x [N, F] of its rows."""

    def moved(self, prepared: Any, device: torch.device) -> Any:
        """Return the prepared input on a device."""

    def outputs(self, net: nn.Module, prepared: Any) -> Tensor:
        """Return the outputs of the batch's targets."""

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss: of one class per row, or of many labels."""

    def setting(self, form: str, device: torch.device) -> contextlib.AbstractContextManager[None]:
        """Compute in this form."""


class Gnnflow:
    """This library, with the switches of the ablation, which only it has.

    Forms: base; pruning: a layer's block holds only the rows that the next one reads, not all edges of the batch;
    partitioning: threads share the edges of an aggregation, instead of one thread; both; ahead: both, and sums of the
    first layer that involve no weights are made once, as in training.
    """

    def model(self, spec: Spec) -> nn.Module:
        """Return the model as a config builds it."""
        from gnnflow.config import model_from_dict
        from gnnflow.layers.gat import GAT
        from gnnflow.layers.model import Model, ModelInputs, build_model

        inputs = ModelInputs(spec.in_width, spec.out_width)
        keys: dict[str, Any] = {"kind": spec.name, "layers": spec.layers, "dropout": spec.dropout, "hidden": WIDTH}
        if spec.citation:
            keys["hidden"] = CITATION_HEAD if spec.name == "gat" else CITATION_WIDTH
        else:
            keys["head"] = "linear"
        if spec.name != "gat":
            return build_model(model_from_dict(keys), inputs)
        if spec.citation:
            keys |= {"heads": CITATION_HEADS, "output_heads": 1, "activation": "elu"}
            return build_model(model_from_dict(keys), inputs)
        # every layer concatenates its heads, also the last
        config = model_from_dict(keys | {"heads": HEADS, "activation": "elu"})
        layers = [GAT(width, head, heads=heads) for width, head, heads in spec.widths()]
        return Model(config, inputs, encoder=None, layers=layers)

    def prepare(self, net: Any, batch: Any, x: Any, *, form: str) -> Any:
        """Return blocks."""
        from gnnflow.executions.minibatch import aggregates_ahead, first_terms, prepared
        from gnnflow.executions.tensors import batch_tensors
        from gnnflow.graph.batch import Block, Degrees, Features, InPlaceBatch, MiniBatch
        from gnnflow.graph.edges import InEdges

        pruned = form not in {"base", "partitioning"}
        # layers that compute and read the same rows share a block, as training does
        made: dict[tuple[int, int], Block] = {}
        layers = [batch.layer(index, pruned=pruned) for index in range(net.num_layers)]
        for offsets, sources, rows in layers:
            made.setdefault((len(offsets), rows), Block(InEdges(offsets, sources), rows))
        blocks = tuple(made[len(offsets), rows] for offsets, _, rows in layers)
        degrees = Degrees(batch.in_degree, batch.out_degree, batch.in_degree.astype(np.float32))
        features, targets = Features(x.shape[1], dense=x), batch.sizes[0]
        if form != "ahead":
            return batch_tensors(MiniBatch(blocks, degrees, features, np.arange(targets))), targets
        if not aggregates_ahead(net, training=True):
            raise NotImplementedError
        rows, terms = np.arange(blocks[0].num_targets), first_terms(net, features, degrees)
        placed = InPlaceBatch(blocks[0], rows, blocks[1:], degrees.take(rows), np.arange(targets))
        return prepared(net, terms, placed, features=features), targets

    def moved(self, prepared: Any, device: torch.device) -> Any:
        """Return the batch on a device."""
        from gnnflow.executions.moving import to_device

        batch, targets = prepared
        return to_device(device, batch), targets

    def outputs(self, net: Any, prepared: Any) -> Tensor:
        """Return the outputs of the first rows after the last layer."""
        from gnnflow.executions.minibatch import layer_outputs

        batch, targets = prepared
        # training does not cut what has these rows alone: the gradient of a cut is a copy
        rows = [each[:targets] if targets < len(each) else each for each in layer_outputs(net, batch)]
        found: Tensor = net.predict(rows)
        return found

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss as training computes it."""
        from gnnflow.kernels import binary_cross_entropy

        return functional.cross_entropy(outputs, labels) if labels.ndim == 1 else binary_cross_entropy(outputs, labels)

    @contextlib.contextmanager
    def setting(self, form: str, device: torch.device) -> Iterator[None]:
        """Let one thread aggregate if the form has no partitioning."""
        from gnnflow.kernels import core as library
        from gnnflow.kernels.device import compute_threads
        from gnnflow.train.reproducible import compute_settings

        def alone(*given: Any) -> None:
            with compute_threads(1):
                library.call(*given)

        # by name, since the package has functions with the names of modules
        modules = [importlib.import_module(f"gnnflow.kernels.native.{name}") for name in ("attention", "sums")]
        before = [module.call for module in modules]
        with compute_settings(torch.get_num_threads(), device):
            for module in modules:
                module.call = alone if form in {"base", "pruning"} else library.call  # type: ignore[attr-defined]
            try:
                yield
            finally:
                for module, call in zip(modules, before, strict=True):
                    module.call = call  # type: ignore[attr-defined]


class Stack(nn.Module):
    """Another library's layers with their activations, and a linear map unless the last one gives the scores."""

    def __init__(self, spec: Spec, make: Callable[[int, int, int], nn.Module]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([make(*shape) for shape in spec.widths()])
        _, head, heads = spec.widths()[-1]
        self.join = None if spec.citation else nn.Linear(head * heads, spec.out_width)
        self.activate = functional.elu if spec.name == "gat" else functional.relu
        self.dropout = spec.dropout

    def forward(self, call: Callable[[nn.Module, int, Tensor], Tensor], x: Tensor, targets: int) -> Tensor:
        """Return the scores of the first rows; `call` runs a layer by its number."""
        last = len(self.convolutions) - 1
        for index, layer in enumerate(self.convolutions):
            x = call(layer, index, functional.dropout(x, self.dropout, self.training)).flatten(1)
            if index < last or self.join is not None:
                x = self.activate(x)
        return x[:targets] if self.join is None else self.join(x[:targets])


def with_self(offsets: Any, sources: Any) -> tuple[Any, Any]:
    """Return in-edges with one more per target, from itself."""
    rows = np.arange(len(offsets) - 1)
    return offsets + np.arange(len(offsets)), np.insert(sources, offsets[1:], rows)


class Peer:
    """Common parts of the other libraries: torch's losses, and a single form."""

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss by torch's own functions."""
        if labels.ndim == 1:
            return functional.cross_entropy(outputs, labels)
        return functional.binary_cross_entropy_with_logits(outputs, labels)

    def setting(self, form: str, device: torch.device) -> contextlib.AbstractContextManager[None]:
        """Change nothing."""
        return contextlib.nullcontext()


class PyG(Peer):
    """PyTorch Geometric."""

    def model(self, spec: Spec) -> nn.Module:
        """Return its own layers."""
        from torch_geometric.nn import GATConv, GCNConv, SAGEConv

        drop = spec.dropout
        return Stack(
            spec,
            {
                "gcn": lambda width, head, _: GCNConv(width, head, normalize=False),
                "sage": lambda width, head, _: SAGEConv(width, head),
                "gat": lambda width, head, heads: GATConv(width, head, heads, add_self_loops=False, dropout=drop),
            }[spec.name],
        )

    def prepare(self, net: nn.Module, batch: Any, x: Any, *, form: str) -> Any:
        """Return the whole batch as one adjacency: rows are targets."""
        from torch_geometric.nn import GCNConv, SAGEConv

        kind = type(net.convolutions[0])  # type: ignore[index]
        offsets, sources, rows = batch.layer(0, pruned=False)
        if kind is not SAGEConv:
            offsets, sources = with_self(offsets, sources)
        degree = np.diff(offsets)
        targets = np.repeat(np.arange(rows), degree)
        weight = None
        if kind is GCNConv:
            scale = (batch.in_degree + 1.0) ** -0.5
            weight = torch.from_numpy((scale[targets] * scale[sources]).astype(np.float32))
        edges: Any
        if kind not in {GCNConv, SAGEConv}:
            edges = torch.from_numpy(np.stack([sources, targets]))
        elif importlib.util.find_spec("torch_sparse"):
            from torch_sparse import SparseTensor

            edges = SparseTensor(
                rowptr=torch.from_numpy(offsets), col=torch.from_numpy(sources), value=weight, sparse_sizes=(rows, rows)
            )
        else:
            warnings.filterwarnings("ignore", message="Sparse")  # such matrices are in beta
            values = torch.ones(len(sources)) if weight is None else weight
            edges = torch.sparse_csr_tensor(torch.from_numpy(offsets), torch.from_numpy(sources), values, (rows, rows))
        return edges, torch.from_numpy(x), batch.sizes[0]

    def moved(self, prepared: Any, device: torch.device) -> Any:
        """Return the adjacency and the rows on a device."""
        edges, x, targets = prepared
        return edges.to(device), x.to(device), targets

    def outputs(self, net: nn.Module, prepared: Any) -> Tensor:
        """Return the outputs of the targets."""
        edges, x, targets = prepared
        found: Tensor = net(lambda layer, _, h: layer(h, edges), x, targets)
        return found


class DGL(Peer):
    """Deep Graph Library."""

    def model(self, spec: Spec) -> nn.Module:
        """Return its own layers."""
        from peers import dgl_module

        dgl = dgl_module()

        given = {"allow_zero_in_degree": True}
        drop = spec.dropout
        return Stack(
            spec,
            {
                "gcn": lambda width, head, _: dgl.nn.GraphConv(width, head, norm="both", **given),
                "sage": lambda width, head, _: dgl.nn.SAGEConv(width, head, "mean"),
                "gat": lambda width, head, heads: dgl.nn.GATConv(width, head, heads, attn_drop=drop, **given),
            }[spec.name],
        )

    def prepare(self, net: nn.Module, batch: Any, x: Any, *, form: str) -> Any:
        """Return its blocks."""
        from peers import dgl_module

        dgl = dgl_module()

        convolutions: Any = net.convolutions
        blocks = []
        for index, layer in enumerate(convolutions):
            offsets, sources, rows = batch.layer(index, pruned=True)
            if not isinstance(layer, dgl.nn.SAGEConv):
                offsets, sources = with_self(offsets, sources)
            count = len(offsets) - 1
            targets = np.repeat(np.arange(count), np.diff(offsets))
            edges = torch.from_numpy(sources), torch.from_numpy(targets)
            block = dgl.create_block(edges, num_src_nodes=rows, num_dst_nodes=count)
            block.create_formats_()
            blocks.append(block)
        return blocks, torch.from_numpy(x), batch.sizes[0]

    def moved(self, prepared: Any, device: torch.device) -> Any:
        """Return the blocks and the rows on a device."""
        blocks, x, targets = prepared
        return [block.to(device) for block in blocks], x.to(device), targets

    def outputs(self, net: nn.Module, prepared: Any) -> Tensor:
        """Return the outputs of the targets."""
        blocks, x, targets = prepared
        found: Tensor = net(lambda layer, index, h: layer(blocks[index], h), x, targets)
        return found


LIBRARIES: dict[str, Callable[[], Library]] = {"gnnflow": Gnnflow, "pyg": PyG, "dgl": DGL}
