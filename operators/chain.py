"""Which stages there are, and in which order a training strategy needs them. A new stage is a line here and a file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Named, not imported: a DAG that is parsed loads no stage.
_FUNCTIONS = {
    "ingest": "gnnflow.stages.ingest:run",
    "guards": "gnnflow.stages.guards:check",
    "flat": "gnnflow.stages.flat:run",
    "train": "gnnflow.stages.train:run",
    "infer": "gnnflow.stages.infer:run",
    "run": "gnnflow.stages.pipeline:run",
    "publish": "gnnflow.stages.publish:run",
    "score": "gnnflow.stages.score:run",
}
CHAINS: dict[str, tuple[str, ...]] = {"mini-batch": ("ingest", "flat", "train", "infer", "run")}


def stage_function(stage: str) -> Callable[[Any], Any]:
    """Return a stage's `run`."""
    module, _, name = _FUNCTIONS[stage].partition(":")
    function: Callable[[Any], Any] = getattr(import_module(module), name)
    return function


def retraining(strategy: str) -> tuple[str, ...]:
    """Return the stages of a retraining run: guards before anything costs much, then publish, then scoring."""
    ingest, *rest = CHAINS[strategy]
    return (ingest, "guards", *rest, "publish", "score")


def stages_of_any() -> tuple[str, ...]:
    """Return every stage some strategy needs, each after those it follows."""
    return tuple(dict.fromkeys(stage for chain in CHAINS.values() for stage in chain))
