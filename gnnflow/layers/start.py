"""Starting to train from another model's weights: what must fit, and what may not.

The architecture must be the same; what acts in training alone, such as dropout, need not be. The part that gives the
scores may have another width, because the task may be another one: it then starts from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from gnnflow.config import ModelConfig
from gnnflow.graph.errors import LayerError
from gnnflow.layers.model import Model, ModelInputs
from gnnflow.layers.saved import SavedModel, decode_weights

_TRAINING_ONLY = {"dropout", "attention_dropout"}
_OF_THE_SCORES = {"num_outputs", "unit"}


@dataclass(frozen=True)
class Start:
    """A model to start from: its name for messages, the digest of its files, its weights as a safetensors file."""

    name: str
    digest: str
    weights: bytes


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
            if name not in _OF_THE_SCORES and getattr(inputs, name) != getattr(saved.inputs, name)
        ]
    return tuple(found)


def start_from(model: Model, start: Start) -> str:
    """Put a model's weights into this one, which has the same architecture, and return what was done.

    Where the part that gives the scores has other shapes it keeps the weights it has. Raises LayerError where any other
    weight is missing, left over or of another shape, StorageError where the weights cannot be read.
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
    taken = {name: held for name, held in theirs.items() if not (unequal and name.startswith(head))}
    model.load_state_dict({**ours, **taken})
    fresh = "; the part that gives the scores has another width there and starts from the seed" if unequal else ""
    return f"starts from the weights of {start.name} (digest {start.digest[:12]}){fresh}"


def _shape(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else str(list(tensor.shape))
