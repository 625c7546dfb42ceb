"""Bytes per edge that a layer's own `coefficient` or `message` takes: measured on some edges.

What kernels make of edges is known and counted in `needs.py`. What a layer's Python makes of them is its own business:
HGT's logits, for one, are a product of two rows gathered per edge. So it is run once, and what autograd keeps of it
with a row per edge is counted. Beside that there are what was not kept, and gradients on their way: no more than a few
of the widest at once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gnnflow.executions.propagate import block_messages, partial_state
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, Layer, Terms

NODES = 2
_EDGES = 1009  # no other dimension is as large by chance
_ON_THEIR_WAY = 3


def own_bytes_per_edge(layer: Layer, terms: Terms, *, attributes: int, weighted: bool) -> int:
    """Return the bytes of an edge; 0 where kernels make everything. terms: of NODES nodes, which are targets too."""
    if layer.uses_propagate or (layer.uses_coefficients and layer.logit_slope is not None):
        return 0
    csr = Csr(torch.tensor([0, _EDGES // NODES, _EDGES]), torch.arange(_EDGES) % NODES, NODES)
    weight = torch.ones(_EDGES) if weighted else None
    edge = EdgeContext(_EDGES, weight, torch.zeros(_EDGES, attributes) if attributes else None)
    held: dict[int, int] = {}  # bytes by place

    def kept(tensor: Tensor) -> Tensor:
        if tensor.dim() and len(tensor) == _EDGES:
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.random.fork_rng(devices=[]), torch.enable_grad(), saved_tensors_hooks(kept, lambda tensor: tensor):
        made = _of_edges(layer, terms, BlockTensors(csr, edge, None))
    sizes = [*held.values(), *(each.nbytes for each in made if len(each) == _EDGES)]
    return (sum(held.values()) + _ON_THEIR_WAY * max(sizes, default=0)) // _EDGES


def _of_edges(layer: Layer, terms: Terms, block: BlockTensors) -> list[Tensor]:
    if layer.uses_messages:
        return list(partial_state(layer, source=terms.source, target=terms.target, block=block).values())
    coefficient = block_messages(layer, terms.source, terms.target, block).coefficient
    return [] if coefficient is None else [coefficient]
