"""The layer contract: a layer says what is computed, never where (docs/architecture.md).

It is NGra's Scatter, ApplyEdge, Gather, ApplyVertex (Ma et al. 2018), with work per node allowed before Scatter.

One pass of a layer is `transform` per node, `coefficient` or `message` per edge, the aggregation, `update` per node:

    terms = transform(h, node)                                          at each node's owner
    aggregated[v] = aggregation over in-edges u -> v of coefficient(u, v, edge) x terms.source["value"][u]
    h[v] = update(terms.target[v], aggregated[v])                       at each node's owner

Put work that depends on one endpoint into `transform`: it then runs once per node, not once per edge, and only source
terms are sent between partitions. docs/layers.md is a guide to custom layers.

Other layers, such as layers of another library, define `propagate` instead of the edge functions: it takes all
in-edges of a target at once, so that nothing can be merged.

Shapes: N nodes, E edges, A edge attributes, H heads, D width of a head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from gnnflow.config import OwnLayerConfig
from gnnflow.graph.errors import LayerError
from gnnflow.kernels import Csr
from gnnflow.layers.aggregation import Aggregation, Mean, Sum, Whole
from gnnflow.layers.levels import Levels
from gnnflow.layers.place import Place
from gnnflow.layers.terms import EdgeContext, LinearUpdate, NodeContext, Terms


class Layer(nn.Module, ABC):
    """One round of message passing from rows of in_width to rows of out_width.

    A subclass sets `aggregation` and defines `transform`, `update` and exactly one of `coefficient`, `message` and
    `propagate`, the last without an `aggregation`; several or none raise LayerError when the class is created, unless
    the class lists ABC among its bases and defines none.
    """

    aggregation: Aggregation | Levels
    """How a target's in-edges become one row; Levels where edges have leaves and these are not simply averaged."""
    positions: int = 1
    """How many forms each source term has [N, P, ...] where P > 1: the p-th leaf of an instance is read in its p-th.

    A leaf beyond the last is read in the last form, and an edge's only source in the first.
    """
    include_self: bool = False
    """Whether each target also receives one message from itself, beside any self-loop the graph holds."""
    coefficient_dropout: float = 0.0
    """Dropout on the normalised coefficient per edge and head, in training only."""
    uses_edge_attributes: bool = False
    """Whether the message is coefficient x [source value | edge attributes]; aggregated is then A columns wider."""
    logit_slope: float | None = None
    """Set where `coefficient` is LeakyReLU(source["logit"] + target["logit"]) of this negative slope, both [N, H].

    It is then computed where it is used, and nothing is kept per edge. Only for softmax attention.
    """
    uses_messages: ClassVar[bool] = False
    """Set when the class is created: whether it defines `message`."""
    uses_propagate: ClassVar[bool] = False
    """Set when the class is created: whether it defines `propagate`."""
    uses_instances: ClassVar[bool] = False
    """Set when the class is created: whether it defines `instance`."""

    @property
    def levels(self) -> Levels:
        """The aggregations of leaves and instances; an in-edge without leaves is an instance of one leaf."""
        return self.aggregation if isinstance(self.aggregation, Levels) else Levels(self.aggregation)

    @property
    def closes_leaves_with_roots(self) -> bool:
        """True if a root's instances and their leaves add up in one sum, so that no instance needs a row."""
        levels = self.levels
        plain = self.uses_coefficients and not self.uses_instances
        return plain and isinstance(levels.leaf, Mean | Sum) and levels.instance.linear

    @property
    def uses_coefficients(self) -> bool:
        """True if it defines `coefficient`: a message is then a scalar times the source's value."""
        return not (self.uses_messages or self.uses_propagate)

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.in_width = in_width
        self.out_width = out_width

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.uses_messages = cls.message is not Layer.message
        cls.uses_propagate = cls.propagate is not Layer.propagate
        cls.uses_instances = cls.instance is not Layer.instance
        defined = ["coefficient()"] if cls.coefficient is not Layer.coefficient else []
        defined += ["message()"] * cls.uses_messages + ["propagate()"] * cls.uses_propagate
        if len(defined) > 1:
            raise LayerError(
                f"it defines both {' and '.join(defined)}",
                where=_name(cls),
                fix="Keep one: coefficient() when the message is a scalar per head times the source's value.",
            )
        if not defined and ABC not in cls.__bases__:
            raise LayerError(
                "it defines neither coefficient() nor message() nor propagate()",
                where=_name(cls),
                fix="Define coefficient() to return [E, H], or message() to return [E, H, D].",
            )
        if cls.uses_propagate:
            cls.aggregation = Whole()

    @classmethod
    def from_config(cls, config: Any, place: Place) -> Self:
        """Return the layer of a config section at its place in the model.

        A layer that needs more than in_width, out_width and its options overrides this.
        """
        options = config.options if isinstance(config, OwnLayerConfig) else {}
        return cls(place.in_width, place.width, **options)

    @abstractmethod
    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return each node's terms from its row h [N, in_width]; rows stay in order."""

    @property
    def value_weight(self) -> Tensor | None:
        """The map W [D, I] that the execution applies to source["value"] [N, H, I]; None if there is none.

        A sum or a mean of W x is W times the sum or mean of x, so an execution applies W where that is less work: per
        node before the aggregation, or per target after it. `update` gets mapped rows either way. Only for aggregations
        that are linear in the value (`Aggregation.linear`), and without edge attributes.
        """
        return None

    @property
    def linear_update(self) -> LinearUpdate | None:
        """The same as `update`, as a sum of linear maps of one head's rows; None if `update` is not such a sum.

        An execution that applies value_weight after the aggregation then computes both, and the activation, at once,
        and does not call `update`. Without a value_weight it is not used.
        """
        return None

    @property
    def fixed_terms(self) -> bool:
        """True if `transform` and `coefficient` read no parameter and draw nothing; only value_weight is learned.

        The aggregated rows of the first layer are then the same in every epoch, and are computed with the batch.
        """
        return False

    @property
    def never_negative(self) -> bool:
        """True if the rows of `update` are never negative, so that another relu would change nothing."""
        return False

    def instance(
        self, leaves: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> dict[str, Tensor]:
        """Return each instance's source terms [E, ...], which `coefficient` or `message` then reads.

        leaves: per source term the sum over the leaves of each instance [E, ...]. target["x"]: the term x of each
        instance's root. edge: the context of the instances.
        """
        return dict(leaves)

    def coefficient(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> Tensor | None:
        """Return a scalar per edge and head [E, H], a logit under softmax; None if all are one.

        source["x"] is the term x of each edge's source.
        """
        raise NotImplementedError

    def message(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext) -> Tensor:
        """Return the whole message of each edge [E, H, D]. Runs over slices of the edges, in bounded memory."""
        raise NotImplementedError

    def propagate(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], csr: Csr, edge: EdgeContext
    ) -> Tensor:
        """Return each target's aggregated row [T, H, D], from all of its in-edges at once.

        source: terms of S rows; the first T are the targets themselves, also as sources of self-loops or as the only
        leaf of an instance. target: terms of the T targets. A target's row must depend only on its in-edges: the other
        targets depend on how an execution cuts the graph.
        """
        raise NotImplementedError

    @abstractmethod
    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return each node's new row [N, out_width] from its target terms and its aggregated row [N, H, D (+ A)]."""


class WeightedLayer(Layer, ABC):
    """A layer of one head whose coefficient is the edge's weight. A subclass has a parameter."""

    def coefficient(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> Tensor | None:
        """Return the edge's weight [E, 1]."""
        return edge.weight_column(next(self.parameters()))


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
