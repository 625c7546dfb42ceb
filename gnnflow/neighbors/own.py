"""Neighbours that a function of the user's own selects: `package.module:function`.

It is called once per partition as function(graph, roots, **options), where roots are the dense ids of all the
partition's nodes, and returns {name of a relation: Instances}, which are checked before they are written. The same
graph, roots and options must give the same instances. Random choices should use `graph.keys`, which do not depend on
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.config.own_code import own_function
from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow.graph.schema import NAME, GraphSchema, Relation
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.graph import Instances, NeighborGraph
from gnnflow.neighbors.selection import Delivered, Selection, SelectionResult, deliver, finish

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import OwnNeighbors
    from gnnflow.graph.arrays import Array
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner

_KIND = "neighbors.kind"
_CONTRACT = (
    "It is called as function(graph, roots, **options) and returns {relation: gnnflow.neighbors.Instances}; "
    "docs/neighbors.md has an example."
)


_Require = Callable[[bool, str], None]
"""Raises ConfigError with a problem where something does not hold."""


@dataclass(frozen=True)
class OwnJob(Selection):
    """The job of calling the user's function, known to every task."""

    kind: str
    options: dict[str, Any]


def load_function(kind: str) -> Callable[..., object]:
    """Return the user's function that `neighbors.kind` names, as `own_function` does."""
    return own_function(kind, where=_KIND, raises=ConfigError)


def run_rounds(job: Selection, section: OwnNeighbors, runner: RoundRunner) -> SelectionResult:
    """Call the function on every partition."""
    own = OwnJob(job.artifact, job.store, (), job.seed, section.kind, dict(section.options))
    parts = job.store.num_partitions
    records = runner.run(Round("own", parts, parts, partial(call, job=own)))
    described = [record.counts["described"] for record in records]
    for index, each in enumerate(described):
        if each != described[0]:
            first, other = _shown(described[0]), _shown(each)
            raise _wrong(own, f"returns {first} for partition 0 and {other} for partition {index}")
    names = [Relation.parse(name) for name in described[0]]
    job = replace(job, relations=tuple(each for each in names if each is not None))
    return finish(job, runner, dict.fromkeys(range(len(names)), Delivered("own", records)))


