"""A layer's `message`, split by the inputs of its steps, which tracing finds (torch.fx).

NGra moves steps that depend on one end of an edge out of ApplyEdge, and fuses the rest with Scatter and Gather (Ma et
al. 2018). Here steps on source terms run once per source, and steps on target terms once per target. If the rest is a
product of a source row, a gate sigmoid(source + target) and the edge's weight, of which the last two are optional, one
kernel sums it without keeping anything per edge.

Only steps that compute each row separately and draw nothing are moved: `_BY_ROW` and linear maps. Messages whose Python
code depends on numbers in tensors cannot be traced, and run unchanged. So do messages that make new tensors, whose
numbers a trace would keep, or write to their arguments: edges have copies, nodes do not. The phases are kept as long as
the layer's plain attributes, such as `training`, stay the same.

Shapes: S sources, T targets, E edges, H heads, D width of a head.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from gnnflow.layers.aggregation import Aggregation
from gnnflow.layers.base import Layer
from gnnflow.layers.levels import Levels
from gnnflow.layers.terms import EdgeContext

_BY_ROW: set[Any] = {
    *(torch.sigmoid, torch.tanh, torch.relu, torch.exp, torch.abs, torch.neg, torch.square, torch.sqrt, torch.log1p),
    *(torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.clamp),
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pow),
    *(functional.relu, functional.leaky_relu, functional.elu, functional.gelu, functional.silu, functional.softplus),
    *(functional.linear, functional.sigmoid, functional.tanh),
    *("sigmoid", "tanh", "relu", "exp", "abs", "neg", "square", "sqrt", "add", "sub", "mul", "div"),
}
_PRODUCTS = {operator.mul, torch.mul, "mul"}
_SUMS = {operator.add, torch.add, "add"}
_SIGMOIDS = {torch.sigmoid, functional.sigmoid, "sigmoid"}
_SOURCE, _TARGET, _EDGE = "source", "target", "edge"
_ANY = ""  # readable from every side
_WEIGHT, _COUNT = "weight", "num_edges"


@dataclass(frozen=True)
class Fused:
    """A message that one kernel sums: row x sigmoid(gate of source + gate of target) x weight, by names of terms.

    gate: None without a gate; weighted: the edge's weight is a factor.
    """

    row: str
    gate: tuple[str, str] | None
    weighted: bool


@dataclass(frozen=True)
class Phases:
    """The steps per source, per target and per edge.

    hoisted: steps that became terms, by side. fused: the fused sum of the rest; None if the rest is a message per edge.
    """

    graph: fx.Graph
    inputs: Mapping[fx.Node, tuple[str, str]]
    sides: Mapping[fx.Node, str]
    hoisted: Mapping[str, tuple[fx.Node, ...]]
    fused: Fused | None

    def terms(self, layer: Layer, side: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a side's terms and the results of its hoisted steps, one row per node."""
        known = self._run(layer, side, {node: given[name] for node, (of, name) in self.inputs.items() if of == side})
        return {**given, **{_term(node): known[node] for node in self.hoisted[side]}}

    def message(
        self, layer: Layer, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> Tensor:
        """Return the message of each edge [E, H, D], from the terms of `terms`, gathered per edge."""
        seen = {_SOURCE: source, _TARGET: target}
        known: dict[fx.Node, Any] = {}
        for node, (side, name) in self.inputs.items():
            if side == _EDGE:
                known[node] = getattr(edge, name)
            elif any(_is_on_other_side(self.sides, user, side) for user in node.users):
                known[node] = seen[side][name]
        known |= {node: seen[side][_term(node)] for side, nodes in self.hoisted.items() for node in nodes}
        message: Tensor = self._run(layer, _EDGE, known)[_output(self.graph)]
        return message

    def _run(self, layer: Layer, side: str, known: dict[fx.Node, Any]) -> dict[fx.Node, Any]:
        """Run the remaining steps of a side, and return all values."""
        interpreter = fx.Interpreter(layer, garbage_collect_values=False, graph=self.graph)
        interpreter.env = known
        for node, of in self.sides.items():
            if of in {side, _ANY} and node not in known:
                known[node] = interpreter.run_node(node)
        return known


_KNOWN: WeakKeyDictionary[Layer, dict[Any, Phases | None]] = WeakKeyDictionary()
_MODULES_OWN = vars(nn.Module()).keys() - {"training"}
_CONSTANT = "_tensor_constant"
"""What torch.fx calls the attributes in which it keeps tensors that are no parameters."""


def phases_of(
    layer: Layer, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
) -> Phases | None:
    """Return a layer's message in phases; None if it cannot be traced, or all of it runs per edge."""
    settings = _settings(layer)
    if settings is None:
        return _phases(layer, list(source), list(target), edge)
    key = (settings, *source, None, *target, edge.weight is None, edge.attributes is None)
    held = _KNOWN.setdefault(layer, {})
    if key not in held:
        held[key] = _phases(layer, list(source), list(target), edge)
    return held[key]


def _settings(layer: Layer) -> tuple[Any, ...] | None:
    """Return the plain attributes of a layer that `message` may read; None if it has other attributes."""
    found: list[Any] = []
    for module in layer.modules():
        for name, value in vars(module).items():
            if name in _MODULES_OWN or isinstance(value, Aggregation | Levels):
                continue
            if not isinstance(value, bool | int | float | str | None):
                return None
            found.append((name, value))
    return tuple(found)


def _trace(
    layer: Layer, sources: list[str], targets: list[str], edge: EdgeContext
) -> tuple[fx.Graph, dict[fx.Node, tuple[str, str]]]:
    """Return the steps of `message`, and the term or edge column of each placeholder.

    The placeholders are passed to the function itself: `fx.Tracer.trace` would change the calls of modules in all
    threads while it runs.
    """
    tracer, inputs = fx.Tracer(), {}
    tracer.root, tracer.graph, tracer.tensor_attrs = layer, fx.Graph(tracer_cls=fx.Tracer), {}

    def placeholder(side: str, name: str) -> Any:
        made = tracer.create_proxy("placeholder", f"{side}_{name}", (), {})
        inputs[made.node] = (side, name)
        return made

    columns = [name for name in (_WEIGHT, "attributes") if getattr(edge, name) is not None]
    seen = EdgeContext(placeholder(_EDGE, _COUNT), **{name: placeholder(_EDGE, name) for name in columns})
    source = {name: placeholder(_SOURCE, name) for name in sources}
    target = {name: placeholder(_TARGET, name) for name in targets}
    message = layer.message(source, target, seen)
    tracer.create_node("output", "output", (tracer.create_arg(message),), {})
    return tracer.graph, inputs


def _phases(layer: Layer, sources: list[str], targets: list[str], edge: EdgeContext) -> Phases | None:
    try:
        graph, inputs = _trace(layer, sources, targets, edge)
    except Exception:  # noqa: BLE001 - whatever a user's code makes of a placeholder: it runs on tensors then
        return None
    finally:
        made = [name for name in list(vars(layer)) if name.startswith(_CONSTANT)]
        for name in made:
            vars(layer).pop(name, None)
    if made or any(_writes(node) for node in graph.nodes):
        return None
    sides: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op != "output":
            sides[node] = inputs[node][0] if node in inputs else _side(node, sides)
    moved: dict[str, list[fx.Node]] = {_SOURCE: [], _TARGET: []}
    for node, side in sides.items():
        if side in moved and node not in inputs and any(_is_on_other_side(sides, user, side) for user in node.users):
            moved[side].append(node)
    hoisted = {side: tuple(nodes) for side, nodes in moved.items()}
    fused = _fused(_output(graph), inputs, sides)
    if fused is None and not any(hoisted.values()):
        return None
    return Phases(graph, inputs, sides, hoisted, fused)


def _writes(node: fx.Node) -> bool:
    """Return whether a step writes to an existing tensor: `relu_`, `inplace=True` or `out=`."""
    called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    into = node.op in {"call_function", "call_method"} and called.endswith("_") and not called.endswith("__")
    return into or bool(node.kwargs.get("inplace")) or node.kwargs.get("out") is not None


def _output(graph: fx.Graph) -> fx.Node:
    """Return the node of the message itself."""
    (node,) = (each.args[0] for each in graph.nodes if each.op == "output")
    assert isinstance(node, fx.Node), "a message is a tensor"
    return node


def _is_on_other_side(sides: Mapping[fx.Node, str], user: fx.Node, side: str) -> bool:
    return sides.get(user, _EDGE) != side


def _side(node: fx.Node, sides: Mapping[fx.Node, str]) -> str:
    """Return the side of a step: one end's nodes if it reads only these and works row by row."""
    if node.op == "get_attr":
        return _ANY  # a parameter
    read = {sides[each] for each in node.all_input_nodes} - {_ANY}
    by_row = node.op in {"call_function", "call_method"} and node.target in _BY_ROW
    return next(iter(read)) if by_row and len(read) == 1 else _EDGE


def _fused(output: fx.Node, inputs: Mapping[fx.Node, tuple[str, str]], sides: Mapping[fx.Node, str]) -> Fused | None:
    rows, gates, weighted = [], [], False
    for factor in _factors(output, sides):
        if sides[factor] == _SOURCE:
            rows.append(_name(factor, inputs))
        elif (gate := _gate(factor, inputs, sides)) is not None:
            gates.append(gate)
        elif _is_column(factor, inputs, _WEIGHT) and not weighted:
            weighted = True
        elif not _is_column(factor, inputs, _COUNT):
            return None
    if len(rows) != 1 or len(gates) > 1:
        return None
    return Fused(rows[0], gates[0] if gates else None, weighted)


def _name(node: fx.Node, inputs: Mapping[fx.Node, tuple[str, str]]) -> str:
    return inputs[node][1] if node in inputs else _term(node)


def _term(node: fx.Node) -> str:
    """Return the name of a hoisted step's term, which differs from the names of a layer's terms."""
    return f"message().{node.name}"


def _factors(node: fx.Node, sides: Mapping[fx.Node, str]) -> Iterator[fx.Node]:
    """Yield the factors per edge whose product is a node."""
    pair = _operands(node, _PRODUCTS) if sides[node] == _EDGE else None
    if pair is None:
        yield node
        return
    for each in pair:
        yield from _factors(each, sides)


def _operands(node: fx.Node, operations: Collection[Any]) -> tuple[fx.Node, fx.Node] | None:
    """Return the two operands of a node, if it is one of some binary operations on nodes; else None."""
    match node.args:
        case (fx.Node() as left, fx.Node() as right) if node.target in operations and not node.kwargs:
            return left, right
    return None


def _gate(
    node: fx.Node, inputs: Mapping[fx.Node, tuple[str, str]], sides: Mapping[fx.Node, str]
) -> tuple[str, str] | None:
    """Return the names of both halves of a gate, source and target, if a node is a gate."""
    if node.target not in _SIGMOIDS or len(node.all_input_nodes) != len(node.args):
        return None
    halves = _operands(node.all_input_nodes[0], _SUMS)
    ends = {sides[each]: _name(each, inputs) for each in halves or ()}
    return (ends[_SOURCE], ends[_TARGET]) if ends.keys() == {_SOURCE, _TARGET} else None


def _is_column(node: fx.Node, inputs: Mapping[fx.Node, tuple[str, str]], name: str) -> bool:
    """Return whether a node is a column [E, 1, 1] of edge weights, or of ones, from `EdgeContext`."""
    columns = [(slice(None), slice(None), None), (slice(None), None)]
    while node not in inputs:
        if node.target == "new_ones":
            return name == _COUNT and node.args[1:] == (*node.all_input_nodes[1:], 1) and len(columns) == 1
        if node.target is operator.getitem:
            if not columns or node.args[1] != columns.pop(0):
                return False
        elif node.target != "to":
            return False
        node = node.all_input_nodes[0]
    return inputs[node] == (_EDGE, name) and not columns
