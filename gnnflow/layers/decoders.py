"""Decoders: the scores of pairs from the embeddings of their ends, the last part of a model whose targets are pairs.

dot:      <s, t>, one score                              for graphs without relations
distmult: <s, r_c, t>, one score per output c            Yang et al., ICLR 2015, with diagonal relations
mlp:      W2 relu(W1 [s | t | a] + b1) + b2              distinguishes (s, t) from (t, s), unlike the others

a are the attributes of the edge, where edges have labels and attributes.

Shapes: P pairs, W width of an embedding, A attributes, C outputs; S sources and T targets of all pairs between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.graph.errors import LayerError

DecoderKind = Literal["dot", "distmult", "mlp"]


@dataclass(frozen=True)
class DecoderInputs:
    """The inputs of a decoder. num_outputs C: 1 for links; the classes, labels or 1 for labels of edges.

    attribute_width A: of the edges' attributes, which only mlp reads.
    """

    kind: DecoderKind
    num_outputs: int = 1
    hidden: int = 64
    attribute_width: int = 0


class Decoder(nn.Module, ABC):
    """Scores of pairs; each pair is scored separately, so that batches may be cut anywhere."""

    @abstractmethod
    def forward(self, source: Tensor, target: Tensor, attributes: Tensor | None = None) -> Tensor:
        """Return the scores [P, C] of pairs with these embeddings [P, W] and attributes [P, A], if any."""

    def score_all(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return the first output [S, T] for all pairs of sources [S, W] and targets [T, W], without attributes.

        Decoders that save work where pairs share an end have their own; a source at a time keeps memory at T rows.
        """
        return torch.stack([self(source.expand_as(targets), targets)[:, 0] for source in sources])


class Dot(Decoder):
    """The inner product of the two ends."""

    def forward(self, source: Tensor, target: Tensor, attributes: Tensor | None = None) -> Tensor:
        """Return one score per pair [P, 1]."""
        return (source * target).sum(1, keepdim=True)

    def score_all(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return one product of matrices."""
        return sources @ targets.T


class DistMult(Decoder):
    """An inner product per output with a weight for each column. A single output starts with weights of one."""

    def __init__(self, width: int, num_outputs: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones(num_outputs, width))
        if num_outputs > 1:  # equal weights would stay equal
            nn.init.xavier_uniform_(self.relation)

    def forward(self, source: Tensor, target: Tensor, attributes: Tensor | None = None) -> Tensor:
        """Return one score per pair and output [P, C]."""
        return functional.linear(source * target, self.relation)

    def score_all(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return one product of matrices, after the weights of the columns."""
        return (sources * self.relation[0]) @ targets.T


class MLP(Decoder):
    """One hidden layer over both ends and the attributes of their edge, concatenated."""

    def __init__(self, width: int, hidden: int, num_outputs: int, *, attribute_width: int) -> None:
        super().__init__()
        self.attribute_width = attribute_width
        self.first = nn.Linear(2 * width + attribute_width, hidden)
        self.last = nn.Linear(hidden, num_outputs)

    def forward(self, source: Tensor, target: Tensor, attributes: Tensor | None = None) -> Tensor:
        """Return one score per pair and output [P, C]."""
        assert (attributes is not None) == bool(self.attribute_width), "edges have the attributes it was built for"
        read = [source, target] if attributes is None else [source, target, attributes]
        rows: Tensor = self.last(functional.relu(self.first(torch.cat(read, 1))))
        return rows

    def score_all(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Map each end once, since the first layer sums both, and add the halves a source at a time."""
        assert not self.attribute_width, "random pairs have no attributes"
        of_sources, of_targets = self.first.weight.tensor_split([sources.shape[1]], dim=1)
        first = functional.linear(sources, of_sources, self.first.bias)
        second = functional.linear(targets, of_targets)
        weight, bias = self.last.weight[0], self.last.bias[0]
        return torch.stack([functional.relu(second + row) @ weight + bias for row in first])


_BUILD: dict[DecoderKind, Callable[[DecoderInputs, int], Decoder]] = {
    "dot": lambda *_: Dot(),
    "distmult": lambda inputs, width: DistMult(width, inputs.num_outputs),
    "mlp": lambda inputs, width: MLP(width, inputs.hidden, inputs.num_outputs, attribute_width=inputs.attribute_width),
}


def build_decoder(inputs: DecoderInputs, width: int) -> Decoder:
    """Return a decoder for embeddings of this width. Raises LayerError if its kind has too few outputs."""
    if inputs.kind == "dot" and inputs.num_outputs != 1:
        raise LayerError(
            f"dot gives one score, but the task has {inputs.num_outputs} outputs",
            where="task.decoder.kind",
            fix="Set it to distmult or mlp.",
        )
    return _BUILD[inputs.kind](inputs, width)
