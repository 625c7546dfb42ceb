"""A stage as a test adds it: it counts the nodes of the graph store."""

from __future__ import annotations

from gnnflow.config.pipelines import Pipeline
from gnnflow.config.stages import STORE, Stage

TOY = Stage(
    "toy",
    "Count the nodes.",
    "tests.extending.toys.stage:work",
    needs=(STORE,),
    keys=lambda config: {"seed": config.seed},
)
TOY_BATCH = Pipeline(
    ("ingest", "toy", "select", "flat", "train", "infer"),
    source="gnnflow.train.minibatch:open_source",
    execution="minibatch",
)