def call(index: int, _: Inbox, *, job: OwnJob) -> TaskOutput:
    """Call the function on one partition, check what it returns, and write it."""
    book = job.store.book
    roots = np.arange(book.start(index), book.start(index) + book.size(index))
    function = load_function(job.kind)
    try:
        returned = function(NeighborGraph(job.store), roots, **job.options)
    except GnnflowError:
        raise
    except Exception as error:
        raise _wrong(
            job, f"failed on the {len(roots):,} nodes of partition {index}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(returned, Mapping) or not returned:
        raise _wrong(job, f"returned {type(returned).__name__}, not {{relation: Instances}}")
    found = {}
    for name, instances in returned.items():
        relation = _relation(name, job)
        found[relation] = _checked(instances, relation, index, job)
    relations = tuple(sorted(found, key=str))
    output = deliver(index, replace(job, relations=relations), {n: found[each] for n, each in enumerate(relations)})
    return replace(
        output, counts={**output.counts, "described": {str(each): _described(found[each]) for each in relations}}
    )


def _relation(name: object, job: OwnJob) -> Relation:
    """Return the relation of a name; in a graph of one type the plain name is enough."""
    schema: GraphSchema = job.store.schema
    text = str(name)
    if schema.num_types == 1 and NAME.fullmatch(text) and "__" not in text:
        return Relation(schema.types[0], text, schema.types[0])
    relation = Relation.parse(text)
    if relation is None or not NAME.fullmatch(relation.name) or {relation.source, relation.target} - set(schema.types):
        types = ", ".join(schema.types)
        raise _wrong(job, f"returned instances of {name!r}; write source__name__target with types of {types}")
    return relation


def _checked(instances: object, relation: Relation, index: int, job: OwnJob) -> Instances:
    """Return the instances of one relation for writing. Raises ConfigError where they break the contract."""
    if not isinstance(instances, Instances):
        raise _wrong(job, f"returned {type(instances).__name__} for {relation}, not Instances")
    require = partial(_require, job=job, relation=relation)
    roots, leaves = _integers(instances.roots, "roots", require), _integers(instances.leaves, "leaves", require)
    offsets = None if instances.offsets is None else _integers(instances.offsets, "offsets", require)
    _check_roots(roots, relation, index, job, require)
    _check_leaves(roots, leaves, offsets, job, require)
    if offsets is None and leaves.size == len(roots):
        _check_type(leaves, "leaf", relation.source, job, require)
    weight, attributes = _numbers(instances.weight), _numbers(instances.attributes)
    if weight is not None:
        sound = weight.shape == roots.shape and bool(np.all(np.isfinite(weight) & (weight >= 0)))
        require(sound, f"weights that are not {len(roots)} finite numbers of at least 0")
    if attributes is not None:
        sound = attributes.shape == (len(roots), *attributes.shape[-1:]) and bool(np.isfinite(attributes).all())
        require(sound, f"attributes that are not {len(roots)} rows of finite numbers")
    return Instances(roots, leaves, weight, attributes, offsets)


def _check_roots(roots: Array, relation: Relation, index: int, job: OwnJob, require: _Require) -> None:
    require(roots.ndim == 1 and bool(np.all(roots[1:] >= roots[:-1])), "roots that do not ascend")
    start = job.store.book.start(index)
    outside = roots[(roots < start) | (roots >= start + job.store.book.size(index))]
    require(not len(outside), f"the root {_first(outside)}, which is not among the given nodes")
    _check_type(roots, "root", relation.target, job, require)


def _check_leaves(roots: Array, leaves: Array, offsets: Array | None, job: OwnJob, require: _Require) -> None:
    last = job.store.book.num_nodes - 1
    outside = leaves[(leaves < 0) | (leaves > last)]
    require(not len(outside), f"the leaf {_first(outside)}, where nodes are 0 to {last}")
    if offsets is None:
        fits = leaves.shape[:1] == roots.shape and leaves.shape in {roots.shape, (len(roots), *leaves.shape[1:2])}
        require(fits and leaves.shape[1:] != (0,), f"leaves of shape {list(leaves.shape)} for {len(roots)} roots")
        return
    fits = offsets.shape == (len(roots) + 1,) and leaves.ndim == 1
    fits = fits and offsets[0] == 0 and offsets[-1] == len(leaves) and bool(np.all(offsets[1:] > offsets[:-1]))
    require(bool(fits), "offsets that do not lead to leaves of every root")


def _check_type(nodes: Array, what: str, name: str, job: OwnJob, require: _Require) -> None:
    strange = nodes[job.store.book.type_of(nodes) != job.store.schema.types.index(name)]
    require(not len(strange), f"the {what} {_first(strange)}, which is not of type {name}")


def _integers(given: object, name: str, require: _Require) -> Array:
    values = np.asarray(given)
    if values.size == 0:
        values = values.astype(np.int64)
    require(values.dtype.kind in "iu", f"{name} of type {values.dtype}, not integers")
    return values.astype(np.int64, copy=False)


def _numbers(values: object) -> Array | None:
    return None if values is None else np.asarray(values, np.float32)


def _described(instances: Instances) -> list[Any]:
    """Return the properties of a relation's instances that all partitions must share."""
    return [instances.num_leaves, instances.weight is not None, instances.attribute_width]


def _require(holds: bool, problem: str, *, job: OwnJob, relation: Relation) -> None:  # noqa: FBT001 - as an assert
    if not holds:
        raise _wrong(job, f"returned {problem} (relation {relation})")


def _wrong(job: OwnJob, problem: str) -> ConfigError:
    return ConfigError(f"{job.kind} {problem}", where=_KIND, fix=_CONTRACT)


def _first(values: Array) -> int | None:
    return int(values.flat[0]) if values.size else None


def _shown(described: Mapping[str, Any]) -> str:
    told = (
        f"{name} with {leaves or 'varying'} leaves, {'' if weighted else 'no '}weights, {width} attributes"
        for name, (leaves, weighted, width) in described.items()
    )
    return "; ".join(told)
