"""Starting to train from another model's weights: what must fit, and what may not.

The architecture must be the same; what acts in training alone, such as dropout, need not be. The part that gives the
scores may have another width or be of other classes, because the task may be another one: it then starts from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from gnnflow.config import ModelConfig
from gnnflow.graph.errors import LayerError, listed
from gnnflow.layers.model import Model, ModelInputs
from gnnflow.layers.saved import SavedModel, decode_weights
from gnnflow.layers.typed import TypedInputs, TypeInputs

_TRAINING_ONLY = {"dropout", "attention_dropout"}
_NOT_SHOWN = {"num_outputs", "unit", "typed"}  # the first two are of the scores, the last has a phrase of its own


@dataclass(frozen=True)
class Start:
    """A model to start from: its name for messages, the digest of its files, its weights as a safetensors file.

    other_classes: whether its scores are of classes of other names, or of these in another order.
    """

    name: str
    digest: str
    weights: bytes
    other_classes: bool = False


def differences(config: ModelConfig, saved: SavedModel, *, inputs: ModelInputs | None = None) -> tuple[str, ...]:
    """Return what keeps a model of this config from starting with a saved one's weights, one phrase each.

    inputs: what the graph decides, where it is known already.
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
    """Return the types of nodes, with the columns they have, and the relations that only one of two graphs has."""
    held = [set() if each is None else {*map(_type_text, each.types), *each.relations} for each in (ours, theirs)]
    here, there = sorted(held[0] - held[1]), sorted(held[1] - held[0])
    found = [f"only this graph has {listed(here)}"] if here else []
    return [*found, f"only that of the model has {listed(there)}"] if there else found


def _type_text(node_type: TypeInputs) -> str:
    return f"{node_type.name} ({node_type.feature_width} {'sparse ' if node_type.sparse else ''}columns)"


def start_from(model: Model, start: Start) -> str:
    """Put a model's weights into this one, which has the same architecture, and return what was done.

    Where the part that gives the scores has other shapes or classes it keeps the weights it has. Raises LayerError
    where any other weight is missing, left over or of another shape, StorageError where the weights cannot be read.
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
