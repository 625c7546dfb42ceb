"""States of edges where these are placed, merged at the owners of their targets: a layer's Gather and Sum over ranks.

Source rows go to the ranks that hold edges of them, and target terms to those whose edges read some; each rank then
sends one state per ghost to its owner, while it aggregates the edges into its own rows, and the owner merges the states
rank by rank. Edges at their sources need neither rows nor, for most layers, target terms. All of it is under autograd:
gradients of states go back to where these were made.

A layer is computed so where that is a quarter fewer bytes than sending rows to where its targets are
(`is_fewer_bytes`), which is the same decision on every rank. States have to merge.

Shapes: T targets of a rank, n ghosts, M states received.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnflow.executions.globalbatch.active_sets import Totals, Traffic, split_by_mirrors
from gnnflow.executions.globalbatch.placed_sets import PlacedLayer
from gnnflow.executions.plan import RelationPlan
from gnnflow.executions.propagate import finished, partial_state, takes_self
from gnnflow.executions.row_exchange import Exchange, Route, depart
from gnnflow.executions.stages import Stages
from gnnflow.executions.tensors import BlockTensors, block_tensors, tensor
from gnnflow.layers import Layer, State, Terms

_WORTH = 0.75


@dataclass(frozen=True, eq=False)
class PlacedTensors:
    """One layer of one rank, ready to compute on.

    own, mirrored: edges into its T targets, from own rows and from the M' mirrors. far: edges into n ghosts, from own
    rows and then mirrors. rows: of source terms; None where no rank has a mirror. wanted: of target terms; None where
    no edge reads any. states: of the ghosts' states. places [M]: the target of each state that comes.
    """

    own: BlockTensors
    mirrored: BlockTensors
    far: BlockTensors
    rows: Route | None
    wanted: Route | None
    states: Route
    places: Tensor
    totals: Totals

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.own.num_targets


def is_fewer_bytes(plan: RelationPlan, *, num_rows: int, placed: PlacedLayer) -> bool:
    """Return whether states are fewer numbers to send in a layer than the num_rows source rows of all ranks.

    A quarter fewer: a second state, and merging it, takes time that a few bytes do not.
    """
    each = plan.state_layout.width + (plan.target.width if plan.target_reads else 0)
    sent = placed.num_mirrors * plan.source.width + placed.num_states * each
    return sent < _WORTH * num_rows * plan.source.width


def placed_tensors(placed: PlacedLayer, totals: Totals, *, reads_targets: bool) -> PlacedTensors:
    """Return a rank's layer as tensors. totals: of the layer in all ranks, wherever edges are computed."""
    near, traffic = placed.near, placed.near.traffic
    own, mirrored = (block_tensors(part) for part in split_by_mirrors(near))
    far, size = block_tensors(placed.far), placed.far.num_targets
    back = Traffic(placed.places, placed.received, placed.sent)
    return PlacedTensors(
        own,
        mirrored,
        far,
        None if traffic is None else route_of(traffic, num_rows=near.num_own),
        route_of(back, num_rows=own.num_targets) if reads_targets else None,
        Route.of(torch.arange(size), num_rows=size, sent=placed.sent, received=placed.received),
        tensor(placed.places),
        totals,
    )


def route_of(traffic: Traffic, *, num_rows: int) -> Route:
    """Return the route of some rows among num_rows."""
    return Route.of(tensor(traffic.rows), num_rows=num_rows, sent=traffic.sent, received=traffic.received)


def aggregated_by_place(layer: Layer, terms: Terms, held: PlacedTensors, exchange: Exchange, stages: Stages) -> Tensor:
    """Return each target's aggregated rows [T, H, D (+ A)]. All ranks compute it together."""
    own = held.own.with_self if takes_self(layer, held.own) else held.own
    stages.enter("gather_sum", over=[*terms.source.values(), *terms.target.values()], back="transform")
    # on their way meanwhile: rows of mirrors, and target terms of ghosts, other ranks' targets of edges held here
    rows = None if held.rows is None else depart(exchange, held.rows, terms.source, stages=stages)
    wanted = None if held.wanted is None else depart(exchange, held.wanted, terms.target, stages=stages)
    terms = Terms(terms.source if rows is None else rows.terms, terms.target if wanted is None else wanted.terms)
    # while something is waited for, edges between own rows are aggregated; else once the states have left
    waits = rows is not None or wanted is not None
    state = partial_state(layer, source=terms.source, target=terms.target, block=own) if waits else None
    received = {name: each[:0] for name, each in terms.source.items()} if rows is None else rows.arrive()
    source = {name: torch.cat([each, received[name]]) for name, each in terms.source.items()}
    ghosts = {} if wanted is None else wanted.arrive()
    # the ghosts' states over the edges held here leave first: their owners wait for them
    far = partial_state(layer, source=source if rows is not None else terms.source, target=ghosts, block=held.far)
    states = depart(exchange, held.states, far, stages=stages)
    if state is None:
        state = partial_state(layer, source=terms.source, target=terms.target, block=own)
    others = None
    if rows is not None:
        others = partial_state(layer, source=received, target=terms.target, block=held.mirrored)
    arrived = states.arrive()
    stages.enter("reduce", over=[*state.values(), *(others or {}).values(), *arrived.values()], back="gather_sum")
    state = state if others is None else layer.levels.instance.merge(state, others)
    state = _merged(layer, state, arrived, terms, held)
    has_self = own is not held.own
    found = finished(layer, state, source=terms.source, target=terms.target, edge=own.edge, has_self=has_self)
    stages.enter("apply", over=[found], back="reduce")
    return found


def _merged(layer: Layer, state: State, arrived: State, terms: Terms, held: PlacedTensors) -> State:
    """Return the targets' state with those that other ranks sent [M], rank by rank."""
    if held.wanted is None and "scale" in terms.target:  # a factor of a whole sum, which its owner applies
        factor = terms.target["scale"].index_select(0, held.places)
        arrived = {name: each * factor.view(-1, *[1] * (each.dim() - 1)) for name, each in arrived.items()}
    runs = torch.split(torch.arange(len(held.places)), list(held.states.received))
    for number, run in enumerate(runs):
        # without any state to merge the first, of none, still ties the way back to the targets
        if len(run) or not number:
            part = {name: each[run[0] : run[-1] + 1] if len(run) else each[:0] for name, each in arrived.items()}
            # the targets of one rank's states, and what these targets have so far
            places = held.places[run]
            mine = {name: each.index_select(0, places) for name, each in state.items()}
            found = layer.levels.instance.merge(mine, part)
            state = {name: each.index_copy(0, places, found[name]) for name, each in state.items()}
    return state
