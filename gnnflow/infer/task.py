"""What every GraphInfer task knows, and the model as a worker loads it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gnnflow.layers.model import Model, ModelSpec, build_model
from gnnflow.selection.rounds import fanout_of
from gnnflow.storage.filesystem import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.selection.rounds import SelectionPlan

LIMIT = 1e-4


@dataclass(frozen=True)
class InferTask:
    """targets: "all", or the split codes to score. weights: URI of the trained model's safetensors."""

    artifact: str
    selection: SelectionPlan
    model: ModelSpec
    weights: str
    task: str
    targets: str | tuple[int, ...]
    embeddings: bool
    parity_samples: int
    seed: int

    @property
    def num_layers(self) -> int:
        """How many layer slices there are."""
        return self.model.num_layers

    def fanout(self, layer: int) -> int | None:
        """Return how many in-edges layer `layer` (from 1) takes: the last layer the targets' own fan-out."""
        return fanout_of(self.selection, self.num_layers - layer + 1)

    def need_layer(self, layer: int) -> int:
        """Return the layer whose need round serves this one: without pruning and sampling all layers need the same."""
        whole = self.targets == "all" and self.selection.fanouts is None
        return self.num_layers if whole else layer

    def load_model(self) -> Model:
        """Return the trained model in evaluation mode."""
        model = build_model(self.model)
        model.load_state_dict(load_weights(self.weights))
        return model.eval()


def load_weights(uri: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file."""
    from safetensors.torch import load

    return load(read_bytes(uri))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, so that a partition's result does not depend on how many cores its worker had."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before)


def scores_of(logits: torch.Tensor, task: str) -> Any:
    """Return what is published for raw outputs [n, C]: probabilities, or the values themselves for regression."""
    if task == "single":
        return torch.softmax(logits, dim=1).numpy()
    if task == "multi":
        return torch.sigmoid(logits).numpy()
    return logits.numpy()
