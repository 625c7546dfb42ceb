"""Terms of the first layer: some lie in files, others are made whenever they are read.

Source terms without a parameter, such as GCN's (a row of features, and the scale of its node), say no more than
features and degrees do, which lie in files already. They are made of these as they go by, once per group: so they need
no file, and are neither written nor read besides features. Draws are a function of interval and run of rows
(`layers.py`), by which dropout keeps the same numbers every time.

Terms with a parameter lie in files: a product per group costs more than reading what it gave. So do the terms of a
layer whose edges learn in any other way, since the backward pass reads them for every piece.

Shapes: n rows of an interval, W width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gnnflow.executions.plan import TermLayout
from gnnflow.executions.streamed.graph import Held
from gnnflow.executions.streamed.layers import StreamedLayers
from gnnflow.executions.streamed.rooms import Key, LayerRelations, Named, OfNodes, Room, fill
from gnnflow.layers import FeatureTensors, NodeContext

_SOURCE = Key("source", 0)  # with several relations terms lie in files


def reads_features(of: LayerRelations, source: Named) -> bool:
    """Return whether a layer's values are rows of features, which dropout at most has changed.

    source: source terms of no nodes, of a layer whose edges learn nothing.
    """
    model, value = of.model, source.get("value")
    is_joined = of.joins.only is None
    if of.index or model.encoder is not None or is_joined or of.has_leaves(0) or value is None:
        return False
    return value.shape[1:].numel() == of.layers[0].in_width


@dataclass(frozen=True)
class FirstTerms:
    """The first layer's terms in a pass over a graph."""

    run: StreamedLayers

    @cached_property
    def computes_on_read(self) -> bool:
        """True where source terms are made whenever they are read.

        Not on a ring, round which terms go, nor on a card, where it was not tried.
        """
        run = self.run
        if run.graph.ring is not None or run.device.type != "cpu":
            return False
        return not run.edges_learn(0) and reads_features(run.layers[0], run.no_terms(0).get(_SOURCE, {}))

    def room(self) -> Room:
        """Return room for the terms that lie in files; of those that are made it knows how they lie in memory."""
        like = self.run.no_terms(0)
        made = {_SOURCE: Held(TermLayout.of(like.pop(_SOURCE)), None)} if self.computes_on_read else {}
        return self.run.layers[0].room(self.run.graph, like) | made

    def load(self, interval: int) -> tuple[FeatureTensors, NodeContext]:
        """Read what terms are computed from."""
        return self.run.graph.features(interval), self.run.graph.nodes(interval)

    def load_for_files(self, interval: int) -> tuple[FeatureTensors | None, NodeContext]:
        """Read the same for the terms that lie in files: no features where these depend on degrees alone."""
        features = self.run.graph.features(interval) if self.files_need_features else None
        return features, self.run.graph.nodes(interval)

    def for_files(self, interval: int, features: FeatureTensors | None, nodes: NodeContext) -> OfNodes:
        """Return the terms of an interval's nodes that lie in files."""
        run, of = self.run, self.run.layers[0]
        keys = [key for key in of.keys_at(run.graph.types[interval]) if not (self.computes_on_read and key == _SOURCE)]
        if features is None:
            return self._without_features(interval, nodes, keys)
        made = run.empty_terms(0, interval, keys)
        self._fill(made, interval, features, nodes)
        return made

    def sources(self, interval: int, features: FeatureTensors, nodes: NodeContext) -> Named:
        """Return the source terms of an interval's nodes, where they are made: values in the memory of features."""
        run, held = self.run, self.run.rooms[0][_SOURCE]
        nodes = nodes.part(slice(run.graph.active(0)[interval]))
        if not run.model.drops:
            h = run.input_rows(interval, features, nodes)
            return run.terms(0, h, nodes, place=(interval, 0))[_SOURCE]
        assert features.dense is not None
        # terms in new memory; the value takes the memory of the features [n, H, D]
        made = Held(held.columns.without("value"), None).empty(len(features.dense), run.device)
        made["value"] = features.dense.view(-1, *held.columns.shapes[held.columns.names.index("value")])
        self._fill({_SOURCE: made}, interval, features, nodes)  # a run of rows is read before it is written
        return made

    def _fill(self, made: OfNodes, interval: int, features: FeatureTensors, nodes: NodeContext) -> None:
        """Compute some terms of an interval's nodes, a run of rows at a time."""
        for rows in self.run.runs(0, interval):
            own = nodes.part(rows)
            h = self.run.input_rows(interval, features.rows(rows.start, rows.stop), own)
            terms = self.run.terms(0, h, own, place=(interval, rows.start))
            fill(made, rows, {key: terms[key] for key in made})

    def _without_features(self, interval: int, nodes: NodeContext, keys: Iterable[Key]) -> OfNodes:
        """Return terms that depend on degrees alone: whatever the rows are."""
        run, node_type = self.run, self.run.graph.types[interval]
        number, num_targets = (run.graph.active(level)[interval] for level in (0, 1))
        terms = run.terms_of(0, node_type, self._rows(number), nodes.part(slice(number)), num_targets)
        return {key: terms[key] for key in keys}

    def _rows(self, number: int) -> Tensor:
        """Return input rows of zeros that take no memory."""
        return torch.zeros(()).expand(number, self.run.layers[0].layers[0].in_width)

    @cached_property
    def files_need_features(self) -> bool:
        """True where a term that lies in a file depends on features, or on a parameter."""
        if not self.computes_on_read:
            return True
        none = torch.zeros(0)
        with torch.enable_grad():
            h = self._rows(0).clone().requires_grad_()
            terms = self.run.terms_of(0, 0, h, NodeContext(none, none, none), 0)
        return any(rows.requires_grad for key, of in terms.items() if key != _SOURCE for rows in of.values())
