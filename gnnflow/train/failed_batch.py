"""The batch whose loss was NaN or infinite, kept for a person to look at: one safetensors file, nothing pickled.

    targets [B]       dense ids; the user's own ids are in the metadata
    labels            of the targets, as MiniBatch has them
    outputs [B, C]    of the model for the targets
    features/...      of all rows the step computed on, the targets first: dense [N, F], or offsets, index and value;
                      on a graph with types only of the type of the targets, or of the edges' targets
    model/...         the weights that gave this loss, before the step changed them

The metadata's `batch` is JSON: fit, epoch, step, loss, ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from gnnflow.graph.errors import GnnflowError, StorageError
from gnnflow.layers.model import Model
from gnnflow.storage.filesystem import join, read_bytes
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.writing import write_atomic
from gnnflow.train.checkpoint import copied
from gnnflow.train.source import Step

_BATCH = "batch"
_FEATURES = ("dense", "offsets", "index", "value")
_SHOWN = 5


@dataclass(frozen=True)
class FailureFolder:
    """A folder for failed batches, one file per fit, and the graph store that knows the user's ids."""

    uri: str
    store: GraphStore

    def keep(self, fit: str, *, epoch: int, step: Step, number: int, outputs: Tensor, loss: float, model: Model) -> str:
        """Write step `number` of an epoch, from 1; return where it is, or why not: the loss must be told anyway."""
        where = join(self.uri, f"{fit}.safetensors")
        try:
            held = self.store.take_nodes(step.targets, ["id"], node_type=self.store.facts.target_type)
            ids = held["id"].to_pylist()
            said = {"fit": fit, "epoch": epoch, "step": number, "loss": str(loss), "ids": ids}
            write_atomic(where, _encode(step, outputs, model, said))
        except GnnflowError as error:
            return f"the batch could not be kept ({error})"
        return f"the batch is kept in {where}, which `gnnflow inspect FILE` shows"


def _encode(step: Step, outputs: Tensor, model: Model, said: Mapping[str, Any]) -> bytes:
    features = {name: getattr(step.features, name) for name in _FEATURES}
    tensors = {
        "targets": torch.from_numpy(np.array(step.targets)),
        "labels": torch.from_numpy(np.array(step.labels)),
        "outputs": outputs,
        **{f"features/{name}": tensor for name, tensor in features.items() if tensor is not None},
        **{f"model/{name}": tensor for name, tensor in model.state_dict().items()},
    }
    return safetensors_torch.save(copied(tensors), metadata={_BATCH: json.dumps(said)})


@dataclass(frozen=True)
class FailedBatch:
    """A kept batch: what the metadata says, and its tensors by name."""

    said: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def summary(self) -> dict[str, Any]:
        """Return the figures to look at first: weights, outputs and features that are not finite.

        `worst` are the targets whose outputs are not finite, or else the largest, with the largest of their features.
        """
        features = self.tensors.get("features/dense", self.tensors.get("features/value"))
        weights = {name.removeprefix("model/"): w for name, w in self.tensors.items() if name.startswith("model/")}
        largest = self.tensors["outputs"].abs().amax(1)
        return {
            **{key: self.said[key] for key in ("fit", "epoch", "step", "loss")},
            "targets": len(self.tensors["targets"]),
            "weights_not_finite": [name for name, held in weights.items() if not held.isfinite().all()],
            "largest_weight": _largest(*weights.values()),
            "features_not_finite": 0 if features is None else int((~features.isfinite()).sum()),
            "largest_feature": None if features is None else _largest(features),
            "worst": [self._target(int(row)) for row in largest.argsort(descending=True)[:_SHOWN]],
        }

    def _target(self, row: int) -> dict[str, Any]:
        dense = self.tensors.get("features/dense")
        return {
            "id": self.said["ids"][row],
            "label": self.tensors["labels"][row].tolist(),
            "largest_output": _largest(self.tensors["outputs"][row]),
            **({} if dense is None else {"largest_feature": _largest(dense[row])}),
        }


def _largest(*tensors: Tensor) -> str:
    """Return the largest absolute value as text, `nan` and `inf` included, which JSON has no numbers for."""
    found = [held.abs().max().float() for held in tensors if held.numel()]
    return f"{float(torch.stack(found).max()):.4g}" if found else "0"


def read_failed_batch(uri: str) -> FailedBatch:
    """Return a kept batch. Raises StorageError where the file is none."""
    content = read_bytes(uri)
    try:
        tensors = safetensors_torch.load(content)
        length = int.from_bytes(content[:8], "little")
        said = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_BATCH])
        return FailedBatch(said, tensors)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"is not a batch that training saved ({type(error).__name__}: {error})",
            where=uri,
            fix="Give the file that the error about the loss names.",
        ) from error
