"""Saving and loading of trained models: the only place that knows the content of these files.

    model.safetensors   the weights
    model.json          format, the model section of the config, the part that the graph decided (`ModelInputs`), and
                        its decisions between classes (`Decision`)

Nothing is unpickled, and the manifest or version of a folder lists its files. Callers may pass a function from name to
bytes, so that plain folders and a registry, which verifies files, use one loader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from gnnflow.config import ModelConfig, model_from_dict
from gnnflow.graph.errors import ConfigError, StorageError
from gnnflow.graph.labels import LabelUnit
from gnnflow.graph.run_facts import Decision
from gnnflow.layers.decoders import DecoderInputs
from gnnflow.layers.model import Model, ModelInputs, ModelSpec
from gnnflow.layers.typed import TypedInputs
from gnnflow.storage.filesystem import join
from gnnflow.storage.verified import read_verified
from gnnflow.storage.workspace import DESCRIPTION, WEIGHTS
from gnnflow.storage.writing import FileEntry, encode_json, write_atomic

FORMAT = 1
_AGAIN = "Train again and, for a published model, publish the new run."

ReadFile = Callable[[str], bytes]
_Part = TypeVar("_Part")


class ModelFormatError(StorageError):
    """A saved model has a format that this version of gnnflow does not read."""


def save_model(
    folder: str, config: ModelConfig, inputs: ModelInputs, *, weights: bytes, decision: Decision | None = None
) -> tuple[FileEntry, ...]:
    """Write a model to a folder and return its files; equal models give equal bytes.

    weights: the result of `encode_weights`. decision: where targets have one class each.
    """
    # A model of nodes omits the decoder, and one of an untyped graph omits the types.
    held = {name: value for name, value in asdict(inputs).items() if value is not None}
    description = {"format": FORMAT, "model": config.model_dump(mode="json"), "inputs": held}
    if decision is not None:
        description["decision"] = decision.as_document()
    documents = {WEIGHTS: weights, DESCRIPTION: encode_json(description)}
    return tuple(write_atomic(join(folder, name), content) for name, content in documents.items())


def read_description(folder: str, *, read: ReadFile | None = None) -> ModelSpec:
    """Return the description of the model in a folder.

    read: replaces reading the folder's files. Raises StorageError for a damaged description, ModelFormatError for
    another format.
    """
    return _read(folder, read, lambda held: ModelSpec(model_from_dict(held["model"]), _inputs(held["inputs"])))


def read_decision(folder: str, *, read: ReadFile | None = None) -> Decision | None:
    """Return the decision of the model in a folder; None where targets do not have one class each, or it is older.

    read and errors: as for `read_description`.
    """
    return _read(folder, read, lambda held: Decision.read(held["decision"]) if "decision" in held else None)


def _read(folder: str, read: ReadFile | None, part: Callable[[dict[str, Any]], _Part]) -> _Part:
    """Return a part of the description in a folder."""
    where = join(folder, DESCRIPTION)
    content = (read or partial(_read_file, folder))(DESCRIPTION)
    try:
        document = json.loads(content)
        found = document.get("format")
        if found == FORMAT:
            return part(document)
    except (ValueError, TypeError, KeyError, AttributeError, ConfigError) as error:
        why = str(error).rstrip(".")
        raise StorageError(
            f"not a model description ({why})", where=where, fix=f"The file is damaged. {_AGAIN}"
        ) from error
    stored = "has no format number" if found is None else f"is of format {found}"
    raise ModelFormatError(f"{stored}, but this version of gnnflow reads format {FORMAT}", where=where, fix=_AGAIN)


def load_model(folder: str, *, read: ReadFile | None = None) -> Model:
    """Return the model in a folder, in evaluation mode.

    read: replaces reading the folder's files. Raises StorageError if a file is damaged or the two do not belong
    together, LayerError if the model cannot be built.
    """
    saved = read_description(folder, read=read)
    where = join(folder, WEIGHTS)
    weights = decode_weights((read or partial(_read_file, folder))(WEIGHTS), where=where)
    model = saved.build()
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise StorageError(
            f"does not hold the weights of the model that {DESCRIPTION} describes ({' '.join(str(error).split())})",
            where=where,
            fix=f"A file is damaged, or the layer's class has changed since. {_AGAIN}",
        ) from error
    return model.eval()


def encode_weights(weights: Mapping[str, Tensor]) -> bytes:
    """Return a model's state as a safetensors file; equal weights give equal bytes."""
    return safetensors_torch.save({name: tensor.detach().contiguous() for name, tensor in weights.items()})


def decode_weights(content: bytes, *, where: str = "") -> dict[str, Tensor]:
    """Return a model's state from a safetensors file. Raises StorageError naming `where` if it is damaged."""
    try:
        return safetensors_torch.load(content)
    except SafetensorError as error:
        raise StorageError(
            f"not a weights file ({error})", where=where, fix=f"The file is damaged. {_AGAIN}"
        ) from error


def _inputs(document: dict[str, Any]) -> ModelInputs:
    decoder, typed, leaves, unit = (document.get(name) for name in ("decoder", "typed", "leaves", "unit"))
    return ModelInputs(
        **{
            **document,
            "decoder": None if decoder is None else DecoderInputs(**decoder),
            "typed": None if typed is None else TypedInputs.from_json(typed),
            "leaves": None if leaves is None else tuple(leaves),
            "unit": None if unit is None else LabelUnit(**unit),
        }
    )


def _read_file(folder: str, name: str) -> bytes:
    return read_verified(folder, name)
