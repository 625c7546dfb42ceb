"""A stage as a test adds it: it counts the nodes of the graph store."""

from __future__ import annotations

from dataclasses import dataclass

from gnnflow.config.pipelines import Pipeline
from gnnflow.config.stages import STORE, Stage
from gnnflow.stages.base import Made, StageRun
from gnnflow.storage.filesystem import join
from gnnflow.storage.writing import write_json


@dataclass(frozen=True)
class ToyFacts:
    """How many nodes there are."""

    num_nodes: int


def work(run: StageRun) -> Made:
    """Write the number of nodes."""
    num_nodes = run.store.facts.num_nodes
    file = write_json(join(run.artifact, "toy.json"), {"nodes": num_nodes})
    return Made((file,), rows_in=num_nodes, rows_out=num_nodes, facts=ToyFacts(num_nodes))


TOY = Stage("toy", "Count the nodes.", f"{__name__}:work", needs=(STORE,), keys=lambda config: {"seed": config.seed})
TOY_BATCH = Pipeline(
    ("ingest", "toy", "select", "flat", "train", "infer"),
    source="gnnflow.train.minibatch:open_source",
    execution="minibatch",
)
