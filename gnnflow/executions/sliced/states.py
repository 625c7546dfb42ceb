"""Partial states of a slice's layer: made where the sources are, merged where the targets are.

    state = partial_slice(k, own, source terms, block)  at the sources' owner, over the edges it was told of
    merged = MergedStates(k, own terms, ...)            at the targets' owner:
        merged.add_block(source terms, block, targets)      over edges whose sources came as rows; or `add_edges`
        merged.add_state(state, targets)                    over edges whose states were made elsewhere
    merged.state                                        of all parts, for `finish_slice` or `relations_slice`

Parts are merged in the order in which they are added, which must be the same in every run. On a typed graph all of this
is of one relation's layer and in-edges.

Shapes: T targets, n of them that a part leads to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from gnnflow.executions.base import BlockPart
from gnnflow.executions.moving import to_device
from gnnflow.executions.propagate import block_messages, partial_state
from gnnflow.executions.sliced.term_arrays import arrays_to_terms, terms_to_arrays
from gnnflow.executions.tensors import block_tensors, shared_tensor, tensor
from gnnflow.graph.arrays import FloatArray, IntArray
from gnnflow.graph.batch import Block
from gnnflow.kernels import Pieces, adds_softmax, choose
from gnnflow.layers import Model, State
from gnnflow.layers.terms import GatheredTerms

if TYPE_CHECKING:
    from torch import Tensor

    from gnnflow.executions.plan import TermArrays


@torch.no_grad()
def joined_states(
    model: Model, index: int, *, own: TermArrays, source: TermArrays, block: Block, pieces: Pieces
) -> dict[str, FloatArray] | None:
    """Return layer `index`'s states of T targets over edges in pieces: the bits of `MergedStates` over its pieces.

    None where no kernel joins them. own: the targets' target terms; source: of the block's sources.
    """
    layer = model.relations(index).layer(0)
    kind, held = layer.levels.instance, block_tensors(block)
    scaled = held.sample_scale is not None and bool(kind.scaled_by_sample)
    if scaled or not kind.joins or not layer.uses_coefficients or held.leaves is not None or model.device.type != "cpu":
        return None
    csr = replace(held.csr, pieces=pieces)
    # source rows are mapped and large: nothing writes into them
    terms = {name: shared_tensor(source[name]) for name in sorted(source)}
    messages = block_messages(layer, terms, arrays_to_terms(own), replace(held, csr=csr))
    # a coefficient that a layer computes might depend on how many edges there are
    coefficient, weight, halves = messages.coefficient, held.edge.weight, messages.halves
    plain = coefficient is None or (weight is not None and coefficient.data_ptr() == weight.data_ptr())
    plain = plain and messages.attributes is None and choose(csr, messages.value).scaled_sum is not None
    if not plain or (halves is not None and not adds_softmax(halves, messages.value)):
        return None
    return terms_to_arrays(kind.partial(messages))


class MergedStates:
    """Layer `index`'s states of T targets, to which parts of their in-edges are merged one after the other.

    relation: which layer and in-edges they are of, on a typed graph. own: the targets' target terms. sample_scale [T]:
    of a uniform sample, over all kept edges of a target. state: of all T targets over the parts that come first.
    """

    def __init__(
        self,
        model: Model,
        index: int,
        relation: int = 0,
        *,
        own: TermArrays,
        sample_scale: FloatArray | None,
        state: TermArrays | None = None,
    ) -> None:
        self._model, self._layer = model, model.relations(index).layer(relation)
        self._own = self._tensors(own)
        self._scale = None if sample_scale is None else to_device(model.device, tensor(sample_scale))
        self._state: State = {} if state is None else self._tensors(state)

    @property
    def adds(self) -> bool:
        """True if `add_edges` merges a part in one pass of a kernel: states are sums, and no sample scales them."""
        return self._layer.levels.instance.adds and self._layer.uses_coefficients and self._scale is None

    @torch.no_grad()
    def add_edges(self, source: TermArrays, block: Block) -> None:
        """Merge the state over a block's edges, where `adds`; the block has all T targets, many without an edge.

        It gives the bits of `add_block`: a kernel adds up the edges of a target before it adds them to the state.
        """
        terms = self._tensors(source)
        edges = to_device(self._model.device, block_tensors(block))
        self._state = partial_state(self._layer, source=terms, target=self._own, block=edges, onto=self._state)

    @torch.no_grad()
    def add_block(self, source: TermArrays, block: Block, targets: IntArray | None = None) -> None:
        """Merge the state over a block's edges. source: terms of its sources.

        targets [n]: which targets are the block's; None, which the first part must give: all T. The block's
        sample_scale counts all kept edges of these targets.
        """
        part = BlockPart(to_device(self._model.device, block_tensors(block)), self._tensors(source))
        if targets is None:
            assert not self._state, "a part of all targets comes first"
            state = part.state(self._layer, self._own)
            self._state = {name: rows.contiguous() for name, rows in state.items()}
            return
        rows = to_device(self._model.device, tensor(targets))
        own = GatheredTerms(self._own, lambda terms: terms.index_select(0, rows))
        self._merge(part.state(self._layer, own), rows)

    @torch.no_grad()
    def add_state(self, state: TermArrays, targets: IntArray) -> None:
        """Merge the states [n, ...] of some targets, made elsewhere without their terms and their scales."""
        rows, received = to_device(self._model.device, tensor(targets)), self._tensors(state)
        if "scale" in self._own:  # only sums take it
            factor = self._own["scale"].index_select(0, rows)
            received = {name: each * factor.view(-1, 1, 1) for name, each in received.items()}
        if self._scale is not None:
            received = self._layer.levels.instance.rescale(received, self._scale.index_select(0, rows))
        self._merge(received, rows)

    @property
    def state(self) -> dict[str, FloatArray]:
        """The states over all parts that were added [T, ...]."""
        return terms_to_arrays(self._state)

    def _merge(self, part: State, rows: Tensor) -> None:
        # the states of these targets so far [n, ...]
        held = {name: each.index_select(0, rows) for name, each in self._state.items()}
        for name, merged in self._layer.levels.instance.merge(held, part).items():
            self._state[name].index_copy_(0, rows, merged)

    def _tensors(self, arrays: TermArrays) -> dict[str, Tensor]:
        # received rows are read-only and large: nothing here writes into them, and a layer sees gathered ones
        held = {name: shared_tensor(np.ascontiguousarray(arrays[name])) for name in sorted(arrays)}
        return to_device(self._model.device, held)
