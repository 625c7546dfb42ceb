"""Start of training from another model's weights, with a check that they fit.

The architecture must be the same, except for parts that act only in training, such as dropout. The scoring part may
have another width or other classes, since the task may differ: it then starts from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from gnnflow.config import ModelConfig
from gnnflow.graph.errors import LayerError, listed
from gnnflow.layers.model import Model, ModelInputs, ModelSpec
from gnnflow.layers.saved import decode_weights
from gnnflow.layers.typed import TypedInputs, TypeInputs

_TRAINING_ONLY = {"dropout", "attention_dropout"}
_NOT_SHOWN = {"num_outputs", "unit", "typed"}  # the first two belong to the scores, the last has a separate message


@dataclass(frozen=True)
class Start:
    """A model to start from: its name for messages, the digest of its files, its weights as a safetensors file.

    other_classes: its classes have other names or another order.
    """

    name: str
    digest: str
    weights: bytes
    other_classes: bool = False


def differences(config: ModelConfig, saved: ModelSpec, *, inputs: ModelInputs | None = None) -> tuple[str, ...]:
    """Return the differences that prevent a start from a saved model's weights, one phrase each.

    inputs: the part that the graph decides, if it is known already.
    """
    ours, theirs = config.model_dump(exclude=_TRAINING_ONLY), saved.config.model_dump(exclude=_TRAINING_ONLY)
    found = [
        f"model.{key} is {getattr(config, key, 'not set')!r}, there {getattr(saved.config, key, 'not set')!r}"
        for key in {**ours, **theirs}
        if ours.get(key) != theirs.get(key)
    ]
    if inputs is not None:
        found += [
            f"{name.replace('_', ' ')} is {getattr(inputs, name)}, there {getattr(saved.inputs, name)}"
            for name in (field.name for field in fields(ModelInputs))
            if name not in _NOT_SHOWN and getattr(inputs, name) != getattr(saved.inputs, name)
        ]
        found += _other_types(inputs.typed, saved.inputs.typed)
    return tuple(found)


def _other_types(ours: TypedInputs | None, theirs: TypedInputs | None) -> list[str]:
    """Return the types of nodes, with their columns, and the relations that only one of two graphs has."""
    held = [set() if each is None else {*map(_type_text, each.types), *each.relations} for each in (ours, theirs)]
    here, there = sorted(held[0] - held[1]), sorted(held[1] - held[0])
    found = [f"only this graph has {listed(here)}"] if here else []
    return [*found, f"only that of the model has {listed(there)}"] if there else found


def _type_text(node_type: TypeInputs) -> str:
    return f"{node_type.name} ({node_type.feature_width} {'sparse ' if node_type.sparse else ''}columns)"


def start_from(model: Model, start: Start) -> str:
    """Copy a model's weights into this one of the same architecture, and return a message.

    A scoring part with other shapes or classes keeps its weights. Raises LayerError if any other weight is missing,
    superfluous or of another shape, StorageError if the weights cannot be read.
    """
    theirs, ours = decode_weights(start.weights, where=start.name), model.state_dict()
    head = "head." if model.head is not None else f"layers.{model.num_layers - 1}."
    unequal = sorted(name for name in {**ours, **theirs} if _shape(ours.get(name)) != _shape(theirs.get(name)))
    if unfit := [name for name in unequal if not name.startswith(head)]:
        shown = "; ".join(f"{name} is {_shape(ours.get(name))}, there {_shape(theirs.get(name))}" for name in unfit)
        raise LayerError(
            f"the weights of {start.name} do not fit this model: {shown}",
            where="train.start",
            fix="A layer's class has changed since. Start from another model, or set train.start to null.",
        )
    differs = "has another width there" if unequal else "knows other classes there" if start.other_classes else ""
    taken = {name: held for name, held in theirs.items() if not (differs and name.startswith(head))}
    model.load_state_dict({**ours, **taken})
    fresh = f"; the part that gives the scores {differs} and starts from the seed" if differs else ""
    return f"starts from the weights of {start.name} (digest {start.digest[:12]}){fresh}"


def _shape(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else str(list(tensor.shape))
