"""A convolution of PyG (torch_geometric) as a layer, with a name such as `torch_geometric.nn:GATv2Conv`.

It computes targets from pairs, `conv((source rows, target rows), edge_index, ...)`, with all in-edges of a target at
once. So the layer defines `propagate`; docs/layers.md tells its costs. A user's subclass of a convolution, or of PyG's
MessagePassing, works in the same way. Nothing here imports PyG.

Shapes: N nodes, S sources, T targets.
"""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from gnnflow.config import OwnLayerConfig
from gnnflow.graph.errors import LayerError
from gnnflow.kernels import Csr
from gnnflow.layers.base import Layer
from gnnflow.layers.place import Place
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms

_MESSAGE_PASSING = "torch_geometric.nn.conv.message_passing", "MessagePassing"
# Options of PyG's convolutions for the number of edge attributes; without them they read none.
EDGE_WIDTHS = {"edge_dim", "in_edge_channels", "dim"}
_TOLERANCE = 1e-4


def is_convolution(found: object) -> bool:
    """Return whether a value is a convolution class of PyG, or derived from one."""
    return isinstance(found, type) and any((base.__module__, base.__name__) == _MESSAGE_PASSING for base in found.mro())


@cache
def layer_of(convolution: type[nn.Module]) -> type[PygLayer]:
    """Return the layer class of a convolution, under the convolution's name."""
    return type(convolution.__name__, (PygLayer,), {"convolution": convolution, "__doc__": convolution.__doc__})


class PygLayer(Layer, ABC):
    """A convolution over pairs of source and target rows; `out_width` is the width of its result.

    Edge weights go to convolutions that take edge_weight. Edge attributes go to convolutions that take edge_attr, if
    their options give the number of attributes or the class is a user's. Samples are not scaled: the kept edges count
    as if there were no others.
    """

    convolution: ClassVar[type[nn.Module]]

    def __init__(self, in_width: int, width: int, *, attribute_width: int = 0, **options: Any) -> None:
        super().__init__(in_width, width)
        arguments = _arguments(self.convolution, in_width, width) | options
        try:
            self.conv = self.convolution(**arguments)
        except Exception as error:
            plain = [f"{key}={value!r}" for key, value in arguments.items() if not isinstance(value, nn.Module)]
            raise LayerError(
                f"{self.convolution.__name__}({', '.join(plain)}) failed: {_error_text(error)}",
                where="model.options",
                fix="Give it the options that its class takes; see the documentation of PyG.",
            ) from error
        takes = inspect.signature(self.conv.forward).parameters
        theirs = self.convolution.__module__.startswith("torch_geometric.")
        self._takes_weight = "edge_weight" in takes
        self._takes_attributes = "edge_attr" in takes and (not theirs or bool(EDGE_WIDTHS & options.keys()))
        self.out_width = self._probe_width(attribute_width)

    @classmethod
    def from_config(cls, config: OwnLayerConfig, place: Place) -> Self:
        """Return the layer with the configured options."""
        return cls(place.in_width, place.width, attribute_width=place.attribute_width, **config.options)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return the rows as they are: value [N, 1, in_width]."""
        return Terms({"value": h[:, None]}, {})

    def propagate(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], csr: Csr, edge: EdgeContext
    ) -> Tensor:
        """Return the convolution's rows [T, 1, out_width]."""
        return self._convolve(source["value"][:, 0], csr, edge)[:, None]

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the rows as they are."""
        return aggregated[:, 0]

    def _convolve(self, rows: Tensor, csr: Csr, edge: EdgeContext) -> Tensor:
        beside: dict[str, Tensor] = {}
        if self._takes_weight and edge.weight is not None:
            beside["edge_weight"] = edge.weight.to(rows)
        if self._takes_attributes and edge.attributes is not None:
            beside["edge_attr"] = edge.attributes.to(rows)
        # The targets come first among the sources: PyG's self-loops, from row i to row i, rely on this.
        pair = rows, rows[: csr.num_targets]
        found: Tensor = self.conv(pair, torch.stack([csr.sources, csr.targets]), **beside)
        return found

    @torch.no_grad()
    def _probe_width(self, attribute_width: int) -> int:
        """Return the width of the result, tested on a graph of four nodes.

        Raises LayerError if the convolution does not compute a target from its in-edges.
        """
        # in-edges of nodes 0 to 3: two, two with a self-loop, one, none; then only the in-edges of nodes 0 and 1
        csr = Csr(torch.tensor([0, 2, 4, 5, 5]), torch.tensor([1, 2, 1, 3, 0]), 4)
        part, edges = csr.part(slice(0, 2), slice(0, 4)), slice(0, 4)
        rows = torch.linspace(-1.0, 2.0, 4 * self.in_width).view(4, -1)
        attributes = torch.linspace(-1.0, 1.0, 5 * attribute_width).view(5, -1) if attribute_width else None
        edge = EdgeContext(csr.num_edges, None, attributes)
        self.conv.eval()
        try:
            with torch.random.fork_rng(devices=[]):
                whole, some = self._convolve(rows, csr, edge), self._convolve(rows, part, edge.part(edges))
        except Exception as error:
            raise self._refusal(f"failed: {_error_text(error)}") from error
        self.conv.train()
        for found, adjacency in ((whole, csr), (some, part)):
            if list(getattr(found, "shape", ()))[:-1] != [adjacency.num_targets]:
                raise self._refusal(f"gave {_shape(found)} for {adjacency.num_targets} targets")
        if not torch.allclose(whole[: len(some)], some, atol=_TOLERANCE, equal_nan=True):
            raise self._refusal("gave two nodes other rows once the in-edges of the other two were left out")
        return whole.shape[1]

    def _refusal(self, what: str) -> LayerError:
        return LayerError(
            f"{self.convolution.__name__} called with (source rows, target rows) and edge_index {what}",
            where="model.kind",
            fix="A layer must compute a target from its own in-edges. PyG's GNN Cheatsheet marks the convolutions that "
            "can as bipartite; one that reads edge_attr also needs graph.edge_features and, as its option edge_dim, "
            "how many columns they have.",
        )


def _arguments(convolution: type[nn.Module], in_width: int, width: int) -> dict[str, Any]:
    """Return the arguments of a convolution that its place decides."""
    takes = inspect.signature(convolution).parameters
    known: dict[str, Any] = {"in_channels": in_width, "out_channels": width, "channels": in_width}
    if "nn" in takes and "out_channels" not in takes:  # GINConv and similar ones, which map their sums
        known["nn"] = nn.Sequential(nn.Linear(in_width, width), nn.ReLU(), nn.Linear(width, width))
    return {name: value for name, value in known.items() if name in takes}


def _error_text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")


def _shape(found: object) -> str:
    return f"rows of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
